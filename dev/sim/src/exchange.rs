//! Requests and replies as they went over the wire, for checks against the vendors' specifications.

use crate::model::things::Cloud;
use serde::{Deserialize, Serialize};

/// A request and what was answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Exchange {
    pub cloud: Cloud,
    pub action: String,
    pub method: String,
    pub path: String,
    pub request: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub reply: String,
}

/// Recorded exchanges; nothing is kept unless recording was switched on.
#[derive(Debug, Default)]
pub struct Exchanges {
    recorded: Option<Vec<Exchange>>,
}

impl Exchanges {
    /// Starts recording, from nothing.
    pub fn record(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// Whether exchanges are kept.
    pub fn recording(&self) -> bool {
        self.recorded.is_some()
    }

    /// Keeps an exchange if recording is on.
    pub fn add(&mut self, exchange: impl FnOnce() -> Exchange) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(exchange());
        }
    }

    /// What was recorded.
    pub fn all(&self) -> &[Exchange] {
        self.recorded.as_deref().unwrap_or_default()
    }
}
