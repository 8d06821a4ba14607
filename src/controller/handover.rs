//! Giving the lease to another replica, for the sake of our own node: when, and what goes on meanwhile.

use cloud::Account;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long a step on our own node that fails is tried by our own hand, after nobody took the lease. Then it is
/// offered again: another replica may be there by now.
const ALONE: Duration = Duration::from_mins(10);

/// What may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// Everything.
    Work,
    /// Everything but new calls to the clouds that are waited for.
    Others,
    /// No new calls to clouds: those that are under way have to end.
    NoSteps,
    /// Nothing new at all.
    Nothing,
    /// Nothing is under way: the lease may be given up now.
    GiveUp,
}

/// A hand-over that is due, or none.
#[derive(Debug, Default)]
pub struct Handover {
    since: Option<Instant>,
    /// Calls to clouds that change something, by address: of which account, and since when.
    steps: BTreeMap<IpAddr, (Account, Instant)>,
    /// Accounts that were waited for: until the lease is given up they begin nothing new, lest the wait has no end.
    waited_for: BTreeSet<Account>,
    alone: Option<Alone>,
}

/// Nobody took the lease: our own node may be left by our own hand.
#[derive(Debug)]
struct Alone {
    since: Instant,
    until: Instant,
}

impl Handover {
    /// What may go on, given whether the plan wants the lease to be given up and whether writes to the API server
    /// are under way. Others must not wait for our own node: steps end within seconds as a rule, and new ones are
    /// begun until one lease duration has passed. A step that takes longer than that has to be waited for all the
    /// same, so meanwhile other accounts go on.
    pub fn conduct(&mut self, wanted: bool, writes: bool, lease: Duration, now: Instant) -> Conduct {
        if !wanted {
            self.since = None;
            self.waited_for.clear();
            return Conduct::Work;
        }
        let since = *self.since.get_or_insert(now);
        if self.steps.is_empty() {
            // Writes end within seconds, whatever the API server does.
            return if writes { Conduct::Nothing } else { Conduct::GiveUp };
        }
        if now.duration_since(since) < lease {
            return Conduct::Work;
        }
        let slow = self.steps.values().filter(|(_, began)| now.duration_since(*began) >= lease);
        let slow: BTreeSet<Account> = slow.map(|(account, _)| account.clone()).collect();
        let conduct = if slow.is_empty() { Conduct::NoSteps } else { Conduct::Others };
        self.waited_for.extend(slow);
        conduct
    }

    /// Whether one is due.
    pub fn is_due(&self) -> bool {
        self.since.is_some()
    }

    /// Whether a step in this account may begin.
    pub fn lets(&self, account: &Account, conduct: Conduct) -> bool {
        match conduct {
            Conduct::Work => true,
            Conduct::Others => !self.waited_for.contains(account),
            Conduct::NoSteps | Conduct::Nothing | Conduct::GiveUp => false,
        }
    }

    /// A step has begun.
    pub fn begun(&mut self, address: IpAddr, account: Account, now: Instant) {
        self.steps.insert(address, (account, now));
    }

    /// A step has ended.
    pub fn ended(&mut self, address: IpAddr) {
        self.steps.remove(&address);
    }

    /// The lease is ours. If we gave it up and nobody took it, we may leave our own node by our own hand for as long
    /// as a lease lasts: by then somebody else may be there.
    pub fn leading(&mut self, nobody_took_it: bool, lease: Duration, now: Instant) {
        self.since = None;
        self.waited_for.clear();
        self.alone = nobody_took_it.then(|| Alone { since: now, until: now + lease });
    }

    /// A step on our own node failed, and may be tried again then. Until that is done the lease is not given up for
    /// it once more: without a leader everybody's moves would wait, each time.
    pub fn failed(&mut self, again: Instant, lease: Duration) {
        if let Some(alone) = &mut self.alone {
            alone.until = alone.until.max((again + lease).min(alone.since + ALONE));
        }
    }

    /// The address has left our own node.
    pub fn left(&mut self) {
        self.alone = None;
    }

    /// Whether our own node may be left by our own hand.
    pub fn is_alone(&mut self, now: Instant) -> bool {
        self.alone = self.alone.take().filter(|alone| now < alone.until);
        self.alone.is_some()
    }
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod tests;
