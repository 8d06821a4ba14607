//! Why an address is where it is, as data: the planner's own code, asked about one address.

use crate::decide::Planner;
use crate::index::Index;
use crate::slot::Slots;
use crate::{Reason, Time, World};
use std::net::IpAddr;

/// Why an address is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The allocation that has it.
    pub allocation: String,
    /// Younger allocations that list it too.
    pub also_listed_by: Vec<String>,
    /// The node that holds it.
    pub node: Option<String>,
    /// The rule or observation that keeps it there.
    pub reason: Reason,
    /// What was said or is in the way.
    pub detail: String,
    /// Where it is to go.
    pub target: Option<String>,
    /// Every node that was looked at, and why it was not taken.
    pub candidates: Vec<Candidate>,
}

/// A node that might hold the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// Why not; `None`: it could, or it does.
    pub refusal: Option<Reason>,
}

/// Explains one address; `None` if no valid allocation has a say in it.
pub fn explain(world: &World, now: Time, address: IpAddr) -> Option<Explanation> {
    let index = Index::new(world, now);
    let slots = Slots::new(&index);
    let number = slots.all.iter().position(|slot| slot.address == address)?;
    let mut planner = Planner::new(&index, &slots);
    planner.judge_all();
    planner.assign_all();
    planner.next_steps();
    let (slot, decision) = (&slots.all[number], &planner.decisions[number]);
    let mine = |node: usize| slot.on_node() == Some(node) || decision.target == Some(node);
    let candidates = (0..index.nodes.len())
        .map(|node| Candidate {
            node: index.nodes[node].name.to_owned(),
            refusal: planner
                .assignment
                .refusal(slot, node)
                .filter(|reason| !mine(node) || *reason != Reason::HoldsAddress),
        })
        .collect();
    let lost = slots.lost.iter().filter(|lost| lost.address == address);
    Some(Explanation {
        allocation: index.claims[slot.claim].name.to_owned(),
        also_listed_by: lost.map(|lost| index.claims[lost.claim].name.to_owned()).collect(),
        node: slot.on_node().map(|node| index.nodes[node].name.to_owned()),
        reason: decision.reason,
        detail: decision.detail().to_string(),
        target: decision.target.map(|node| index.nodes[node].name.to_owned()),
        candidates,
    })
}
