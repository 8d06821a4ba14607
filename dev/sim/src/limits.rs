//! Rate limits: how often a cloud may be called.

use crate::clock::{plus, seconds};
use crate::model::things::Cloud;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// Limits of the clouds; a cloud without one never refuses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Limits {
    /// GCP: calls per minute, reads and writes counted apart; then nothing until the minute is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp_per_minute: Option<u32>,
    /// AWS: one bucket per action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<Buckets>,
    /// Azure: one bucket for reads, one for writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Buckets>,
}

/// Token buckets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Buckets {
    pub read: Bucket,
    pub write: Bucket,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Bucket {
    /// Calls that can be made at once.
    pub burst: f64,
    /// Calls that are added each second.
    pub per_second: f64,
}

impl Limits {
    /// The limits that the vendors document as the default of an account.
    pub fn documented() -> Self {
        let bucket = |burst, per_second| Bucket { burst, per_second };
        Self {
            gcp_per_minute: Some(1500),
            aws: Some(Buckets { read: bucket(100.0, 20.0), write: bucket(50.0, 5.0) }),
            azure: Some(Buckets { read: bucket(250.0, 25.0), write: bucket(200.0, 10.0) }),
        }
    }
}

/// Counts calls.
#[derive(Debug, Default)]
pub struct Limiter {
    /// The limits.
    pub limits: Limits,
    buckets: HashMap<(Cloud, String), (f64, Timestamp)>,
    minutes: HashMap<bool, (i64, u32)>,
    blocked: HashMap<(Cloud, bool), Timestamp>,
}

/// A call that came too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// When the next one is allowed.
    pub until: Timestamp,
}

impl Limiter {
    /// Counts a call, or refuses it.
    pub fn admit(
        &mut self,
        cloud: Cloud,
        action: &str,
        mutating: bool,
        now: Timestamp,
    ) -> Result<(), TooMany> {
        if let Some(until) = self.blocked.get_mut(&(cloud, mutating))
            && *until > now
        {
            if cloud == Cloud::Azure {
                // Whoever does not wait as long as he was told waits anew.
                *until = (*until).max(plus(now, Duration::from_secs(2)));
            }
            return Err(TooMany { until: *until });
        }
        match cloud {
            Cloud::Gcp => self.admit_in_minute(mutating, now),
            Cloud::Aws => self.draw(cloud, action, self.limits.aws, mutating, now),
            Cloud::Azure => {
                let group = if mutating { "write" } else { "read" };
                let drawn = self.draw(cloud, group, self.limits.azure, mutating, now);
                if let Err(too_many) = drawn {
                    self.blocked.insert((cloud, mutating), too_many.until);
                }
                drawn
            }
        }
    }

    /// Refuses all calls of a kind for a while; on GCP until the minute is over when no time is given.
    pub fn block(
        &mut self,
        cloud: Cloud,
        mutating: bool,
        for_seconds: Option<f64>,
        now: Timestamp,
    ) -> TooMany {
        let until = match (cloud, for_seconds) {
            (_, Some(time)) => plus(now, seconds(time)),
            (Cloud::Gcp, None) => next_minute(now),
            (Cloud::Aws, None) => now,
            (Cloud::Azure, None) => plus(now, Duration::from_secs(2)),
        };
        self.blocked.insert((cloud, mutating), until);
        TooMany { until }
    }

    fn admit_in_minute(&mut self, mutating: bool, now: Timestamp) -> Result<(), TooMany> {
        let Some(limit) = self.limits.gcp_per_minute else {
            return Ok(());
        };
        let minute = now.as_second().div_euclid(60);
        let (counted, calls) = self.minutes.entry(mutating).or_insert((minute, 0));
        if *counted != minute {
            (*counted, *calls) = (minute, 0);
        }
        if *calls >= limit {
            return Err(TooMany { until: next_minute(now) });
        }
        *calls += 1;
        Ok(())
    }

    fn draw(
        &mut self,
        cloud: Cloud,
        group: &str,
        buckets: Option<Buckets>,
        mutating: bool,
        now: Timestamp,
    ) -> Result<(), TooMany> {
        let Some(buckets) = buckets else {
            return Ok(());
        };
        let bucket = if mutating { buckets.write } else { buckets.read };
        let key = (cloud, group.to_owned());
        let (tokens, since) = self.buckets.entry(key).or_insert((bucket.burst, now));
        let elapsed = now.duration_since(*since).as_secs_f64().max(0.0);
        *tokens = (*tokens + elapsed * bucket.per_second).min(bucket.burst);
        *since = now;
        if *tokens < 1.0 {
            let wait = (1.0 - *tokens) / bucket.per_second.max(0.001);
            return Err(TooMany { until: plus(now, seconds(wait)) });
        }
        *tokens -= 1.0;
        Ok(())
    }
}

/// The first moment of the next minute.
fn next_minute(now: Timestamp) -> Timestamp {
    let into_minute = u64::try_from(now.as_second().rem_euclid(60)).unwrap_or(0);
    let whole = plus(now, Duration::from_secs(60 - into_minute));
    crate::clock::minus(whole, Duration::from_nanos(u64::try_from(whole.subsec_nanosecond()).unwrap_or(0)))
}
