//! Leader election on a Lease.
//!
//! Wall clocks of two machines are never compared: a lease is stale when this process has seen it
//! unchanged for its whole duration, on its own monotonic clock. Nothing stops a leader that was paused
//! from going on where it was, so every write asks its [`LeaderToken`] first, whose deadline passes well
//! before anybody else may lead.

mod elector;
mod token;

pub use elector::{Command, Elector, Standing};
pub use token::LeaderToken;

use std::time::Duration;

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long others wait for a leader that is not heard of.
    pub lease: Duration,
    /// How long a leader goes on without a renewal that succeeded.
    pub renew_deadline: Duration,
    /// How often the lease is renewed, or asked for.
    pub retry: Duration,
}

impl Timings {
    /// In the proportions of client-go: 15 s, 10 s, 2 s.
    pub fn of(lease: Duration) -> Self {
        Self { lease, renew_deadline: lease * 2 / 3, retry: lease * 2 / 15 }
    }

    /// How long a single request may take so that it is over before anybody else leads.
    pub fn request(&self) -> Duration {
        self.lease.saturating_sub(self.renew_deadline)
    }
}
