//! The planner's clock.

use plan::Time;
use tokio::time::Instant;

/// Wall time when the process began, plus what a monotonic clock counted since: a clock that is set
/// back or forth changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    began: Time,
}

impl Clock {
    pub fn new() -> Self {
        Self { start: Instant::now(), began: jiff::Timestamp::now().into() }
    }

    pub fn now(&self) -> Time {
        self.began.plus_millis(i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// When the monotonic clock will show that time.
    pub fn instant(&self, time: Time) -> Instant {
        let millis = u64::try_from(time.millis_since(self.began)).unwrap_or_default();
        self.start + std::time::Duration::from_millis(millis)
    }
}
