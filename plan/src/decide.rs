//! The plan: situation by situation, in one pass over the world.

use crate::assign::{Assignment, failure_on, retry_at};
use crate::decision::Decision;
use crate::index::Index;
use crate::leave::{self, Verdict};
use crate::notice::Notices;
use crate::slot::{Slot, Slots, State, is_retained};
use crate::{Action, Notice, Place, Plan, Reason, Step, Time, World, finalizers, marks, pods, status};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Decides for the whole world.
pub fn plan(world: &World, now: Time) -> Plan {
    let index = Index::new(world, now);
    let slots = Slots::new(&index);
    let mut planner = Planner::new(&index, &slots);
    planner.judge_all();
    planner.assign_all();
    planner.next_steps();
    planner.finish()
}

/// A plan in the making.
pub struct Planner<'i, 'w> {
    pub index: &'i Index<'w>,
    pub slots: &'i Slots<'w>,
    pub decisions: Vec<Decision<'w>>,
    /// The slots in the order in which they are served, once all are judged.
    pub order: Vec<usize>,
    pub assignment: Assignment<'i, 'w>,
    pub notices: Notices<'w>,
    /// What is to be said of a claim as a whole.
    pub notes: BTreeMap<(usize, Reason), String>,
    /// Claims whose workload is being listed for a moment.
    pub listing: FxHashSet<usize>,
    /// Pods of StatefulSets that hang on lost nodes, by claim.
    pub hanging: BTreeMap<usize, Vec<String>>,
    /// Pods that a claim in mode Plan would evict: the claim and the pod's node.
    pub would_evict: Vec<(usize, Option<String>)>,
    pub plan: Plan,
}

impl<'i, 'w> Planner<'i, 'w> {
    pub fn new(index: &'i Index<'w>, slots: &'i Slots<'w>) -> Self {
        let untouched = Decision {
            reason: Reason::Attached,
            said: Cow::Borrowed(""),
            verdict: Verdict::Stay(Reason::Attached),
            second: false,
            target: None,
            marked: false,
            moving: None,
            degraded: false,
            tally: None,
        };
        Self {
            index,
            slots,
            decisions: vec![untouched; slots.all.len()],
            order: Vec::new(),
            assignment: Assignment::new(index, &slots.all),
            notices: Notices::new(&index.world.noticed, index.now),
            notes: BTreeMap::new(),
            listing: FxHashSet::default(),
            hanging: BTreeMap::new(),
            would_evict: Vec::new(),
            plan: Plan::default(),
        }
    }

    /// Stay or leave, for every address that is on an instance.
    pub fn judge_all(&mut self) {
        // Also where no address is: pods may be left there.
        for entry in self.index.nodes.iter().filter(|entry| !entry.ready) {
            self.notices.since(Notice::NotReady(entry.node.uid.clone()));
        }
        let mut holder_of: FxHashMap<usize, usize> = FxHashMap::default();
        for (number, slot) in self.slots.all.iter().enumerate() {
            let Some(node) = slot.on_node() else { continue };
            // The most important address of a node may stay there.
            holder_of.entry(node).and_modify(|first| *first = self.senior(*first, number)).or_insert(number);
        }
        for (number, slot) in self.slots.all.iter().enumerate() {
            let second = slot.on_node().is_some_and(|node| holder_of.get(&node) != Some(&number));
            self.decisions[number].second = second;
            self.decisions[number].verdict = leave::judge(self.index, slot, second, &mut self.notices);
        }
    }

    /// Which of two slots comes first.
    fn senior(&self, one: usize, other: usize) -> usize {
        let rank = |number: &usize| seniority(self.index, &self.slots.all[*number]);
        [one, other].into_iter().min_by_key(rank).unwrap_or(one)
    }

