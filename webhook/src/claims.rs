//! Addresses that were just let through. Until the watch shows the object that was allowed, nobody else
//! may have them: `kubectl apply -f folder/` is faster than a watch.

use crate::decide;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long an address counts as held by what was allowed; the API server may still refuse it later on.
pub const CLAIM_LASTS: Duration = Duration::from_secs(2);

/// Who was let through with which address, and until when that counts.
#[derive(Debug, Default)]
pub struct Claims {
    held: HashMap<IpAddr, Claim>,
}

#[derive(Debug)]
struct Claim {
    name: String,
    until: Instant,
}

impl Claims {
    /// Another object that was let through with this address a moment ago.
    pub fn holder(&self, address: IpAddr, besides: &str, now: Instant) -> Option<&str> {
        let claim = self.held.get(&address).filter(|claim| claim.until > now)?;
        (claim.name != besides).then_some(claim.name.as_str())
    }

    /// An object is let through with these addresses. Of what it was let through with before, it no longer
    /// has what it does not list any more; the watch may not have shown the rest yet.
    pub fn claim(&mut self, of: &decide::Claim, now: Instant) {
        let kept = |address: &IpAddr, claim: &Claim| claim.name != of.name || of.kept.contains(address);
        self.held.retain(|address, claim| claim.until > now && kept(address, claim));
        for address in &of.addresses {
            self.held.insert(*address, Claim { name: of.name.clone(), until: now + CLAIM_LASTS });
        }
    }

    /// The watch shows that an object has this address: from here on the index knows.
    pub fn shown(&mut self, name: &str, addresses: &[IpAddr]) {
        if self.held.is_empty() {
            return;
        }
        for address in addresses {
            if self.held.get(address).is_some_and(|claim| claim.name == name) {
                self.held.remove(address);
            }
        }
    }

    /// The watch shows that an object is gone, and what it was let through with is free.
    pub fn gone(&mut self, name: &str) {
        self.held.retain(|_, claim| claim.name != name);
    }
}
