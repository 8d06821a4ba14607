//! Which address goes to which node: sticky, as many as possible, the most important first.

use crate::index::{Claim, Index};
use crate::nodes::zone_of_instance;
use crate::slot::{Slot, State};
use crate::tally::{NodesInTheWay, Tally};
use crate::{AddressView, Failure, FailureClass, Reason, Time, World, WriteKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

/// How long a node that refused an address for good is not asked again.
const PERMANENT_SECONDS: i64 = 10 * 60;
const LONGEST_PAUSE_SECONDS: i64 = 5 * 60;

/// The nodes that are still free, and who gets which.
pub struct Assignment<'i, 'w> {
    index: &'i Index<'w>,
    taken: Vec<bool>,
    /// Slots that got a node here and could still get another one.
    tentative: FxHashMap<usize, usize>,
    /// Slots and the nodes that were promised to them by an earlier plan; these stay.
    promised: Vec<(usize, usize)>,
    /// Nodes that could take an address, by zone; claims that see the same nodes share a list.
    lists: Vec<FitNodes<'w>>,
    list_of: FxHashMap<(usize, String), usize>,
    /// The same by claim, once it was asked for.
    list_of_claim: Vec<Option<usize>>,
    /// Why the nodes of the cluster cannot take an address, for claims that see the same nodes.
    in_the_way: FxHashMap<usize, Rc<NodesInTheWay>>,
    /// How many addresses of a claim are in a zone, or on the way there.
    in_zone: FxHashMap<(usize, &'w str), usize>,
    /// Claims for which no node can be found any more, whatever is shuffled.
    exhausted: FxHashSet<usize>,
    /// Addresses that no node may be tried for now.
    resting: FxHashSet<IpAddr>,
    /// Nodes that must not be tried for an address now.
    cooling: FxHashSet<(IpAddr, usize)>,
    /// Nodes that an address was denied on a while ago: others come first, since it may be the node's fault.
    denied: FxHashSet<(IpAddr, usize)>,
}

impl<'i, 'w> Assignment<'i, 'w> {
    pub fn new(index: &'i Index<'w>, slots: &[Slot<'w>]) -> Self {
        let mut assignment = Self {
            index,
            taken: vec![false; index.nodes.len()],
            tentative: FxHashMap::default(),
            promised: Vec::new(),
            lists: Vec::new(),
            list_of: FxHashMap::default(),
            list_of_claim: vec![None; index.claims.len()],
            in_the_way: FxHashMap::default(),
            in_zone: FxHashMap::default(),
            exhausted: FxHashSet::default(),
            resting: FxHashSet::default(),
            cooling: FxHashSet::default(),
            denied: FxHashSet::default(),
        };
        assignment.note_failures();
        assignment.take_what_is_held(slots);
        assignment
    }

    /// Looks at every failure once: a refusing account must not make the search for nodes dearer.
    fn note_failures(&mut self) {
        let (index, now) = (self.index, self.index.now);
        for ((address, provider_id), failure) in &index.world.failures {
            let node = index.node_of_instance(provider_id);
            if failure.class == FailureClass::Denied && failure.at.plus_seconds(PERMANENT_SECONDS) > now {
                self.denied.extend(node.map(|node| (*address, node)));
            }
            if retry_at(failure) <= now {
                continue;
            }
            // A cloud that throttles, or refuses the credentials, does so for every node.
            if matches!(failure.class, FailureClass::Throttled | FailureClass::Denied) {
                self.resting.insert(*address);
            }
            self.cooling.extend(node.map(|node| (*address, node)));
        }
    }

    fn take_what_is_held(&mut self, slots: &[Slot<'w>]) {
        let world = self.index.world;
        for slot in slots {
            if let Some(node) = slot.on_node() {
                *self.in_zone.entry((slot.claim, self.index.nodes[node].zone)).or_default() += 1;
            }
        }
        // Held by the cloud's word, whoever lists the address.
        for seen in world.addresses.values() {
            if let AddressView::Attached { provider_id, .. } = &seen.view {
                self.take_instance(provider_id);
            }
        }
        for step in &world.in_flight {
            self.take_instance(&step.provider_id);
        }
        // Attached by the word of a write that has not been read back.
        for slot in slots.iter().filter(|slot| slot.stale) {
            let write = world.last_write.get(&slot.address);
            if let Some(write) = write.filter(|write| write.succeeded && write.kind == WriteKind::Attach) {
                self.take_instance(&write.provider_id);
            }
        }
        // Where nothing is known the last word counts, also of objects that do not parse any more.
        for (address, record) in &self.index.records {
            let Some(provider_id) = record.provider_id.as_deref() else { continue };
            let view = world.addresses.get(address).map(|seen| &seen.view);
            if matches!(view, None | Some(AddressView::Unknown { .. })) {
                self.take_instance(provider_id);
            }
        }
    }

    fn take_instance(&mut self, provider_id: &str) {
        if let Some(node) = self.index.node_of_instance(provider_id) {
            self.taken[node] = true;
        }
    }

    pub fn is_taken(&self, node: usize) -> bool {
        self.taken[node]
    }

    /// Keeps the node that was promised to an address whose move cannot go on at the moment.
    pub fn reserve_promise(&mut self, slot: &Slot<'w>) {
        if let Some(promised) = slot.operation().and_then(|operation| operation.to_provider_id.as_deref()) {
            self.take_instance(promised);
        }
    }

    /// Takes the node that the recorded operation promised, if it can still have the address.
    pub fn keep_promise(&mut self, number: usize, slot: &Slot<'w>) -> Option<usize> {
        let promised = slot.operation()?.to_provider_id.as_deref()?;
        let node = self.index.node_of_instance(promised)?;
        let claim = &self.index.claims[slot.claim];
        let refused =
            self.index.refusal(claim, node).is_some_and(|reason| !self.is_bearable(slot, node, reason));
        let denied = self.denied.contains(&(slot.address, node));
        if self.taken[node] || refused || denied || self.cools_off(slot, node) {
            return None;
        }
        self.take(slot, node);
        self.promised.push((number, node));
        Some(node)
    }

    /// Whether what speaks against the promised node came too late. An address that is on nothing goes where it
    /// would stay if it were there already: a taint that only keeps pods away drives no address off, and
    /// Kubernetes puts one on for a moment after an uncordon. Sending it back would be two moves more.
    fn is_bearable(&self, slot: &Slot<'w>, node: usize, reason: Reason) -> bool {
        let claim = &self.index.claims[slot.claim];
        reason == Reason::Tainted
            && matches!(slot.state, State::Free { .. })
            && claim.tolerated.drives_off(self.index.nodes[node].node).is_none()
    }

    /// Finds a node for an address; others that were placed here may have to take another one.
    pub fn place(&mut self, number: usize, slots: &[Slot<'w>]) -> Option<usize> {
        let slot = &slots[number];
        if self.resting.contains(&slot.address) {
            return None;
        }
        if let Some(node) = self.best_free(slot) {
            self.give(number, slot, node);
            return Some(node);
        }
        self.shuffle(number, slots)
    }

    /// Slots and their nodes, after all shuffling.
    pub fn placements(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.tentative.iter().map(|(node, slot)| (*slot, *node)).chain(self.promised.iter().copied())
    }

    fn give(&mut self, number: usize, slot: &Slot<'w>, node: usize) {
        self.tentative.insert(node, number);
        self.take(slot, node);
    }

    fn take(&mut self, slot: &Slot<'w>, node: usize) {
        self.taken[node] = true;
        *self.in_zone.entry((slot.claim, self.index.nodes[node].zone)).or_default() += 1;
    }

    /// The zone it left, then the zone with the fewest, then the node's name.
    fn best_free(&mut self, slot: &Slot<'w>) -> Option<usize> {
        let left = self.zone_left(slot);
        let list = self.list_for(slot.claim);
        self.lists[list].skip_taken(&self.taken);
        let mut best: Option<((bool, bool, usize, usize), usize)> = None;
        for zone in &self.lists[list].zones {
            let usable = |node: &&usize| !self.taken[**node] && !self.cools_off(slot, **node);
            let denied = |node: usize| self.denied.contains(&(slot.address, node));
            let nodes = || zone.nodes[zone.first..].iter().filter(usable).copied();
            let Some(node) = nodes().find(|node| !denied(*node)).or_else(|| nodes().next()) else { continue };
            let crowd = self.in_zone.get(&(slot.claim, zone.name)).copied().unwrap_or(0);
            let rank = (denied(node), zone.name != left, crowd, node);
            if best.is_none_or(|(best, _)| rank < best) {
                best = Some((rank, node));
            }
        }
        best.map(|(_, node)| node)
    }

    fn list_for(&mut self, number: usize) -> usize {
        if let Some(list) = self.list_of_claim[number] {
            return list;
        }
        let claim = &self.index.claims[number];
        let tolerated = if claim.pool.tainted { format!("{:?}", claim.tolerated) } else { String::new() };
        let next = self.lists.len();
        let list = *self.list_of.entry((claim.pool.number, tolerated)).or_insert(next);
        if list == next {
            self.lists.push(FitNodes::new(self.index, claim));
        }
        self.list_of_claim[number] = Some(list);
        list
    }

    fn zone_left(&self, slot: &Slot<'w>) -> &'w str {
        let from_record = slot.operation().and_then(|operation| operation.from_provider_id.as_deref());
        let provider_id =
            slot.on_instance().or(from_record).or(slot.recorded.and_then(|r| r.provider_id.as_deref()));
        let Some(provider_id) = provider_id else { return "" };
        match self.index.node_of_instance(provider_id) {
            Some(node) => self.index.nodes[node].zone,
            None => zone_of_instance(provider_id),
        }
    }

    /// Looks for a chain: this address takes a node that was given to another one, which takes another,
    /// until somebody gets a free one. Whoever has a node keeps having one.
    fn shuffle(&mut self, number: usize, slots: &[Slot<'w>]) -> Option<usize> {
        let start = slots[number].claim;
        let mut came_from: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        // Claims, and the address of theirs that would take the next node.
        let mut queue = VecDeque::from([(start, number)]);
        let mut seen = FxHashSet::from_iter([start]);
        let mut held_up = false;
        while let Some((claim, mover)) = queue.pop_front() {
            if self.exhausted.contains(&claim) {
                continue;
            }
            for node in self.index.claims[claim].pool.nodes.iter().copied() {
                let Some(other) = self.tentative.get(&node).copied() else {
                    continue;
                };
                let other_claim = slots[other].claim;
                if seen.contains(&other_claim)
                    || self.index.refusal_in_pool(&self.index.claims[claim], node).is_some()
                {
                    continue;
                }
                if self.cools_off(&slots[mover], node) {
                    held_up = true;
                    continue;
                }
                came_from.insert(other_claim, (claim, node));
                seen.insert(other_claim);
                if let Some(free) = self.best_free(&slots[other]) {
                    return Some(self.pass_on(number, start, other_claim, free, &came_from, slots));
                }
                queue.push_back((other_claim, other));
            }
        }
        // What one address may not have now, another one of the same allocation may.
        if !held_up {
            self.exhausted.extend(seen);
        }
        None
    }

    /// Moves everybody in the chain one node further, from the free node back to the start.
    fn pass_on(
        &mut self,
        number: usize,
        start: usize,
        last: usize,
        free: usize,
        came_from: &FxHashMap<usize, (usize, usize)>,
        slots: &[Slot<'w>],
    ) -> usize {
        let (mut claim, mut target) = (last, free);
        while claim != start {
            let (previous, node) = came_from[&claim];
            if let Some(mover) = self.tentative.remove(&node) {
                let zone = self.index.nodes[node].zone;
                if let Some(crowd) = self.in_zone.get_mut(&(claim, zone)) {
                    *crowd = crowd.saturating_sub(1);
                }
                self.give(mover, &slots[mover], target);
            }
            (claim, target) = (previous, node);
        }
        self.give(number, &slots[number], target);
        target
    }

    /// Whether an attach of this address to this node must not be tried now.
    pub fn cools_off(&self, slot: &Slot<'_>, node: usize) -> bool {
        self.resting.contains(&slot.address) || self.cooling.contains(&(slot.address, node))
    }

    /// Why nodes cannot take an address that got none. Everything but what failed for this very address is
    /// looked at once for all claims that see the same nodes.
    pub fn tally(&mut self, slot: &Slot<'w>) -> Tally {
        let list = self.list_for(slot.claim);
        let index = self.index;
        let taken = &self.taken;
        let claim = &index.claims[slot.claim];
        let shared =
            self.in_the_way.entry(list).or_insert_with(|| NodesInTheWay::new(index, claim, taken).into());
        let shared = shared.clone();
        if self.resting.contains(&slot.address) {
            return Tally::new(index, shared, None);
        }
        let failed_on = failures_of(index.world, slot.address);
        let mut cooling: Vec<usize> = failed_on
            .filter_map(|(_, provider_id)| index.node_of_instance(provider_id))
            .filter(|node| self.cools_off(slot, *node))
            .collect();
        cooling.sort_unstable();
        Tally::new(index, shared, Some(&cooling))
    }

    /// Why a claim cannot have a node, as of now.
    pub fn refusal(&self, slot: &Slot<'w>, node: usize) -> Option<Reason> {
        let claim = &self.index.claims[slot.claim];
        self.index
            .refusal(claim, node)
            .or_else(|| self.taken[node].then_some(Reason::HoldsAddress))
            .or_else(|| self.cools_off(slot, node).then_some(Reason::CoolingOff))
    }
}

/// The nodes of a pool that could take an address if nobody had them, by zone and in order of names.
struct FitNodes<'w> {
    zones: Vec<Zone<'w>>,
}

struct Zone<'w> {
    name: &'w str,
    nodes: Vec<usize>,
    /// All nodes before this one are taken; they stay so.
    first: usize,
}

impl<'w> FitNodes<'w> {
    fn new(index: &Index<'w>, claim: &Claim<'w>) -> Self {
        let mut zones: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for node in claim.pool.nodes.iter().copied() {
            if index.refusal_in_pool(claim, node).is_none() {
                zones.entry(index.nodes[node].zone).or_default().push(node);
            }
        }
        Self { zones: zones.into_iter().map(|(name, nodes)| Zone { name, nodes, first: 0 }).collect() }
    }

    fn skip_taken(&mut self, taken: &[bool]) {
        for zone in &mut self.zones {
            while zone.nodes.get(zone.first).is_some_and(|node| taken[*node]) {
                zone.first += 1;
            }
        }
    }
}

/// The failures of an address, and the instances that they happened on.
pub fn failures_of(world: &World, address: IpAddr) -> impl Iterator<Item = (&Failure, &str)> {
    world
        .failures
        .range((address, String::new())..)
        .take_while(move |((failed, _), _)| *failed == address)
        .map(|((_, provider_id), failure)| (failure, provider_id.as_str()))
}

/// The last failure of an address on an instance.
pub fn failure_on<'w>(world: &'w World, address: IpAddr, provider_id: &str) -> Option<&'w Failure> {
    failures_of(world, address).find(|(_, failed_on)| *failed_on == provider_id).map(|(failure, _)| failure)
}

/// When a write may be repeated after a failure.
pub fn retry_at(failure: &Failure) -> Time {
    let pause = match failure.class {
        FailureClass::Permanent => PERMANENT_SECONDS,
        FailureClass::Denied => LONGEST_PAUSE_SECONDS / 5,
        FailureClass::Conflict | FailureClass::Throttled | FailureClass::Transient => {
            let doubled = 1_i64 << failure.attempts.saturating_sub(1).min(16);
            doubled.min(LONGEST_PAUSE_SECONDS)
        }
    };
    // Nobody's word keeps an address off all nodes for hours.
    let asked = failure.retry_after.unwrap_or(0).min(LONGEST_PAUSE_SECONDS);
    failure.at.plus_seconds(pause.max(asked))
}