    /// Nodes for what is free or has to leave.
    pub fn assign_all(&mut self) {
        self.listing = self.still_listing();
        let mut order: Vec<usize> = (0..self.slots.all.len()).collect();
        order.sort_by_cached_key(|number| self.rank(*number));
        self.order = order;
        let mut waiting: Vec<usize> =
            self.order.iter().copied().filter(|number| self.wants_node(*number)).collect();
        for slot in &self.slots.all {
            if is_held_up(self.index, slot) {
                self.assignment.reserve_promise(slot);
            }
        }
        // What was promised before a crash is kept, so that a move goes on where it was.
        waiting.retain(|number| self.assignment.keep_promise(*number, &self.slots.all[*number]).is_none());
        for number in waiting {
            self.assignment.place(number, &self.slots.all);
        }
        let placements: Vec<_> = self.assignment.placements().collect();
        for (slot, node) in placements {
            self.decisions[slot].target = Some(node);
        }
    }

    fn wants_node(&self, number: usize) -> bool {
        let slot = &self.slots.all[number];
        let claim = &self.index.claims[slot.claim];
        if slot.released || slot.busy || slot.stale || claim.spec.paused {
            return false;
        }
        if self.listing.contains(&slot.claim) && slot.operation().is_none() {
            return false;
        }
        match slot.state {
            State::Free { .. } => true,
            State::On { .. } => matches!(self.decisions[number].verdict, Verdict::Leave { .. }),
            State::Unknown(_) | State::NotFound | State::Foreign(_) => false,
        }
    }

    /// Acting allocations first; what has no working node before what could stay; then the place in the
    /// list, then the older object: claims are in that order.
    fn rank(&self, number: usize) -> (bool, bool, usize, usize) {
        let slot = &self.slots.all[number];
        let acts = self.index.claims[slot.claim].enforces();
        let could_stay = matches!(self.decisions[number].verdict, Verdict::Leave { forced: false, .. });
        (!acts, could_stay, slot.position, slot.claim)
    }

    /// The single next step of everything.
    pub fn next_steps(&mut self) {
        let mut moving = self.moving_by_choice();
        for number in std::mem::take(&mut self.order) {
            self.next_step(number, &mut moving);
        }
    }

    fn next_step(&mut self, number: usize, moving: &mut FxHashMap<usize, usize>) {
        let slot = &self.slots.all[number];
        match slot.state {
            State::Unknown(message) => self.unknown(number, message),
            State::NotFound => {
                self.stuck(number, Reason::AddressNotFound, "the cloud account has no such address");
            }
            State::Foreign(holder) => {
                self.stuck(
                    number,
                    Reason::HeldByOther,
                    format!("it is on {holder}, which is not ours to touch"),
                );
            }
            _ if is_retained(self.index, slot) => self.decide(number, self.cause_of_release(number), ""),
            _ if slot.busy => self.carry_on(number),
            _ if slot.stale => {
                self.carry_on(number);
                self.step(number, Action::Verify, self.decisions[number].moving.unwrap_or(Reason::Attached));
                self.notices.wake(self.index.now.plus_seconds(1));
            }
            State::Free { .. } if slot.released => self.decide(number, Reason::Releasing, ""),
            State::Free { token } => self.attach(number, token),
            State::On { .. } if slot.released => self.release(number),
            State::On { .. } => self.keep_or_move(number, moving),
        }
    }

    pub fn decide(&mut self, number: usize, reason: Reason, said: impl Into<Cow<'w, str>>) {
        let decision = &mut self.decisions[number];
        decision.reason = reason;
        decision.said = said.into();
    }

    /// A step is under way, or its result is being read: nothing new is decided, marks stay as they are.
    fn carry_on(&mut self, number: usize) {
        let slot = &self.slots.all[number];
        let cause = slot.operation().and_then(|operation| Reason::from_name(&operation.cause));
        self.decisions[number].moving = Some(cause.unwrap_or(Reason::FirstAttach));
        let to = slot.operation().and_then(|operation| operation.to_provider_id.as_deref());
        self.decisions[number].target = to.and_then(|to| self.index.node_of_instance(to));
        let leaves = slot.operation().is_some_and(|operation| operation.from_provider_id.is_some());
        let under_way = if leaves { Reason::Moving } else { Reason::Attaching };
        self.decide(number, if slot.released { Reason::Releasing } else { under_way }, "");
    }

