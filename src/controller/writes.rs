//! Which writes to the API server may be sent now: one at a time for each target, few in all, urgent ones
//! first, none while the API server asks for a pause. Nothing is queued here: what gets no permit is offered
//! again by the next plan, as it is then.
//!
//! Pods and templates are in somebody's namespace, where somebody's admission webhook may let a write hang or
//! fail. So there is one at a time in each namespace, a namespace whose write failed has to wait, and such
//! namespaces together never have all the permits that there are for pods and templates.

use super::publish::{Target, Written};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Writes under way at once.
const ALL: usize = 8;
/// Of these, so many at most are marks of nodes: claims of moves always find a permit, however slow a webhook on
/// nodes is.
const ON_NODES: usize = 6;
/// Of all, so many at most are not urgent.
const NOT_URGENT: usize = 4;
/// Of these, so many at most are statuses and finalizers: each costs the API server tens of milliseconds of a
/// processor, since it checks the whole object, and others have to live with that.
const OF_ALLOCATIONS: usize = 1;
/// Of those that are not urgent, so many at most are in somebody's namespace.
const IN_NAMESPACES: usize = 3;
/// Of these, so many at most are in namespaces where the last write failed.
const IN_FAILING: usize = 2;
/// How long a pod that was told to go is left alone.
const SETTLING: Duration = Duration::from_secs(10);
/// How long a disruption budget that said no is left alone.
const REFUSED: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30);
/// How long a namespace waits at most after a write that failed there.
const LONGEST_IN_NAMESPACE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
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
    /// Its namespace has its share; what is elsewhere need not wait for that.
    Later,
    /// Enough are under way.
    Full,
}

/// One write at a time for each target, few in all.
#[derive(Default)]
pub struct Writes {
    targets: BTreeMap<Target, State>,
    /// Namespaces where a write is under way, or where the last one failed.
    namespaces: BTreeMap<String, Namespace>,
    urgent: usize,
    idle: usize,
    /// The API server wants nothing before.
    paused_until: Option<Instant>,
    /// How often in a row it said so.
    pauses: u32,
    /// Something had to wait for a permit since the last one was given back.
    starved: bool,
}

