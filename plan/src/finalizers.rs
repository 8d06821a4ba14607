//! The finalizer: on before anything is attached, off when nothing is left to release.

use crate::decide::Planner;
use crate::index::Index;
use crate::slot::{Slot, State, is_retained};
use crate::{FinalizerChange, marks};

pub fn plan(planner: &mut Planner<'_, '_>) {
    let index = planner.index;
    for (number, claim) in index.claims.iter().enumerate() {
        let deleting = claim.object.deleting;
        let wanted =
            claim.enforces() && (!deleting || planner.slots.of(number).any(|slot| holds(index, slot)));
        // Nobody can put one on an object that is being deleted.
        if wanted != claim.object.has_finalizer && !(wanted && deleting) {
            let change = FinalizerChange { allocation: claim.name.to_owned(), present: wanted };
            planner.plan.finalizers.push(change);
        }
    }
    for (name, allocation) in &index.world.allocations {
        // Nobody can say what an object without a valid spec holds; it must be able to go.
        if allocation.spec.is_err() && allocation.deleting && allocation.has_finalizer {
            planner.plan.finalizers.push(FinalizerChange { allocation: name.clone(), present: false });
        }
    }
}

/// Whether the deletion of its allocation has to wait for this address.
fn holds(index: &Index<'_>, slot: &Slot<'_>) -> bool {
    let ours = || slot.recorded.is_some_and(|recorded| recorded.instances().next().is_some());
    !is_retained(index, slot)
        && match slot.state {
            State::On { .. } => true,
            State::Unknown(_) => ours() || marks::names(index, slot.address),
            State::Free { .. } => slot.busy || slot.stale,
            State::NotFound | State::Foreign(_) => false,
        }
}
