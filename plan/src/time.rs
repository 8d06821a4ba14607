//! Points in time on the controller's own clock.

use jiff::Timestamp;

/// Milliseconds since the Unix epoch. Times of different machines are never compared: everything that
/// starts a waiting time is noticed on the clock that `now` comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// The time so many seconds later.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        self.plus_millis(seconds.saturating_mul(1000))
    }

    /// The time so many milliseconds later.
    #[must_use]
    pub fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this; 0 if that is later.
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp.as_millisecond())
    }
}

impl From<Time> for k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    /// Kubernetes stores whole seconds.
    fn from(time: Time) -> Self {
        let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        Self(Timestamp::from_second(time.0.div_euclid(1000).clamp(first, last)).unwrap_or_default())
    }
}
