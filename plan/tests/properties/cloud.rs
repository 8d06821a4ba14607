//! A model of a cloud whose writes are conditional, as those of the real ones are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[derive(Clone, Debug, Default)]
pub struct Cloud {
    /// Instances that exist, and whether they run.
    pub instances: BTreeMap<String, bool>,
    /// Reserved addresses and the instance that each is on.
    pub addresses: BTreeMap<IpAddr, Option<String>>,
    /// Counts the changes of each address: the token of conditional writes.
    pub versions: BTreeMap<IpAddr, u64>,
    pub attaches: usize,
    pub detaches: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Conflict,
    NotFound,
}

impl Cloud {
    pub fn token(&self, address: IpAddr) -> String {
        self.versions.get(&address).copied().unwrap_or(0).to_string()
    }

    /// Attaches a free address to a running instance that has none.
    pub fn attach(&mut self, address: IpAddr, instance: &str, token: &str) -> Result<(), Refusal> {
        if self.addresses.get(&address).is_some_and(|on| on.as_deref() == Some(instance)) {
            return Ok(());
        }
        let free = self.addresses.get(&address) == Some(&None) && self.token(address) == token;
        let room = !self.addresses.values().any(|on| on.as_deref() == Some(instance));
        if self.instances.get(instance) != Some(&true) {
            return Err(Refusal::NotFound);
        }
        if !free || !room {
            return Err(Refusal::Conflict);
        }
        self.put(address, Some(instance.to_owned()));
        self.attaches += 1;
        self.check();
        Ok(())
    }

    /// Detaches an address from where the caller saw it.
    pub fn detach(&mut self, address: IpAddr, instance: &str, token: &str) -> Result<(), Refusal> {
        match self.addresses.get(&address) {
            Some(None) => Ok(()),
            Some(Some(on)) if on == instance && self.token(address) == token => {
                self.put(address, None);
                self.detaches += 1;
                self.check();
                Ok(())
            }
            Some(_) => Err(Refusal::Conflict),
            None => Err(Refusal::NotFound),
        }
    }

    /// A change by anybody: every token that was given out before is worthless now.
    pub fn put(&mut self, address: IpAddr, on: Option<String>) {
        self.addresses.insert(address, on);
        *self.versions.entry(address).or_default() += 1;
    }

    /// An instance goes, and its address is free.
    pub fn terminate(&mut self, instance: &str) {
        self.instances.remove(instance);
        let freed: Vec<IpAddr> = self
            .addresses
            .iter()
            .filter(|(_, on)| on.as_deref() == Some(instance))
            .map(|(a, _)| *a)
            .collect();
        for address in freed {
            self.put(address, None);
        }
    }

    /// Never two addresses on one instance (an address is on one instance by construction).
    fn check(&self) {
        let held: Vec<&String> = self.addresses.values().flatten().collect();
        let different: BTreeSet<_> = held.iter().collect();
        assert_eq!(
            held.len(),
            different.len(),
            "two reserved addresses on one instance: {:?}",
            self.addresses
        );
    }
}