    fn attach(&mut self, number: usize, token: &str) {
        let slot = &self.slots.all[number];
        if let Some(node) = self.decisions[number].target {
            let cause = self.cause_of_attach(number);
            self.decisions[number].moving = Some(cause);
            self.decide(number, Reason::Attaching, "");
            self.step(number, Action::Attach { to: self.place(node), token: token.to_owned() }, cause);
            return;
        }
        if let Some(node) = self.way_back(number) {
            self.decisions[number].moving = Some(Reason::Restored);
            self.decisions[number].target = Some(node);
            self.wake_after_failures(number);
            self.decide(number, Reason::Restored, "no other node could take it");
            self.step(
                number,
                Action::Attach { to: self.place(node), token: token.to_owned() },
                Reason::Restored,
            );
            return;
        }
        if self.index.claims[slot.claim].spec.paused {
            return self.decide(number, Reason::Paused, "");
        }
        if self.listing.contains(&slot.claim) {
            return self.decide(number, Reason::WorkloadUnknown, "");
        }
        if !self.backs_off(number) {
            self.decide(number, Reason::WaitingForNode, "");
        }
        self.name_refusals(number);
    }

    /// The cause of a move that was begun counts to its end.
    fn cause_of_attach(&self, number: usize) -> Reason {
        let recorded =
            self.slots.all[number].operation().and_then(|operation| Reason::from_name(&operation.cause));
        let was_on = self.slots.all[number].recorded.and_then(|record| record.provider_id.as_deref());
        let lost_its_node = was_on.is_some_and(|was_on| self.index.node_of_instance(was_on).is_none());
        recorded.unwrap_or(if lost_its_node { Reason::NodeLost } else { Reason::FirstAttach })
    }

    /// The node that an address came from, if it can go back there.
    fn way_back(&self, number: usize) -> Option<usize> {
        let slot = &self.slots.all[number];
        let operation = slot.operation()?;
        let node = self.index.node_of_instance(operation.from_provider_id.as_deref()?)?;
        let entry = &self.index.nodes[node];
        let alive = entry.node.ready && !entry.node.deleting && entry.unfit != Some(Reason::InstanceStopped);
        let claim = &self.index.claims[slot.claim];
        let free = !self.assignment.is_taken(node) && !self.assignment.cools_off(slot, node);
        (alive && free && !claim.spec.paused).then_some(node)
    }

    fn cause_of_release(&self, number: usize) -> Reason {
        let deleted = self.index.claims[self.slots.all[number].claim].object.deleting;
        if deleted { Reason::AllocationDeleted } else { Reason::RemovedFromSpec }
    }

    fn release(&mut self, number: usize) {
        let slot = &self.slots.all[number];
        let claim = &self.index.claims[slot.claim];
        let cause = self.cause_of_release(number);
        if claim.spec.paused && !claim.object.deleting {
            return self.decide(number, Reason::Paused, "");
        }
        self.decisions[number].moving = Some(cause);
        self.decide(number, Reason::Releasing, "");
        let ready = slot.on_node().is_some_and(|node| self.index.nodes[node].node.ready);
        self.detach(number, cause, !ready, None);
    }

    fn keep_or_move(&mut self, number: usize, moving: &mut FxHashMap<usize, usize>) {
        let slot = &self.slots.all[number];
        let claim = &self.index.claims[slot.claim];
        let (cause, forced) = match self.decisions[number].verdict {
            Verdict::Stay(reason) => return self.stay(number, reason),
            Verdict::Leave { cause, forced } => (cause, forced),
        };
        if claim.spec.paused {
            return self.stay(number, Reason::Paused);
        }
        let Some(target) = self.decisions[number].target else {
            if self.listing.contains(&slot.claim) {
                return self.stay(number, Reason::WorkloadUnknown);
            }
            self.wake_after_failures(number);
            self.stay(number, Reason::WaitingForTarget);
            return self.name_refusals(number);
        };
        let begun = slot.operation().is_some();
        let counts = !forced && self.counts(number);
        let on_the_move = moving.entry(slot.claim).or_default();
        if counts && !begun {
            if *on_the_move >= claim.spec.max_unavailable {
                return self.stay(number, Reason::WaitingForOthers);
            }
            *on_the_move += 1;
        }
        // The cause that a move was begun with counts to its end.
        let begun_with = slot.operation().and_then(|operation| Reason::from_name(&operation.cause));
        let cause = begun_with.filter(|_| !forced).unwrap_or(cause);
        self.decisions[number].moving = Some(cause);
        self.decide(number, Reason::Moving, "");
        self.detach(number, cause, forced, Some(self.place(target)));
    }

