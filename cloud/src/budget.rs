//! How often and how many at a time an account is called.
//!
//! All allocations share one budget per account. It stays under the documented limits by itself, closes when
//! the cloud says that it is called too often, comes back at a lower rate and recovers with every answer.

use crate::{Class, Error};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

/// The lowest share of its rate that a budget falls to.
const FLOOR: f64 = 1.0 / 32.0;
/// What each answer gives back of the rate.
const RECOVERY: f64 = 1.0 / 32.0;
/// How long a cloud is left alone that did not say how long, doubled each time in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_ASKED: Duration = Duration::from_mins(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Whether a call changes things: clouds count both apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It does not.
    Read,
    /// It does.
    Write,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Calls that can be made at once.
    pub burst: f64,
    /// Calls that are added each second.
    pub per_second: f64,
}

/// What an account may be asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Of reads.
    pub reads: Rate,
    /// Of writes.
    pub writes: Rate,
    /// Calls under way at the same time.
    pub concurrent: usize,
}

impl Limits {
    /// Half of what the cloud documents as its default: others live on the same account.
    pub fn of(cloud: crate::Cloud) -> Self {
        let rate = |burst, per_second| Rate { burst, per_second };
        let (reads, writes) = match cloud {
            crate::Cloud::Gcp => (rate(100.0, 12.5), rate(50.0, 12.5)),
            crate::Cloud::Aws => (rate(50.0, 10.0), rate(25.0, 2.5)),
            crate::Cloud::Azure => (rate(125.0, 12.5), rate(100.0, 5.0)),
        };
        Self { reads, writes, concurrent: 16 }
    }
}

/// The budget of an account.
#[derive(Debug)]
pub struct Budget {
    reads: Mutex<Bucket>,
    writes: Mutex<Bucket>,
    slots: Semaphore,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// May be negative: what was promised to callers that still wait.
    tokens: f64,
    counted: Instant,
    /// Share of the rate that is used at the moment.
    share: f64,
    closed_until: Instant,
    refused_in_a_row: u32,
}

impl Budget {
    /// A full budget.
    pub fn new(limits: Limits) -> Self {
        let bucket = |rate: Rate| Mutex::new(Bucket::new(rate, Instant::now()));
        Self {
            reads: bucket(limits.reads),
            writes: bucket(limits.writes),
            slots: Semaphore::new(limits.concurrent.max(1)),
        }
    }

    /// Waits for its turn. What cannot have it before the deadline is refused at once: nothing was sent.
    pub async fn admit(&self, kind: Kind, deadline: Instant) -> Result<SemaphorePermit<'_>, Error> {
        let late = || Error::new(Class::Throttled, "too many calls of this account are under way already");
        let permit = timeout_at(deadline, self.slots.acquire()).await.map_err(|_| late())?;
        let permit = permit.map_err(|_| late())?;
        let mut turn = self.bucket(kind).take(Instant::now(), deadline)?;
        // While this one waited the cloud may have refused another one.
        while turn > Instant::now() {
            sleep_until(turn).await;
            turn = self.bucket(kind).closed_until(deadline)?;
        }
        Ok(permit)
    }

    /// The cloud said that it is called too often.
    pub fn throttled(&self, kind: Kind, retry_after: Option<Duration>) {
        self.bucket(kind).throttled(Instant::now(), retry_after);
    }

    /// The cloud answered, whatever it said.
    pub fn answered(&self, kind: Kind) {
        self.bucket(kind).answered();
    }

    /// The share of its rate that the account is called with: 1 if the cloud has not refused anything lately,
    /// 0 while it is left alone.
    pub fn level(&self) -> f64 {
        let level = |kind| {
            let bucket = self.bucket(kind);
            if bucket.closed_until > Instant::now() { 0.0 } else { bucket.share }
        };
        level(Kind::Read).min(level(Kind::Write))
    }

    fn bucket(&self, kind: Kind) -> MutexGuard<'_, Bucket> {
        let bucket = match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
        };
        bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, tokens: rate.burst, counted: now, share: 1.0, closed_until: now, refused_in_a_row: 0 }
    }

    fn answered(&mut self) {
        self.share = (self.share + RECOVERY).min(1.0);
        self.refused_in_a_row = 0;
    }

    /// Takes a token, and says from when on it counts.
    fn take(&mut self, now: Instant, deadline: Instant) -> Result<Instant, Error> {
        let per_second = self.rate.per_second * self.share;
        let refilled = now.saturating_duration_since(self.counted).as_secs_f64() * per_second;
        self.tokens = (self.tokens + refilled).min(self.rate.burst);
        self.counted = now;
        let missing = (1.0 - self.tokens).max(0.0);
        let wait = Duration::try_from_secs_f64(missing / per_second).unwrap_or(LONGEST_PAUSE);
        let turn = self.closed_until.max(now + wait);
        if turn > deadline {
            return Err(refused(turn.saturating_duration_since(now)));
        }
        self.tokens -= 1.0;
        Ok(turn)
    }

    fn closed_until(&self, deadline: Instant) -> Result<Instant, Error> {
        if self.closed_until > deadline {
            return Err(refused(self.closed_until.saturating_duration_since(Instant::now())));
        }
        Ok(self.closed_until)
    }

    fn throttled(&mut self, now: Instant, retry_after: Option<Duration>) {
        let pause = PAUSE.saturating_mul(1 << self.refused_in_a_row.min(6)).min(LONGEST_PAUSE);
        // A proxy, or a mistake, may ask for hours.
        let pause = retry_after.map_or(pause, |asked| asked.min(LONGEST_ASKED));
        self.closed_until = self.closed_until.max(now + pause);
        self.refused_in_a_row += 1;
        self.share = (self.share / 2.0).max(FLOOR);
        self.tokens = self.tokens.min(1.0);
    }
}

