//! When an address leaves its node.

use crate::index::{Claim, Index};
use crate::notice::Notices;
use crate::pools::not_in_pool;
use crate::slot::{Slot, State};
use crate::{InstanceView, Notice, Reason, Time, select};

/// How long too many NotReady nodes at once hold up moves.
const STORM_SECONDS: i64 = 5 * 60;
/// Fewer nodes than this are no storm.
const STORM_NODES: usize = 3;

/// What is to become of an attached address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays, for now.
    Stay(Reason),
    /// It has to leave as soon as there is a target.
    Leave {
        cause: Reason,
        /// Its node is lost: no waiting, no limits.
        forced: bool,
    },
}

/// Judges an address on an instance.
pub fn judge(index: &Index<'_>, slot: &Slot<'_>, second: bool, notices: &mut Notices<'_>) -> Verdict {
    let State::On { node, provider_id, .. } = slot.state else {
        return Verdict::Stay(Reason::Attached);
    };
    let claim = &index.claims[slot.claim];
    let Some(node) = node else {
        return Verdict::Leave { cause: Reason::NodeLost, forced: true };
    };
    let lost = match node_lost(index, claim, slot, node, provider_id, notices) {
        Verdict::Stay(reason) => reason,
        leave @ Verdict::Leave { .. } => return leave,
    };
    match by_choice(index, claim, slot, node, second, notices) {
        Verdict::Leave { cause, .. } if waits_for_list(claim, slot, cause) => {
            Verdict::Stay(unlisted_reason(index, claim, slot, notices))
        }
        Verdict::Leave { .. } if !held_long_enough(index, claim, slot, notices) => {
            Verdict::Stay(Reason::WaitingForHold)
        }
        // What the node's health says is more urgent than what its drain says.
        Verdict::Stay(_) if lost != Reason::Attached => Verdict::Stay(lost),
        verdict => verdict,
    }
}

/// Nobody knows where the workload's pods are, so nothing moves by choice; what was begun goes on, and a
/// timeout does not ask for pods.
fn waits_for_list(claim: &Claim<'_>, slot: &Slot<'_>, cause: Reason) -> bool {
    claim.unlisted.is_some() && cause != Reason::DrainTimeout && slot.operation().is_none()
}

/// How long a list may take before it is said to be missing: after a restart each takes a moment.
const LISTING_SECONDS: i64 = 5;

/// Whether the list of the claim's workload has been missing for so long that we go on without.
pub fn list_is_missing(index: &Index<'_>, claim: &Claim<'_>, notices: &mut Notices<'_>) -> bool {
    let (Some(workload), Some(_)) = (&claim.spec.workload, claim.unlisted) else { return false };
    let due = notices.since(Notice::Unlisted(workload.clone())).plus_seconds(LISTING_SECONDS);
    notices.wake(due);
    index.now >= due
}

/// What is said of an address that stays because of it: for the first moment, what was said before.
fn unlisted_reason(
    index: &Index<'_>,
    claim: &Claim<'_>,
    slot: &Slot<'_>,
    notices: &mut Notices<'_>,
) -> Reason {
    let here = slot.recorded.filter(|recorded| recorded.provider_id.as_deref() == slot.on_instance());
    let before = here.and_then(|recorded| Reason::from_name(recorded.reason.as_deref()?));
    match before {
        Some(before) if !list_is_missing(index, claim, notices) => before,
        _ => Reason::WorkloadUnknown,
    }
}

/// Rules that do not ask: the node or its machine is lost.
fn node_lost(
    index: &Index<'_>,
    claim: &Claim<'_>,
    slot: &Slot<'_>,
    number: usize,
    provider_id: &str,
    notices: &mut Notices<'_>,
) -> Verdict {
    let node = index.nodes[number].node;
    let leave = |cause| Verdict::Leave { cause, forced: true };
    if node.deleting {
        return leave(Reason::NodeLost);
    }
    if select::out_of_service(node) {
        return leave(Reason::NodeOutOfService);
    }
    match index.instance(provider_id) {
        InstanceView::Stopped => return leave(Reason::InstanceStopped),
        InstanceView::NotFound if !node.ready => return leave(Reason::InstanceStopped),
        _ => {}
    }
    if node.ready {
        return Verdict::Stay(Reason::Attached);
    }
    let since = notices.since(Notice::NotReady(node.uid.clone()));
    // A move that was begun before a restart is not begun again.
    if begun(slot, Reason::NodeNotReady) {
        return leave(Reason::NodeNotReady);
    }
    let due = since.plus_seconds(claim.spec.failover.not_ready_grace_seconds.into());
    if index.now < due {
        notices.wake(due);
        return Verdict::Stay(Reason::WaitingForGrace);
    }
    if in_storm(index, claim, notices) {
        Verdict::Stay(Reason::StormGuard)
    } else {
        leave(Reason::NodeNotReady)
    }
}

