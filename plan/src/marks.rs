//! Labels and annotation of nodes.

use crate::decide::Planner;
use crate::index::Index;
use crate::slot::{Slot, State};
use crate::{Node, NodeMarks};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;

/// Whether a node has any of our marks.
pub fn has_marks(node: &Node) -> bool {
    node.labels.ready().is_some() || node.labels.allocation().is_some() || node.reserved_ip.is_some()
}

/// Whether a node says that an allocation has an address there.
pub fn is_home(node: &Node, allocation: &str) -> bool {
    node.labels.ready() == Some("true") && node.labels.allocation() == Some(allocation)
}

/// Whether some node says that it holds an address.
pub fn names(index: &Index<'_>, address: IpAddr) -> bool {
    let address = address.to_string();
    let mut marked = index.nodes.iter().filter(|entry| entry.marked);
    marked.any(|entry| entry.node.reserved_ip.as_deref() == Some(address.as_str()))
}

/// Whether a node has exactly these marks.
pub fn has(node: &Node, allocation: &str, address: IpAddr) -> bool {
    is_home(node, allocation) && address_of(node) == Some(address)
}

/// The address that a node is marked with.
fn address_of(node: &Node) -> Option<IpAddr> {
    node.reserved_ip.as_deref()?.parse().ok()
}

/// Whether the marks of a slot's node speak of another address that is there too: those stay.
pub fn speak_of_another(planner: &Planner<'_, '_>, node: usize, slot: &Slot<'_>) -> bool {
    // Mostly they speak of its own, which no other slot has.
    let marked = address_of(planner.index.nodes[node].node).filter(|marked| *marked != slot.address);
    marked.is_some_and(|marked| {
        planner.slots.all.iter().any(|other| other.address == marked && other.on_node() == Some(node))
    })
}

pub fn plan(planner: &mut Planner<'_, '_>) {
    let index = planner.index;
    let mut wanted: FxHashMap<usize, (&str, IpAddr)> = FxHashMap::default();
    let mut leaving: FxHashSet<usize> = FxHashSet::default();
    for (slot, decision) in planner.slots.all.iter().zip(&planner.decisions) {
        let claim = &index.claims[slot.claim];
        let marked = decision.marked && !decision.second;
        if let (Some(node), true, true) = (slot.on_node(), marked, claim.enforces()) {
            wanted.insert(node, (claim.name, slot.address));
        }
        // Its marks have to go before it goes, whoever wrote them.
        if claim.enforces() && decision.moving.is_some() && !slot.busy && !slot.stale {
            leaving.extend(slot.on_node());
        }
    }
    let kept = untouchable(planner);
    let unsure = claims_with_unknowns(planner);
    for (number, entry) in index.nodes.iter().enumerate() {
        let marks = wanted.get(&number).copied();
        let right = match marks {
            Some((allocation, address)) => has(entry.node, allocation, address),
            None if !entry.marked => true,
            None if leaving.contains(&number) => false,
            None => kept.contains(&number) || !ours(planner, number, &unsure),
        };
        if !right {
            planner.plan.labels.push(NodeMarks {
                node: entry.name.to_owned(),
                uid: entry.node.uid.clone(),
                marks: marks.map(|(allocation, address)| (allocation.to_owned(), address)),
            });
        }
    }
}

/// Nodes whose marks stay as they are: of what is not known, not moved yet, or not ours to change.
fn untouchable(planner: &Planner<'_, '_>) -> FxHashSet<usize> {
    let index = planner.index;
    let annotated: FxHashMap<IpAddr, usize> = index
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.marked)
        .filter_map(|(number, entry)| Some((address_of(entry.node)?, number)))
        .collect();
    let mut kept = FxHashSet::default();
    for slot in &planner.slots.all {
        let claim = &index.claims[slot.claim];
        let retained = slot.released && (claim.object.deleting || claim.spec.paused);
        let undecided = slot.busy || slot.stale;
        if matches!(slot.state, State::Unknown(_)) {
            let instance = slot.recorded.and_then(|recorded| recorded.provider_id.as_deref());
            kept.extend(instance.and_then(|instance| index.node_of_instance(instance)));
            kept.extend(annotated.get(&slot.address));
        } else if let Some(node) = slot.on_node()
            && (!claim.enforces() || undecided || retained)
        {
            kept.insert(node);
        }
    }
    kept
}

/// Whether marks on a node are ours to remove: they name an allocation that acts, or they name none (the
/// predecessor wrote the label alone) and an allocation that acts knows all about its own addresses.
fn ours(planner: &Planner<'_, '_>, node: usize, unsure: &FxHashSet<usize>) -> bool {
    let index = planner.index;
    match index.nodes[node].node.labels.allocation().map(|name| index.world.allocations.get(name)) {
        Some(Some(allocation)) => allocation.acts(),
        // Left behind by an allocation that is gone (Retain leaves them on purpose): wrong only where the
        // address is known to be elsewhere.
        Some(None) => elsewhere(planner, node),
        None => {
            index.claims.iter().enumerate().any(|(number, claim)| {
                claim.enforces() && claim.has_in_pool(node) && !unsure.contains(&number)
            })
        }
    }
}

/// Whether the address that a node is marked with belongs to an acting allocation and is not there.
fn elsewhere(planner: &Planner<'_, '_>, node: usize) -> bool {
    let marked = address_of(planner.index.nodes[node].node);
    planner.slots.all.iter().any(|slot| {
        let known = !matches!(slot.state, State::Unknown(_)) && !slot.stale && !slot.busy;
        Some(slot.address) == marked && known && planner.index.claims[slot.claim].enforces()
    })
}

fn claims_with_unknowns(planner: &Planner<'_, '_>) -> FxHashSet<usize> {
    let unknown = planner.slots.all.iter().filter(|slot| matches!(slot.state, State::Unknown(_)));
    unknown.map(|slot| slot.claim).collect()
}
