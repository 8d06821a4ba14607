//! When to read what of one account: a pure function of what happened and what time it is.
//!
//! Two kinds of reads: an audit asks for everything, now and then and when something happened; a read-back
//! asks for addresses that were just written. One of each may be under way. Whatever is asked for meanwhile
//! is remembered and served right after it: a reading that began before something happened says nothing
//! about it. Each account has a schedule of its own and shares nothing with the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Audits that something asked for are this far apart, so that a burst of new nodes costs one.
const SPACING: Duration = Duration::from_millis(500);
/// A read-back that contradicts the write is left to settle this long.
const SETTLING: Duration = Duration::from_secs(1);
/// How long one read may take.
pub const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Read-backs that fail are repeated after 1, 2, 4 … seconds, but no later than this.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The same for audits, whose interval may be shorter, or an hour.
const LONGEST_AUDIT_RETRY: Duration = Duration::from_mins(1);
/// Whoever asks for more is asked again all the same.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// After so many audits a view is too old to be relied on.
const AUDITS: u32 = 3;

/// Why a read is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Audit,
    ReadBack,
}

/// A read to begin now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Of everything that there is to ask for.
    Audit,
    /// Of these addresses.
    ReadBack(BTreeSet<IpAddr>),
}

/// How a read went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Addresses of which it told nothing.
    pub unknown: BTreeSet<IpAddr>,
    /// It told nothing of something, be it an address or an instance.
    pub incomplete: bool,
    /// How long the cloud asked us to wait.
    pub retry_after: Option<Duration>,
}

/// When to read one account.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    /// When the next audit is due.
    due: Instant,
    /// When the last one began.
    began: Option<Instant>,
    auditing: bool,
    /// Something happened since it began.
    again: bool,
    failures: u32,
    /// Addresses to read back, as the plan has it: when each was last written.
    wanted: BTreeMap<IpAddr, Option<Instant>>,
    /// When each was last read back, and how often in a row that told nothing.
    read_back: BTreeMap<IpAddr, ReadBack>,
    reading_back: Option<BTreeSet<IpAddr>>,
    /// The cloud does not want to be asked before.
    not_before: Instant,
}

#[derive(Clone, Copy, Debug)]
struct ReadBack {
    began: Instant,
    failures: u32,
    /// When to try again, if it failed.
    retry: Option<Instant>,
}

impl Schedule {
    /// Everything is to be read now.
    pub fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            due: now,
            began: None,
            auditing: false,
            again: false,
            failures: 0,
            wanted: BTreeMap::new(),
            read_back: BTreeMap::new(),
            reading_back: None,
            not_before: now,
        }
    }

    /// The allocations that use the account ask for another interval.
    pub fn set_interval(&mut self, interval: Duration, now: Instant) {
        self.interval = interval;
        self.due = self.due.min(now + interval);
    }

    /// Something happened that only a reading which begins after it can tell of: a node or an address that is
    /// new, an instance in trouble or out of it.
    pub fn hurry(&mut self, now: Instant) {
        self.again |= self.auditing;
        let earliest = self.began.map_or(now, |began| (began + SPACING).max(now));
        self.due = self.due.min(earliest);
    }

    /// The addresses that the plan wants to be read back now, all of them, with the time of the last write.
    pub fn want(&mut self, wanted: BTreeMap<IpAddr, Option<Instant>>) {
        self.wanted = wanted;
    }

    /// Only these addresses are asked for any more.
    pub fn retain(&mut self, asked: impl Fn(&IpAddr) -> bool) {
        self.read_back.retain(|address, _| asked(address));
        self.wanted.retain(|address, _| asked(address));
    }

    /// The reads to begin now; they are under way then.
    pub fn begin(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.auditing && self.audit_at() <= now {
            (self.auditing, self.again, self.began) = (true, false, Some(now));
            actions.push(Action::Audit);
        }
        if self.reading_back.is_none() {
            let due: BTreeSet<IpAddr> =
                self.read_backs().filter(|(_, at)| *at <= now).map(|(address, _)| address).collect();
            if !due.is_empty() {
                for address in &due {
                    let failures = self.read_back.get(address).map_or(0, |last| last.failures);
                    self.read_back.insert(*address, ReadBack { began: now, failures, retry: None });
                }
                self.reading_back = Some(due.clone());
                actions.push(Action::ReadBack(due));
            }
        }
        actions
    }

    /// When to begin the next read, if nothing happens.
    pub fn wake(&self) -> Option<Instant> {
        let audit = (!self.auditing).then(|| self.audit_at());
        let read_back =
            if self.reading_back.is_none() { self.read_backs().map(|(_, at)| at).min() } else { None };
        [audit, read_back].into_iter().flatten().min()
    }

    /// A read has ended. `jitter` is in 0..1.
    pub fn ended(&mut self, purpose: Purpose, outcome: &Outcome, now: Instant, jitter: f64) {
        if let Some(pause) = outcome.retry_after {
            self.not_before = self.not_before.max(now + pause.min(LONGEST_PAUSE));
        }
        match purpose {
            Purpose::Audit => self.audit_ended(outcome, now, jitter),
            Purpose::ReadBack => {
                let asked = self.reading_back.take().unwrap_or_default();
                for address in asked {
                    self.read_back_ended(address, outcome.unknown.contains(&address), now);
                }
            }
        }
    }

    /// Views that are older cannot be relied on: three audits were due since, and the answer to the last one.
    pub fn max_age(&self) -> Duration {
        self.interval * AUDITS + READ_TIMEOUT
    }

    fn audit_at(&self) -> Instant {
        self.due.max(self.not_before)
    }

    fn audit_ended(&mut self, outcome: &Outcome, now: Instant, jitter: f64) {
        self.auditing = false;
        self.failures = if outcome.incomplete { self.failures.saturating_add(1) } else { 0 };
        let pause = if outcome.incomplete {
            doubled(self.failures).min(self.interval.min(LONGEST_AUDIT_RETRY))
        } else {
            self.interval
        };
        self.due = now + pause.mul_f64(0.9 + 0.2 * jitter);
        if std::mem::take(&mut self.again) {
            self.hurry(now);
        }
        let began = self.began.unwrap_or(now);
        // What an audit tells of an address need not be read back.
        self.read_back.retain(|address, last| outcome.unknown.contains(address) || last.began > began);
    }

    fn read_back_ended(&mut self, address: IpAddr, unknown: bool, now: Instant) {
        let Some(last) = self.read_back.get_mut(&address) else { return };
        last.failures = if unknown { last.failures.saturating_add(1) } else { 0 };
        last.retry = unknown.then(|| now + doubled(last.failures).min(LONGEST_RETRY));
    }

    /// The addresses to read back, and when.
    fn read_backs(&self) -> impl Iterator<Item = (IpAddr, Instant)> {
        let failed = self.read_back.iter().filter_map(|(address, last)| Some((*address, last.retry?)));
        let written = self.wanted.iter().map(|(address, written)| {
            let at = match self.read_back.get(address) {
                Some(last) if last.retry.is_some() => last.retry,
                // What was read since it was written contradicts the write: the cloud lags.
                Some(last) if written.is_none_or(|written| written <= last.began) => {
                    Some(last.began + SETTLING)
                }
                _ => None,
            };
            (*address, at.unwrap_or(self.not_before))
        });
        failed.chain(written).map(|(address, at)| (address, at.max(self.not_before)))
    }
}

/// 1, 2, 4 … seconds.
fn doubled(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(12))
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