    fn stay(&mut self, number: usize, reason: Reason) {
        let recorded = self.slots.all[number].recorded;
        let new = recorded.is_none_or(|r| r.provider_id.is_none() && r.operation.is_none());
        let kept = recorded.and_then(|r| r.reason.as_deref()) == Some(Reason::Adopted.as_str());
        let adopted = reason == Reason::Attached && (new || kept);
        self.decide(number, if adopted { Reason::Adopted } else { reason }, "");
        self.decisions[number].marked = true;
        self.decisions[number].target = None;
        self.decisions[number].degraded = reason == Reason::StormGuard;
    }

    /// Whether an address is where its pods can follow it: a move ends with the marks.
    fn is_marked(&self, slot: &Slot<'_>) -> bool {
        let name = self.index.claims[slot.claim].name;
        slot.on_node().is_some_and(|node| marks::is_home(self.index.nodes[node].node, name))
    }

    /// Marks off, then (for a DaemonSet) its pod gone, then the call. A node that is lost is not waited
    /// for.
    fn detach(&mut self, number: usize, cause: Reason, forced: bool, target: Option<Place>) {
        let slot = &self.slots.all[number];
        let State::On { node, provider_id, token } = slot.state else {
            return;
        };
        let claim = &self.index.claims[slot.claim];
        if let Some(node) = node {
            let marks_are_others = marks::speak_of_another(self, node, slot);
            if marks::has_marks(self.index.nodes[node].node) && !marks_are_others {
                return;
            }
            // Its pod goes when the marks go; marks that stay for another address keep its pod too.
            let waits_for_pod = !forced
                && !claim.object.deleting
                && !marks_are_others
                && claim.is_daemon_set()
                && self.template_follows(slot.claim);
            if waits_for_pod && (self.index.live_pods(claim, node) > 0 || claim.unlisted.is_some()) {
                return self.decide(number, Reason::WaitingForDaemonSetPod, "its pod is on its way out");
            }
        }
        let failure = failure_on(self.index.world, slot.address, provider_id);
        if let Some(at) = failure.map(retry_at).filter(|at| *at > self.index.now) {
            self.notices.wake(at);
            self.backs_off(number);
            return;
        }
        // What may not be tried now is no reason to give the lease up: nobody leads for a while then.
        let own = node.is_some_and(|node| self.is_own_node(node));
        if own && !self.index.world.nobody_took_the_lease && claim.enforces() {
            self.plan.yield_lease = true;
            return self.decide(number, Reason::Moving, "another replica has to take over first");
        }
        let from = Place {
            node: node.map(|n| self.index.nodes[n].name.to_owned()),
            provider_id: provider_id.to_owned(),
        };
        self.step(number, Action::Detach { from, token: token.to_owned(), target }, cause);
    }

    /// Whether a DaemonSet's pods go when the marks go: only where its template has the requirement. One in
    /// an excluded namespace, or one that somebody reverts, has not.
    fn template_follows(&self, claim: usize) -> bool {
        let claim = &self.index.claims[claim];
        let workload = claim.spec.workload.as_ref().and_then(|key| self.index.world.workloads.get(key));
        let names = workload.and_then(|workload| workload.injected.as_ref());
        names.is_some_and(|names| names.contains(claim.name))
    }

    fn is_own_node(&self, node: usize) -> bool {
        self.index.world.own_node.as_deref() == Some(self.index.nodes[node].name)
    }