/// Whether so many nodes are NotReady at once that it is likelier that the view is wrong.
pub fn in_storm(index: &Index<'_>, claim: &Claim<'_>, notices: &mut Notices<'_>) -> bool {
    let threshold = usize::try_from(claim.spec.failover.storm_threshold_percent).unwrap_or(100);
    let (not_ready, settled) = (claim.pool.settled_not_ready, claim.pool.settled);
    claim.pool.next_settles.into_iter().for_each(|at| notices.wake(at));
    if threshold >= 100 || not_ready < STORM_NODES || not_ready * 100 <= threshold * settled {
        return false;
    }
    let over = notices.since(Notice::Storm(claim.name.to_owned())).plus_seconds(STORM_SECONDS);
    notices.wake(over);
    index.now < over
}

/// Rules that wait for a good moment.
fn by_choice(
    index: &Index<'_>,
    claim: &Claim<'_>,
    slot: &Slot<'_>,
    number: usize,
    second: bool,
    notices: &mut Notices<'_>,
) -> Verdict {
    let entry = &index.nodes[number];
    let leave = |cause| Verdict::Leave { cause, forced: false };
    if second {
        leave(Reason::SecondAddress)
    } else if !claim.has_in_pool(number) {
        leave(not_in_pool(claim.spec, &claim.pool, number, entry))
    } else if claim.tolerated.drives_off(entry.node).is_some() {
        leave(Reason::NodeTainted)
    } else if entry.node.unschedulable || select::scaled_down(entry.node) {
        drain(index, claim, slot, number, notices)
    } else {
        Verdict::Stay(Reason::Attached)
    }
}

/// A cordoned node, or one that an autoscaler will remove: the workload's pods go first.
fn drain(
    index: &Index<'_>,
    claim: &Claim<'_>,
    slot: &Slot<'_>,
    number: usize,
    notices: &mut Notices<'_>,
) -> Verdict {
    let node = index.nodes[number].node;
    let leave = |cause| Verdict::Leave { cause, forced: false };
    let scaled_down = select::scaled_down(node);
    let known = claim.unlisted.is_none() || slot.operation().is_some();
    if index.live_pods(claim, number) == 0 && known {
        return leave(if scaled_down { Reason::NodeScaledDown } else { Reason::NodeDrained });
    }
    // `kubectl drain` leaves DaemonSet pods alone; an autoscaler does not wait for them.
    if claim.is_daemon_set() && scaled_down {
        return leave(Reason::NodeScaledDown);
    }
    if begun(slot, Reason::DrainTimeout) {
        return leave(Reason::DrainTimeout);
    }
    let since = notices.since(Notice::Draining(node.uid.clone()));
    let timeout = claim.spec.failover.drain_timeout_seconds;
    if timeout > 0 {
        let due = since.plus_seconds(timeout.into());
        if index.now >= due {
            return leave(Reason::DrainTimeout);
        }
        notices.wake(due);
    }
    Verdict::Stay(if claim.unlisted.is_some() {
        unlisted_reason(index, claim, slot, notices)
    } else if claim.is_daemon_set() {
        Reason::WaitingForDaemonSetPod
    } else {
        Reason::WaitingForDrain
    })
}

/// Whether our status says that the address was already leaving this instance for that cause.
fn begun(slot: &Slot<'_>, cause: Reason) -> bool {
    slot.operation().is_some_and(|operation| {
        operation.cause == cause.as_str() && operation.from_provider_id.as_deref() == slot.on_instance()
    })
}

fn held_long_enough(
    index: &Index<'_>,
    claim: &Claim<'_>,
    slot: &Slot<'_>,
    notices: &mut Notices<'_>,
) -> bool {
    let hold = i64::from(claim.spec.failover.min_hold_seconds);
    // A move that has begun is not held up half-way.
    if hold == 0 || slot.operation().is_some() {
        return true;
    }
    // A time that lies ahead was written by a leader with another clock: it counts from when we saw it.
    let since = slot.since().unwrap_or_default();
    let since = if since > index.now { notices.since(Notice::HeldSince(slot.address, since)) } else { since };
    let free: Time = since.plus_seconds(hold);
    if index.now >= free {
        return true;
    }
    notices.wake(free);
    false
}