/// How writes to one namespace go.
#[derive(Default)]
struct Namespace {
    under_way: bool,
    /// How many failed in a row.
    failures: u32,
    /// Nothing is sent there before.
    until: Option<Instant>,
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
        let full = full
            || match (target, urgency) {
                (Target::Node(_), _) => {
                    self.under_way(|other, _| matches!(other, Target::Node(_))) >= ON_NODES
                }
                (Target::Allocation(_), Urgency::Idle) => {
                    let alike = |other: &Target, urgency| {
                        urgency == Urgency::Idle && matches!(other, Target::Allocation(_))
                    };
                    self.under_way(alike) >= OF_ALLOCATIONS
                }
                _ => false,
            };
        if full || self.paused_until.is_some_and(|until| until > now) {
            self.starved = true;
            return Permit::Full;
        }
        if let Some(namespace) = target.namespace() {
            if !self.has_room(namespace, now) {
                return Permit::Later;
            }
            self.namespaces.entry(namespace.to_owned()).or_default().under_way = true;
        }
        *self.count(urgency) += 1;
        self.targets.insert(target.clone(), State::UnderWay { failures, urgency });
        Permit::Granted
    }

    /// Whether a write to a namespace may be sent as far as others there, and other namespaces, are concerned.
    fn has_room(&self, namespace: &str, now: Instant) -> bool {
        let known = self.namespaces.get(namespace);
        if known.is_some_and(|known| known.under_way || known.until.is_some_and(|until| until > now)) {
            return false;
        }
        let under_way = || self.namespaces.values().filter(|other| other.under_way);
        let fails = known.is_some_and(|known| known.failures > 0);
        let failing = under_way().filter(|other| other.failures > 0).count();
        under_way().count() < IN_NAMESPACES && !(fails && failing >= IN_FAILING)
    }

    /// A write to a namespace has ended; an answer of any kind shows that writes there do not hang.
    fn leave_namespace(&mut self, target: &Target, written: &Written, now: Instant) {
        let Some(namespace) = target.namespace() else { return };
        if !matches!(written, Written::Failed(_)) {
            self.namespaces.remove(namespace);
            return;
        }
        let known = self.namespaces.entry(namespace.to_owned()).or_default();
        known.under_way = false;
        known.until = Some(now + doubled(FIRST_PAUSE, known.failures).min(LONGEST_IN_NAMESPACE));
        known.failures = known.failures.saturating_add(1);
    }

    /// A write has ended; whether that of an eviction counts as refused by now.
    pub fn ended(&mut self, target: Target, written: &Written, now: Instant) -> bool {
        self.starved = false;
        let Some(State::UnderWay { failures: before, urgency }) = self.targets.remove(&target) else {
            return false;
        };
        *self.count(urgency) -= 1;
        self.leave_namespace(&target, written, now);
        let failures = before.saturating_add(1);
        let doubled = |first: Duration| doubled(first, before);
        let pause = match (written, &target) {
            (Written::Done, Target::Pod { .. }) => SETTLING,
            (Written::Done, _) => {
                self.pauses = 0;
                return false;
            }
            // What was newer is on its way here.
            (Written::Conflict, _) => doubled(Duration::from_millis(20)),
            (Written::Refused(_), _) => doubled(REFUSED),
            (Written::Failed(_), _) => doubled(FIRST_PAUSE),
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

    /// How many are under way of which this holds.
    fn under_way(&self, holds: impl Fn(&Target, Urgency) -> bool) -> usize {
        let counts = |(target, state): &(&Target, &State)| match state {
            State::UnderWay { urgency, .. } => holds(target, *urgency),
            State::Waiting { .. } => false,
        };
        self.targets.iter().filter(counts).count()
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
        self.namespaces
            .retain(|_, known| known.under_way || known.until.is_some_and(|until| until + LONGEST * 2 > now));
        let waiting = self.targets.values().filter_map(|state| match state {
            State::Waiting { until, .. } => Some(*until),
            State::UnderWay { .. } => None,
        });
        let namespaces = self.namespaces.values().filter_map(|known| known.until);
        let paused = self.paused_until.filter(|_| self.starved);
        waiting.chain(namespaces).chain(paused).filter(|until| *until > now).min()
    }
}

/// Twice as long for each failure before.
fn doubled(first: Duration, before: u32) -> Duration {
    (first * 2u32.saturating_pow(before.min(16))).min(LONGEST)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn status(number: usize) -> Target {
        Target::Allocation(format!("a{number}"))
    }

    fn node(number: usize) -> Target {
        Target::Node(format!("n{number}"))
    }

    fn pod(namespace: &str, number: usize) -> Target {
        Target::Pod { namespace: namespace.to_owned(), uid: format!("{namespace}-{number}") }
    }

    fn template(namespace: &str) -> Target {
        let (kind, namespace) = (crds::WorkloadKind::DaemonSet, namespace.to_owned());
        Target::Template(plan::WorkloadKey { kind, namespace, name: "agent".to_owned() })
    }

    /// Asks for permits of so many pods of a namespace; those that were given.
    fn granted(writes: &mut Writes, namespace: &str, now: Instant) -> Vec<Target> {
        let pods = (0..100).map(|number| pod(namespace, number));
        pods.filter(|pod| writes.begin(pod, Urgency::Idle, now) == Permit::Granted).collect()
    }

    impl Writes {
        /// The write that is under way in a namespace.
        fn under_way_in(&self, namespace: &str) -> Target {
            let in_it = |(target, state): &(&Target, &State)| {
                target.namespace() == Some(namespace) && matches!(state, State::UnderWay { .. })
            };
            self.targets.iter().find(in_it).expect("one is under way").0.clone()
        }
    }

    #[tokio::test]
    async fn few_are_under_way_and_urgent_ones_always_find_a_permit() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        let granted_in = |writes: &mut Writes, namespace: &str, now| granted(writes, namespace, now).len();
        let granted =
            |n: &usize, writes: &mut Writes| writes.begin(&status(*n), Urgency::Idle, now) == Permit::Granted;
        let idle: Vec<usize> = (0..1000).filter(|n| granted(n, &mut writes)).collect();
        assert_eq!(idle.len(), OF_ALLOCATIONS);
        for namespace in ["a", "b", "c"] {
            assert_eq!(granted_in(&mut writes, namespace, now), 1);
        }
        assert_eq!(granted_in(&mut writes, "d", now), 0, "these are all that are not urgent");
        for n in 0..ALL - NOT_URGENT {
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
        let pod = || pod("web", 1);
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

    #[tokio::test]
    async fn writes_that_hang_in_one_namespace_take_one_permit() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        assert_eq!(granted(&mut writes, "hangs", now).len(), 1);
        assert_eq!(writes.begin(&template("hangs"), Urgency::Idle, now), Permit::Later);
        assert_eq!(writes.begin(&template("web"), Urgency::Idle, now), Permit::Granted);
        assert_eq!(writes.begin(&pod("web", 1), Urgency::Idle, now), Permit::Later, "templates count too");
        assert_eq!(granted(&mut writes, "mail", now).len(), 1);
        assert_eq!(granted(&mut writes, "more", now), [], "no more than {IN_NAMESPACES} of them");
        assert_eq!(writes.begin(&status(1), Urgency::Idle, now), Permit::Granted, "a status finds one");
        for n in 0..ALL - NOT_URGENT {
            assert_eq!(
                writes.begin(&node(n), Urgency::Urgent, now),
                Permit::Granted,
                "and so does a failover"
            );
        }
    }

    /// A slow webhook on nodes holds up no claim of a move.
    #[tokio::test]
    async fn marks_never_have_all_permits() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        let node = |n: usize| Target::Node(format!("n{n}"));
        let begun = (0..ALL).filter(|n| writes.begin(&node(*n), Urgency::Urgent, now) == Permit::Granted);
        assert_eq!(begun.count(), ON_NODES);
        let claim = Target::Allocation("voice".to_owned());
        assert_eq!(writes.begin(&claim, Urgency::Urgent, now), Permit::Granted);
        writes.ended(node(0), &Written::Done, now);
        assert_eq!(writes.begin(&node(7), Urgency::Urgent, now), Permit::Granted, "as many as before");
    }

    #[tokio::test]
    async fn namespaces_that_fail_leave_a_permit_for_those_that_do_not() {
        let (mut writes, mut now) = (Writes::default(), Instant::now());
        let hanging = ["a", "b", "c", "d"];
        let failed = Written::Failed("the API server did not answer in time".to_owned());
        let mut sent = BTreeMap::from(hanging.map(|namespace| (namespace, 0)));
        for _ in 0..100 {
            // The first time nobody can know that it is going to hang.
            let all_failed = sent.values().all(|sent| *sent > 0);
            let under_way: Vec<Target> =
                hanging.iter().flat_map(|namespace| granted(&mut writes, namespace, now)).collect();
            for target in &under_way {
                *sent.get_mut(target.namespace().expect("a namespace")).expect("one of them") += 1;
            }
            let failing = hanging.iter().filter(|name| {
                writes.namespaces.get(**name).is_some_and(|known| known.under_way && known.failures > 0)
            });
            assert!(failing.count() <= IN_FAILING);
            now += Duration::from_secs(5);
            if all_failed {
                assert_eq!(granted(&mut writes, "fine", now).len(), 1, "{sent:?}");
                writes.ended(writes.under_way_in("fine"), &Written::Done, now);
            }
            for target in under_way {
                writes.ended(target, &failed, now);
            }
            now = writes.next(now).expect("they are tried again");
        }
        assert!(sent.values().all(|sent| *sent > 2), "each has its turn: {sent:?}");
    }

    #[tokio::test]
    async fn a_namespace_waits_after_a_failure_and_an_answer_ends_that() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        for (number, millis) in [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000].into_iter().enumerate() {
            let now = now + Duration::from_mins(1) * u32::try_from(number).expect("few");
            let target = pod("hangs", number);
            assert_eq!(writes.begin(&target, Urgency::Idle, now), Permit::Granted);
            writes.ended(target, &Written::Failed("no answer".to_owned()), now);
            let almost = now + Duration::from_millis(millis - 1);
            assert_eq!(writes.begin(&pod("hangs", 99), Urgency::Idle, almost), Permit::Later);
            assert_eq!(
                writes.begin(&pod("web", number), Urgency::Idle, almost),
                Permit::Granted,
                "elsewhere"
            );
            writes.ended(pod("web", number), &Written::Conflict, almost);
            assert!(writes.next(almost).is_some(), "then it wakes");
        }
        let now = now + Duration::from_mins(10);
        for refused in [Written::Refused("a budget".to_owned()), Written::Conflict, Written::Done] {
            let target = pod("hangs", 50 + writes.targets.len());
            assert_eq!(writes.begin(&target, Urgency::Idle, now), Permit::Granted, "it answers again");
            writes.ended(target, &refused, now);
        }
    }
}
