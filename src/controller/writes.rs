//! Which writes to the API server may be sent now: one at a time for each target, few in all, urgent ones
//! first, none while the API server asks for a pause. Nothing is queued here: what gets no permit is offered
//! again by the next plan, as it is then.

use super::publish::{Target, Written};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Writes under way at once.
const ALL: usize = 8;
/// Of these, so many at most are not urgent.
const NOT_URGENT: usize = 4;
/// How long a pod that was told to go is left alone.
const SETTLING: Duration = Duration::from_secs(10);
/// How long a disruption budget that said no is left alone.
const REFUSED: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30);
/// How often an eviction may fail before it counts as refused.
const PATIENCE: u32 = 3;

/// Whether somebody waits for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// A move waits for it: a claim, marks, a finalizer.
    Urgent,
    /// It can wait for those.
    Idle,
}

/// Whether a write may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It is under way now.
    Granted,
    /// Another one of the same target is, or failed a moment ago.
    Busy,
    /// Enough are under way.
    Full,
}

/// One write at a time for each target, few in all.
#[derive(Default)]
pub struct Writes {
    targets: BTreeMap<Target, State>,
    urgent: usize,
    idle: usize,
    /// The API server wants nothing before.
    paused_until: Option<Instant>,
    /// How often in a row it said so.
    pauses: u32,
    /// Something had to wait for a permit since the last one was given back.
    starved: bool,
}

enum State {
    UnderWay { failures: u32, urgency: Urgency },
    Waiting { until: Instant, failures: u32 },
}

impl Writes {
    /// Asks for a permit.
    pub fn begin(&mut self, target: &Target, urgency: Urgency, now: Instant) -> Permit {
        let failures = match self.targets.get(target) {
            None => 0,
            Some(State::UnderWay { .. }) => return Permit::Busy,
            Some(State::Waiting { until, .. }) if *until > now => return Permit::Busy,
            Some(State::Waiting { failures, .. }) => *failures,
        };
        let full = self.urgent + self.idle >= ALL || urgency == Urgency::Idle && self.idle >= NOT_URGENT;
        if full || self.paused_until.is_some_and(|until| until > now) {
            self.starved = true;
            return Permit::Full;
        }
        *self.count(urgency) += 1;
        self.targets.insert(target.clone(), State::UnderWay { failures, urgency });
        Permit::Granted
    }

    /// A write has ended; whether that of an eviction counts as refused by now.
    pub fn ended(&mut self, target: Target, written: &Written, now: Instant) -> bool {
        self.starved = false;
        let Some(State::UnderWay { failures: before, urgency }) = self.targets.remove(&target) else {
            return false;
        };
        *self.count(urgency) -= 1;
        let failures = before.saturating_add(1);
        let doubled = |first: Duration| (first * 2u32.saturating_pow(before.min(16))).min(LONGEST);
        let pause = match (written, &target) {
            (Written::Done, Target::Pod(_)) => SETTLING,
            (Written::Done, _) => {
                self.pauses = 0;
                return false;
            }
            // What was newer is on its way here.
            (Written::Conflict, _) => doubled(Duration::from_millis(20)),
            (Written::Refused(_), _) => doubled(REFUSED),
            (Written::Failed(_), _) => doubled(Duration::from_millis(250)),
            (Written::Throttled(asked), _) => self.throttle(*asked, now),
        };
        let until = now + pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.targets.insert(target, State::Waiting { until, failures });
        matches!(written, Written::Refused(_))
            || matches!(written, Written::Failed(_)) && failures >= PATIENCE
    }

    /// The API server has enough of us: as long as it says, or ever longer.
    fn throttle(&mut self, asked: Option<Duration>, now: Instant) -> Duration {
        let guess = Duration::from_secs(1 << self.pauses.min(5)).min(LONGEST);
        self.pauses = self.pauses.saturating_add(1);
        let pause = asked.unwrap_or(guess);
        self.paused_until = self.paused_until.max(Some(now + pause));
        pause
    }

    fn count(&mut self, urgency: Urgency) -> &mut usize {
        match urgency {
            Urgency::Urgent => &mut self.urgent,
            Urgency::Idle => &mut self.idle,
        }
    }

