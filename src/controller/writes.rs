//! Which writes are under way, and which wait after a failure.

use super::publish::{Target, Written};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long a pod that was told to go is left alone.
const SETTLING: Duration = Duration::from_secs(10);
/// How long a disruption budget that said no is left alone.
const REFUSED: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30);

/// One write at a time for each target.
#[derive(Default)]
pub struct Writes(BTreeMap<Target, State>);

enum State {
    UnderWay { failures: u32 },
    Waiting { until: Instant, failures: u32 },
}

impl Writes {
    /// Whether the target may be written now; if so, it is under way.
    pub fn begin(&mut self, target: &Target) -> bool {
        let failures = match self.0.get(target) {
            None => 0,
            Some(State::UnderWay { .. }) => return false,
            Some(State::Waiting { until, .. }) if *until > Instant::now() => return false,
            Some(State::Waiting { failures, .. }) => *failures,
        };
        self.0.insert(target.clone(), State::UnderWay { failures });
        true
    }

    pub fn ended(&mut self, target: Target, written: &Written) {
        let before = match self.0.remove(&target) {
            Some(State::UnderWay { failures }) => failures,
            _ => 0,
        };
        let failures = before.saturating_add(1);
        let doubled = |first: Duration| (first * 2u32.saturating_pow(before.min(16))).min(LONGEST);
        let pause = match (written, &target) {
            (Written::Done, Target::Pod(_)) => SETTLING,
            (Written::Done, _) => return,
            // What was newer is on its way here.
            (Written::Conflict, _) => doubled(Duration::from_millis(20)),
            (Written::Refused, _) => doubled(REFUSED),
            (Written::Failed(_), _) => doubled(Duration::from_millis(250)),
        };
        let until = Instant::now() + pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.0.insert(target, State::Waiting { until, failures });
    }

    pub fn is_under_way(&self, target: &Target) -> bool {
        matches!(self.0.get(target), Some(State::UnderWay { .. }))
    }

    pub fn any_under_way(&self) -> bool {
        self.0.values().any(|state| matches!(state, State::UnderWay { .. }))
    }

    /// When the next one may be tried again; what waited long enough and was not wanted is forgotten.
    pub fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.0.retain(|_, state| match state {
            State::UnderWay { .. } => true,
            State::Waiting { until, .. } => *until + LONGEST * 2 > now,
        });
        let waiting = self.0.values().filter_map(|state| match state {
            State::Waiting { until, .. } if *until > now => Some(*until),
            _ => None,
        });
        waiting.min()
    }
}