    /// How many addresses of each claim are on the move by choice already.
    fn moving_by_choice(&self) -> FxHashMap<usize, usize> {
        let mut moving = FxHashMap::default();
        for (number, slot) in self.slots.all.iter().enumerate() {
            let begun = slot.operation().is_some_and(|operation| operation.from_provider_id.is_some());
            let arrived =
                matches!(self.decisions[number].verdict, Verdict::Stay(_)) && slot.on_node().is_some();
            if arrived {
                // A move ends with the marks.
                let unmarked = !self.is_marked(slot) && self.index.claims[slot.claim].enforces();
                let counts = unmarked && !slot.released && !self.decisions[number].second;
                *moving.entry(slot.claim).or_default() += usize::from(counts);
                continue;
            }
            let forced = matches!(self.decisions[number].verdict, Verdict::Leave { forced: true, .. });
            if begun && !slot.released && !forced && self.counts(number) {
                *moving.entry(slot.claim).or_default() += 1;
            }
        }
        moving
    }

    /// Whether moving this address takes it from pods that use it.
    fn counts(&self, number: usize) -> bool {
        let slot = &self.slots.all[number];
        let claim = &self.index.claims[slot.claim];
        let from = slot.operation().and_then(|operation| operation.from_provider_id.as_deref());
        let node = from.map_or(slot.on_node(), |from| self.index.node_of_instance(from));
        claim.spec.workload.is_none()
            || claim.unlisted.is_some()
            || node.is_some_and(|node| self.index.live_pods(claim, node) > 0)
    }

    pub fn place(&self, node: usize) -> Place {
        let entry = &self.index.nodes[node];
        Place { node: Some(entry.name.to_owned()), provider_id: entry.node.provider_id.clone() }
    }

    pub fn step(&mut self, number: usize, action: Action, cause: Reason) {
        let slot = &self.slots.all[number];
        let claim = &self.index.claims[slot.claim];
        // The finalizer first: without it a deletion would leave behind what is attached now.
        let secured = claim.object.has_finalizer || claim.object.deleting || action == Action::Verify;
        if !claim.enforces() || !secured {
            return;
        }
        let operation = status::operation_id(self, number);
        let (verb, on) = match &action {
            Action::Verify => ("verify", ""),
            Action::Attach { to, .. } => ("attach", to.provider_id.as_str()),
            Action::Detach { from, .. } => ("detach", from.provider_id.as_str()),
        };
        let failure = failure_on(self.index.world, slot.address, on);
        let attempt = failure.map_or(0, |failure| failure.attempts);
        let key = status::digest(&format!("{operation}/{verb}/{on}/{attempt}"));
        let allocation = claim.name.to_owned();
        self.plan.steps.push(Step { allocation, address: slot.address, action, cause, operation, key });
    }

    /// What would be done is in `status.plan`; of the address itself the mode is the reason.
    fn speak_of_plans(&mut self) {
        for (slot, decision) in self.slots.all.iter().zip(&mut self.decisions) {
            if decision.moving.is_some() && !self.index.claims[slot.claim].enforces() {
                decision.reason = Reason::PlanOnly;
            }
        }
    }

    pub fn finish(mut self) -> Plan {
        self.speak_of_plans();
        marks::plan(&mut self);
        pods::plan(&mut self);
        finalizers::plan(&mut self);
        status::plan(&mut self);
        self.plan.noticed = self.notices.current;
        self.plan.wake_at = self.notices.wake_at;
        self.plan
    }
}

/// Its move, if one was begun, cannot go on for now.
fn is_held_up(index: &Index<'_>, slot: &Slot<'_>) -> bool {
    let paused = index.claims[slot.claim].spec.paused;
    !slot.released && (slot.busy || slot.stale || paused || matches!(slot.state, State::Unknown(_)))
}

/// Which of two addresses on one node may stay: what the node is marked with, so that the choice holds;
/// then what our status has known there for longer.
fn seniority<'w>(index: &Index<'w>, slot: &Slot<'w>) -> impl Ord + use<'w> {
    let claim = &index.claims[slot.claim];
    let marked =
        slot.on_node().is_some_and(|node| marks::has(index.nodes[node].node, claim.name, slot.address));
    let recorded = slot.recorded.and_then(|r| r.provider_id.as_deref()) == slot.on_instance();
    let since = slot.since().filter(|_| recorded).unwrap_or(index.now);
    (slot.released, !claim.enforces(), !marked, since, slot.position, claim.object.created, claim.name)
}
