//! The right to write, and when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The right to write. All copies see the same deadline; each renewal moves it.
#[derive(Clone, Debug)]
pub struct LeaderToken {
    start: Instant,
    /// Milliseconds since `start`; 0: not leading.
    until: Arc<AtomicU64>,
}

impl Default for LeaderToken {
    fn default() -> Self {
        Self { start: Instant::now(), until: Arc::default() }
    }
}

impl LeaderToken {
    /// Whether a write may be sent now.
    pub fn may_write(&self) -> bool {
        Instant::now() < self.deadline()
    }

    /// When the right ends unless it is renewed.
    pub fn deadline(&self) -> Instant {
        self.start + Duration::from_millis(self.until.load(Ordering::Acquire))
    }

    pub(super) fn extend(&self, until: Instant) {
        let millis = until.saturating_duration_since(self.start).as_millis();
        self.until.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// One that may write for a minute.
    #[cfg(test)]
    pub fn leading() -> Self {
        let token = Self::default();
        token.extend(Instant::now() + Duration::from_mins(1));
        token
    }

    pub(super) fn revoke(&self) {
        self.until.store(0, Ordering::Release);
    }
}
