//! How fast a replica may write the Secret.
//!
//! No state needs more steps than a few. If it seems to, somebody takes back what we write: a replica whose
//! clock is so far from ours that each finds the other's certificate expired or not valid yet, or a tool
//! that restores the Secret. Haste makes that worse: every write wakes the other side.

use std::time::Duration;
use tokio::time::Instant;

/// So many writes need not wait.
const QUICK_WRITES: u32 = 20;
/// The first pause after them; the next ones are each twice as long.
const FIRST: Duration = Duration::from_secs(30);
/// After so long without a write everything is forgotten.
const CALM: Duration = Duration::from_hours(6);

/// Counts the writes of one replica.
#[derive(Debug)]
pub struct Pace {
    calm: Duration,
    writes: u32,
    last: Option<Instant>,
}

impl Pace {
    /// For leaves that live so long: short ones have to be renewed often.
    pub fn new(leaf: Duration) -> Self {
        Self { calm: CALM.min(leaf / 4), writes: 0, last: None }
    }

    /// How long the next write has to wait.
    pub fn wait(&self, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        (last + self.pause()).saturating_duration_since(now)
    }

    /// The Secret was written.
    pub fn wrote(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) >= self.calm) {
            self.writes = 0;
        }
        self.writes = self.writes.saturating_add(1);
        self.last = Some(now);
    }

    /// Always shorter than the calm that ends it: while it goes on, it never begins anew.
    fn pause(&self) -> Duration {
        match self.writes.checked_sub(QUICK_WRITES) {
            None => Duration::ZERO,
            Some(more) => FIRST.saturating_mul(1 << more.min(16)).min(self.calm / 2),
        }
    }
}
