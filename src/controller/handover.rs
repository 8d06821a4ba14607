//! Giving the lease to another replica, for the sake of our own node: when, and what goes on meanwhile.

use std::time::Duration;
use tokio::time::Instant;

/// What may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// Everything.
    Work,
    /// No new calls to clouds: those that are under way have to end.
    NoSteps,
    /// Nothing new at all.
    Nothing,
    /// Nothing is under way: the lease may be given up now.
    GiveUp,
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    /// Calls to clouds that change something.
    pub steps: bool,
    /// Writes to the API server.
    pub writes: bool,
}

/// A hand-over that is due, or none.
#[derive(Debug, Default)]
pub struct Handover {
    since: Option<Instant>,
}

impl Handover {
    /// What may go on, given whether the plan wants the lease to be given up. Others must not wait for our own
    /// node: steps end within seconds as a rule, and new ones are begun until one lease duration has passed.
    pub fn conduct(&mut self, wanted: bool, under_way: UnderWay, lease: Duration, now: Instant) -> Conduct {
        if !wanted {
            self.since = None;
            return Conduct::Work;
        }
        let since = *self.since.get_or_insert(now);
        match under_way {
            UnderWay { steps: false, writes: false } => Conduct::GiveUp,
            // These end within seconds, whatever the API server does.
            UnderWay { steps: false, writes: true } => Conduct::Nothing,
            UnderWay { steps: true, .. } if now.duration_since(since) >= lease => Conduct::NoSteps,
            UnderWay { steps: true, .. } => Conduct::Work,
        }
    }

    /// Whether one is due.
    pub fn is_due(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    #[tokio::test]
    async fn others_go_on_while_the_lease_is_to_be_given_up() {
        let (mut handover, now) = (Handover::default(), Instant::now());
        let busy = UnderWay { steps: true, writes: true };
        assert_eq!(handover.conduct(false, busy, LEASE, now), Conduct::Work);
        assert_eq!(handover.conduct(true, busy, LEASE, now), Conduct::Work);
        assert_eq!(handover.conduct(true, busy, LEASE, now + LEASE / 2), Conduct::Work);
        assert_eq!(handover.conduct(true, busy, LEASE, now + LEASE), Conduct::NoSteps);
        let writing = UnderWay { steps: false, writes: true };
        assert_eq!(handover.conduct(true, writing, LEASE, now + LEASE), Conduct::Nothing);
        let idle = UnderWay { steps: false, writes: false };
        assert_eq!(handover.conduct(true, idle, LEASE, now + LEASE), Conduct::GiveUp);
    }

    #[tokio::test]
    async fn a_node_that_need_not_be_left_any_more_ends_it() {
        let (mut handover, now) = (Handover::default(), Instant::now());
        let busy = UnderWay { steps: true, writes: false };
        handover.conduct(true, busy, LEASE, now);
        assert!(handover.is_due());
        assert_eq!(handover.conduct(false, busy, LEASE, now + LEASE), Conduct::Work);
        assert!(!handover.is_due());
        assert_eq!(handover.conduct(true, busy, LEASE, now + LEASE), Conduct::Work, "it begins anew");
    }
}