    pub fn is_under_way(&self, target: &Target) -> bool {
        matches!(self.targets.get(target), Some(State::UnderWay { .. }))
    }

    pub fn any_under_way(&self) -> bool {
        self.urgent + self.idle > 0
    }

    /// When the next one may be tried again; what waited long enough and was not wanted is forgotten.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        self.targets.retain(|_, state| match state {
            State::UnderWay { .. } => true,
            State::Waiting { until, .. } => *until + LONGEST * 2 > now,
        });
        let waiting = self.targets.values().filter_map(|state| match state {
            State::Waiting { until, .. } => Some(*until),
            State::UnderWay { .. } => None,
        });
        waiting.chain(self.paused_until.filter(|_| self.starved)).filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(number: usize) -> Target {
        Target::Allocation(format!("a{number}"))
    }

    fn node(number: usize) -> Target {
        Target::Node(format!("n{number}"))
    }

    #[tokio::test]
    async fn few_are_under_way_and_urgent_ones_always_find_a_permit() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        let granted =
            |n: &usize, writes: &mut Writes| writes.begin(&status(*n), Urgency::Idle, now) == Permit::Granted;
        let idle: Vec<usize> = (0..1000).filter(|n| granted(n, &mut writes)).collect();
        assert_eq!(idle.len(), NOT_URGENT);
        for n in 0..NOT_URGENT {
            assert_eq!(writes.begin(&node(n), Urgency::Urgent, now), Permit::Granted);
        }
        assert_eq!(writes.begin(&node(100), Urgency::Urgent, now), Permit::Full);
        writes.ended(node(0), &Written::Done, now);
        assert_eq!(writes.begin(&status(500), Urgency::Idle, now), Permit::Full, "kept for urgent ones");
        assert_eq!(writes.begin(&node(100), Urgency::Urgent, now), Permit::Granted);
        writes.ended(status(0), &Written::Done, now);
        assert_eq!(writes.begin(&status(500), Urgency::Idle, now), Permit::Granted);
        assert_eq!(writes.begin(&status(500), Urgency::Urgent, now), Permit::Busy, "one for each target");
    }

    #[tokio::test]
    async fn a_pause_that_the_api_server_asks_for_counts_for_all() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        assert_eq!(writes.begin(&status(1), Urgency::Idle, now), Permit::Granted);
        writes.ended(status(1), &Written::Throttled(Some(Duration::from_secs(7))), now);
        let almost = now + Duration::from_millis(6999);
        assert_eq!(writes.begin(&node(1), Urgency::Urgent, almost), Permit::Full);
        assert_eq!(writes.next(almost), Some(now + Duration::from_secs(7)), "and then it wakes");
        assert_eq!(writes.begin(&node(1), Urgency::Urgent, now + Duration::from_secs(7)), Permit::Granted);
    }

    #[tokio::test]
    async fn pauses_of_an_api_server_that_does_not_say_how_long_grow() {
        let (mut writes, mut now) = (Writes::default(), Instant::now());
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(writes.begin(&node(seconds), Urgency::Urgent, now), Permit::Granted);
            writes.ended(node(seconds), &Written::Throttled(None), now);
            let pause = Duration::from_secs(seconds as u64);
            let early = now + pause - Duration::from_millis(1);
            assert_eq!(writes.begin(&node(99), Urgency::Urgent, early), Permit::Full);
            now += pause + LONGEST * 4;
        }
    }

    #[tokio::test]
    async fn an_eviction_that_fails_for_long_counts_as_refused() {
        let (mut writes, mut now) = (Writes::default(), Instant::now());
        let pod = || Target::Pod("1".to_owned());
        let mut refused = Vec::new();
        for _ in 0..3 {
            writes.begin(&pod(), Urgency::Idle, now);
            refused.push(writes.ended(pod(), &Written::Failed("503".to_owned()), now));
            now += Duration::from_secs(5);
        }
        assert_eq!(refused, [false, false, true]);
        writes.begin(&pod(), Urgency::Idle, now);
        assert!(writes.ended(pod(), &Written::Refused("a budget".to_owned()), now), "that at once");
    }
}
