//! The time that the simulated clouds live in.

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};

/// A clock that runs like a real one until a test stops it, and that can be moved forward.
#[derive(Clone, Debug)]
pub struct Clock {
    /// What the clock showed when it was last started or moved.
    shown: Timestamp,
    /// When that was; none while the clock stands.
    running_since: Option<Instant>,
}

impl Clock {
    /// A clock that runs from the given time on.
    pub fn running_from(start: Timestamp) -> Self {
        Self { shown: start, running_since: Some(Instant::now()) }
    }

    /// A clock that stands at the given time until it is moved.
    pub fn standing_at(start: Timestamp) -> Self {
        Self { shown: start, running_since: None }
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        match self.running_since {
            Some(since) => plus(self.shown, since.elapsed()),
            None => self.shown,
        }
    }

    /// Stops the clock.
    pub fn stop(&mut self) {
        self.shown = self.now();
        self.running_since = None;
    }

    /// Lets the clock run on from what it shows.
    pub fn run(&mut self) {
        if self.running_since.is_none() {
            self.running_since = Some(Instant::now());
        }
    }

    /// Whether it stands.
    pub fn stands(&self) -> bool {
        self.running_since.is_none()
    }

    /// Moves the clock forward.
    pub fn advance(&mut self, by: Duration) {
        self.shown = plus(self.shown, by);
    }
}

/// A time later by a duration; the far end of time when there is no such time.
pub fn plus(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// A time earlier by a duration; the beginning of time when there is no such time.
pub fn minus(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_sub(by).ok()).unwrap_or(Timestamp::MIN)
}

/// A duration of that many seconds; none for what is no duration.
pub fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
