//! Addresses for which nothing can be done now: what they wait for, and what is said of it.

use crate::assign::{failures_of, retry_at};
use crate::decide::Planner;
use crate::{Action, FailureClass, Reason, leave};
use rustc_hash::FxHashSet;
use std::borrow::Cow;

impl<'w> Planner<'_, 'w> {
    /// Claims whose workload is being listed for a moment: what it tolerates decides where an address may
    /// go. A list that does not come is not waited for.
    pub fn still_listing(&mut self) -> FxHashSet<usize> {
        let index = self.index;
        let mut listing = FxHashSet::default();
        for (number, claim) in index.claims.iter().enumerate().filter(|(_, claim)| claim.unlisted.is_some()) {
            let missing = leave::list_is_missing(index, claim, &mut self.notices);
            if !missing && claim.spec.tolerations.is_none() {
                listing.insert(number);
            }
        }
        listing
    }

    /// The cloud's answer is missing. What was written last is asked for again and again: a reading that
    /// failed half-way must not leave an address nowhere until the next audit.
    pub fn unknown(&mut self, number: usize, message: &'w str) {
        let slot = &self.slots.all[number];
        // No node, no account: what is in the way of the nodes is what a person has to know.
        if self.index.claims[slot.claim].pool.nodes.is_empty() {
            self.decisions[number].tally = Some(self.assignment.tally(slot));
        }
        self.stuck(number, Reason::CloudUnknown, message);
        if self.index.world.last_write.contains_key(&slot.address) && !slot.busy {
            self.step(number, Action::Verify, Reason::CloudUnknown);
            self.notices.wake(self.index.now.plus_seconds(1));
        }
    }

    pub fn stuck(&mut self, number: usize, reason: Reason, said: impl Into<Cow<'w, str>>) {
        let mut said = said.into();
        // A deletion must never hang without saying how to end it.
        if self.slots.all[number].released {
            said += "; set releasePolicy to Retain to let it go without the cloud";
        }
        self.decide(number, reason, said);
        self.decisions[number].degraded = true;
    }

    /// Says why no node can take an address.
    pub fn name_refusals(&mut self, number: usize) {
        let tally = self.assignment.tally(&self.slots.all[number]);
        let decision = &mut self.decisions[number];
        let silent = tally.cloud_error().is_some();
        // An account that tells nothing of its instances is no lack of nodes.
        if silent && decision.reason == Reason::WaitingForNode {
            decision.reason = Reason::CloudUnknown;
        }
        decision.degraded |= silent;
        decision.tally = Some(tally);
    }

    pub fn wake_after_failures(&mut self, number: usize) {
        let (index, slot) = (self.index, &self.slots.all[number]);
        for (failure, _) in failures_of(index.world, slot.address) {
            self.notices.wake(retry_at(failure));
        }
    }

    /// Says which failure is waited for, if one is, and wakes when the pause ends.
    pub fn backs_off(&mut self, number: usize) -> bool {
        let slot = &self.slots.all[number];
        let (index, now) = (self.index, self.index.now);
        let mut pauses: Vec<_> = failures_of(index.world, slot.address)
            .map(|(failure, _)| (retry_at(failure), failure))
            .filter(|(at, _)| *at > now)
            .collect();
        pauses.sort_by_key(|(at, failure)| (*at, failure.at));
        let Some((at, failure)) = pauses.first() else { return false };
        self.notices.wake(*at);
        let denied = failure.class == FailureClass::Denied;
        let reason = if denied { Reason::PermissionDenied } else { Reason::BackingOff };
        self.stuck(number, reason, failure.message.as_str());
        true
    }
}