/// When to come back is data and no part of the message: that ends up in a status, which is written whenever
/// it changes.
fn refused(wait: Duration) -> Error {
    let message = "not sent: the budget of calls of this account is used up, or the cloud throttles it";
    Error { retry_after: Some(wait), ..Error::new(Class::Throttled, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Rate = Rate { burst: 2.0, per_second: 1.0 };
    const HOUR: Duration = Duration::from_hours(1);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// How long one who comes at a time has to wait.
    fn wait(bucket: &mut Bucket, now: Instant) -> u64 {
        (bucket.take(now, now + HOUR).unwrap() - now).as_secs()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_waits_its_turn() {
        let now = Instant::now();
        let mut bucket = Bucket::new(SMALL, now);
        let waits: Vec<u64> = (0..4).map(|_| wait(&mut bucket, now)).collect();
        assert_eq!(waits, [0, 0, 1, 2]);
        assert_eq!(wait(&mut bucket, now + seconds(60)), 0, "it fills up again");
    }

    #[test]
    fn what_cannot_be_in_time_is_refused_at_once_and_costs_nothing() {
        let now = Instant::now();
        let mut bucket = Bucket::new(SMALL, now);
        bucket.throttled(now, Some(seconds(30)));
        for _ in 0..10 {
            let error = bucket.take(now, now + seconds(10)).unwrap_err();
            assert_eq!((error.class, error.retry_after), (Class::Throttled, Some(seconds(30))));
        }
        assert_eq!(wait(&mut bucket, now), 30);
        let messages: Vec<String> = (0..3)
            .map(|later| bucket.take(now + seconds(later), now + seconds(10)).unwrap_err().message)
            .collect();
        assert!(messages.windows(2).all(|two| two[0] == two[1]), "nothing in it changes: {messages:?}");
    }

    #[test]
    fn throttling_slows_down_and_answers_bring_it_back() {
        let now = Instant::now();
        let mut bucket = Bucket::new(SMALL, now);
        bucket.throttled(now, Some(seconds(5)));
        let later = now + seconds(5);
        assert_eq!(wait(&mut bucket, later), 0);
        let slow: Vec<u64> = (0..2).map(|_| wait(&mut bucket, later)).collect();
        assert!(slow[1] >= 2, "half the rate: {slow:?}");
        (0..16).for_each(|_| bucket.answered());
        assert!((bucket.share - 1.0).abs() < 1e-9, "{}", bucket.share);
    }

    #[test]
    fn it_never_falls_to_nothing() {
        let now = Instant::now();
        let mut bucket = Bucket::new(SMALL, now);
        (0..100).for_each(|_| bucket.throttled(now, Some(seconds(1))));
        assert!((bucket.share - FLOOR).abs() < 1e-9, "{}", bucket.share);
        assert!(bucket.take(now + HOUR, now + HOUR + seconds(60)).is_ok());
    }

    #[test]
    fn without_a_word_of_the_cloud_pauses_double_up_to_a_minute() {
        let mut now = Instant::now();
        let mut bucket = Bucket::new(SMALL, now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            bucket.throttled(now, None);
            pauses.push((bucket.closed_until - now).as_secs());
            now = bucket.closed_until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        bucket.answered();
        bucket.throttled(now, None);
        assert_eq!(bucket.closed_until - now, seconds(1), "an answer ends the row");
    }

    #[tokio::test]
    async fn one_who_waits_hears_of_a_refusal() {
        let budget = Budget::new(Limits { reads: SMALL, writes: SMALL, concurrent: 9 });
        let deadline = Instant::now() + seconds(30);
        for _ in 0..2 {
            drop(budget.admit(Kind::Read, deadline).await.unwrap());
        }
        let waiting = budget.admit(Kind::Read, deadline);
        let refusal = async { budget.throttled(Kind::Read, Some(HOUR)) };
        let (waited, ()) = tokio::join!(waiting, refusal);
        let error = waited.unwrap_err();
        assert_eq!(error.class, Class::Throttled);
        assert!(budget.level() < f64::EPSILON, "closed");
        assert!(budget.admit(Kind::Write, deadline).await.is_ok(), "writes are counted apart");
    }

    #[tokio::test]
    async fn no_more_than_so_many_at_a_time() {
        let budget = Budget::new(Limits { reads: SMALL, writes: SMALL, concurrent: 2 });
        let later = Instant::now() + seconds(30);
        let held = (budget.admit(Kind::Read, later).await, budget.admit(Kind::Write, later).await);
        let error = budget.admit(Kind::Write, Instant::now()).await.unwrap_err();
        assert_eq!(error.class, Class::Throttled);
        drop(held);
        assert!(budget.admit(Kind::Write, later).await.is_ok());
    }
}
