//! Labels of a node.

use crds::{LABEL_ALLOCATION, LABEL_READY};
use std::collections::BTreeMap;

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The labels of a node. The few that every plan asks every node for are at hand: a look-up in each of
/// five thousand maps costs more than everything else that the planner does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    all: BTreeMap<String, String>,
    zone: Option<String>,
    region: Option<String>,
    ready: Option<String>,
    allocation: Option<String>,
}

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all.get(key).map(String::as_str)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Sets a label.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        self.all.insert(key.clone(), value.into());
        self.remember(&key);
    }

    /// Removes a label, and tells what it was.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let value = self.all.remove(key);
        self.remember(key);
        value
    }

    /// The zone; empty if there is none.
    pub fn zone(&self) -> &str {
        self.zone.as_deref().unwrap_or_default()
    }

    /// The region.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// `ip.ready`, whatever its value.
    pub fn ready(&self) -> Option<&str> {
        self.ready.as_deref()
    }

    /// The allocation whose address the node is said to hold.
    pub fn allocation(&self) -> Option<&str> {
        self.allocation.as_deref()
    }

    fn remember(&mut self, key: &str) {
        let value = self.all.get(key).cloned();
        match key {
            ZONE => self.zone = value,
            REGION => self.region = value,
            LABEL_READY => self.ready = value,
            LABEL_ALLOCATION => self.allocation = value,
            _ => {}
        }
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(all: BTreeMap<String, String>) -> Self {
        let mut labels = Self { all, ..Self::default() };
        for key in [ZONE, REGION, LABEL_READY, LABEL_ALLOCATION] {
            labels.remember(key);
        }
        labels
    }
}
