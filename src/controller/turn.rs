//! One turn of the loop: a plan, and the beginning of what it says.

use super::act::{self, Outcome, Restoration};
use super::handover::Conduct;
use super::publish::{Target, Written};
use super::{Controller, Evicting, Pulse};
use crate::leader::Command;
use plan::{Action, LastEviction, Plan, Reason, RefusedEviction, Step, World, WriteKind};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;
use tracing::info;

/// How long a pod has to show that it was told to go, when the API server did not say so.
const LOST_ANSWER: Duration = Duration::from_secs(5);
/// Nothing is asked for longer than this: gauges and pulse stay fresh.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

impl Controller {
    /// Plans and begins what is to be done; when to turn again, if nothing happens.
    pub(super) fn turn(&mut self) -> Instant {
        let now = Instant::now();
        let missing = self.state.missing();
        self.beat(missing.clone());
        if missing.is_some() {
            return now + LONGEST_SLEEP;
        }
        self.state.world.nobody_took_the_lease = self.handover.is_alone(now);
        let leading = self.is_leading();
        if leading {
            if std::mem::take(&mut self.state.reshaped) {
                self.accounts.reshape(&mut self.state.world);
            }
            self.tidy(now);
        }
        let mut plan = self.plan();
        let (mut reads, mut gauges) = (None, None);
        if leading {
            self.begin(&mut plan);
            reads = self.accounts.read(&mut self.tasks);
            // Where messages wait, somebody may wait for what comes of them.
            gauges = self.gauges.set(&self.state.world, &plan, !self.mailbox.is_empty());
            self.accounts.count_audits(&plan.statuses);
        } else {
            self.gauges.clear();
        }
        let wakes = [plan.wake_at.map(|at| self.clock.instant(at)), reads, gauges, self.writes.next(now)];
        self.took = now.elapsed();
        // A moment later rather than now: what is due now was begun.
        let wake = wakes.into_iter().flatten().min().unwrap_or(now + LONGEST_SLEEP);
        wake.clamp(now + Duration::from_millis(5), now + LONGEST_SLEEP)
    }

    fn beat(&mut self, missing: Option<String>) {
        let (leading, outdated) = (self.is_leading(), self.state.outdated());
        self.gauges.pulse(missing.is_none() && outdated.is_none(), leading);
        self.pulse.send_modify(|pulse| {
            *pulse = Pulse { missing, outdated, leading, turns: pulse.turns.wrapping_add(1) };
        });
    }

    fn plan(&mut self) -> Plan {
        let began = Instant::now();
        let mut plan = plan::plan(&self.state.world, self.clock.now());
        self.metrics.plan_duration.with_label_values::<&str>(&[]).observe(began.elapsed().as_secs_f64());
        // A standby notices too: what waits goes on waiting when it takes over, and does not begin anew.
        self.state.world.noticed = std::mem::take(&mut plan.noticed);
        plan
    }

    fn begin(&mut self, plan: &mut Plan) {
        self.offers.clear();
        let writes = self.writes.any_under_way();
        let was_due = self.handover.is_due();
        let lease = self.settings.timings.lease;
        let conduct = self.handover.conduct(plan.yield_lease, writes, lease, Instant::now());
        if self.handover.is_due() && !was_due {
            info!("the next step takes the address from our own node: another replica has to lead");
        }
        if self.stopping || self.yielded {
            return;
        }
        match conduct {
            Conduct::GiveUp => self.yielded = self.tell_elector.try_send(Command::Yield).is_ok(),
            Conduct::Nothing => {}
            Conduct::NoSteps | Conduct::Others | Conduct::Work => {
                self.offer(plan);
                self.steps(std::mem::take(&mut plan.steps), conduct);
            }
        }
    }

    fn steps(&mut self, steps: Vec<Step>, conduct: Conduct) {
        let mut verify = BTreeMap::new();
        for step in steps {
            let world = &self.state.world;
            let Some((provider_id, _)) = act::concerns(&step.action) else {
                let written = world.last_write.get(&step.address);
                verify.insert(step.address, written.map(|write| self.clock.instant(write.at)));
                continue;
            };
            let claimed = world.allocations.get(&step.allocation);
            if !claimed.is_some_and(|object| step.is_claimed_in(&object.status))
                || act::is_busy(world, step.address, provider_id)
                || self.is_being_marked(&step.action)
            {
                continue;
            }
            let account = self.accounts.account_of(provider_id);
            let Some(account) = account.filter(|account| self.handover.lets(account, conduct)) else {
                continue;
            };
            if let Some(provider) = self.accounts.provider_of(provider_id) {
                let provider_id = provider_id.to_owned();
                act::begin(&mut self.state.world, step.address, &provider_id);
                self.handover.begun(step.address, account, Instant::now());
                let (token, mailbox) = (self.token.clone(), self.writer.mailbox.clone());
                self.tasks.spawn(act::carry_out(step, provider, token, mailbox, self.clock));
            }
        }
        self.accounts.verify(&verify);
    }

    /// Marks that are on their way to a node are not in the world yet: an address must not leave under them.
    fn is_being_marked(&self, action: &Action) -> bool {
        let Action::Detach { from, .. } = action else { return false };
        from.node.as_ref().is_some_and(|node| self.writes.is_under_way(&Target::Node(node.clone())))
    }

    pub(super) fn step_ended(&mut self, outcome: &Outcome) {
        act::end(&mut self.state.world, outcome);
        self.handover.ended(outcome.step.address);
        self.on_own_node(outcome);
        self.writer.stories.step(outcome);
        let (step, result) = (&outcome.step, &outcome.result);
        let status = if result.is_ok() { "success" } else { "error" };
        let labels = [step.allocation.as_str(), status];
        match act::concerns(&step.action) {
            Some((_, WriteKind::Attach)) => self.metrics.attaches.with_label_values(&labels).inc(),
            Some((_, WriteKind::Detach)) => self.metrics.detaches.with_label_values(&labels).inc(),
            None => {}
        }
        if result.is_ok() {
            self.restore_after(step);
        }
    }

    /// Who may need an address of its own now: an instance that ours has left, and those where an attach of it came
    /// to nothing, now that it is elsewhere.
    fn restore_after(&mut self, step: &Step) {
        let restoration = |provider_id: &str, token: Option<&String>| Restoration {
            operation: step.operation.clone(),
            provider_id: provider_id.to_owned(),
            token: token.cloned(),
        };
        let due: Vec<Restoration> = match &step.action {
            Action::Verify => Vec::new(),
            Action::Detach { from, token, .. } => vec![restoration(&from.provider_id, Some(token))],
            Action::Attach { to, .. } => {
                let world = &self.state.world;
                let failed = world.failures.keys().filter(|(address, _)| *address == step.address);
                let elsewhere = failed.map(|(_, id)| id).filter(|id| **id != to.provider_id);
                let in_use = |id: &str| world.in_flight.iter().any(|step| step.provider_id == id);
                elsewhere.filter(|id| !in_use(id)).map(|id| restoration(id, None)).collect()
            }
        };
        for restoration in due {
            self.restore(restoration);
        }
    }

    /// How a step that was to take an address from our own node ended: whether that may be done by our own hand
    /// depends on it.
    fn on_own_node(&mut self, outcome: &Outcome) {
        let world = &self.state.world;
        let Action::Detach { from, .. } = &outcome.step.action else { return };
        if from.node.is_none() || from.node != world.own_node {
            return;
        }
        let Err(failed) = &outcome.result else { return self.handover.left() };
        let failure = world.failures.get(&(outcome.step.address, failed.provider_id.clone()));
        if let Some(failure) = failure {
            let again = self.clock.instant(plan::retry_at(failure));
            self.handover.failed(again, self.settings.timings.lease);
        }
    }

    /// What a leader before us may have left half-done.
    pub(super) fn finish_restorations(&mut self) {
        let statuses = self.state.world.allocations.values().map(|object| &object.status);
        let operations = statuses.flat_map(|status| &status.ips).filter_map(|ip| ip.operation.as_ref());
        let left: Vec<Restoration> = operations
            .filter_map(|operation| {
                Some(Restoration {
                    operation: operation.id.clone(),
                    provider_id: operation.from_provider_id.clone()?,
                    token: Some(operation.token.clone()?),
                })
            })
            .collect();
        for restoration in left {
            self.restore(restoration);
        }
    }

    /// Gives an instance its own address back, where it had one.
    fn restore(&mut self, restoration: Restoration) {
        if let Some(provider) = self.accounts.provider_of(&restoration.provider_id) {
            self.tasks.spawn(act::restore(restoration, provider, self.token.clone()));
        }
    }

    /// An eviction was granted, or refused: the next plan goes by that.
    pub(super) fn eviction_ended(&mut self, uid: &str, written: &Written, refused: bool) {
        let Some(Evicting { eviction, pods, .. }) = self.evicting.remove(uid) else { return };
        let (world, at) = (&mut self.state.world, self.clock.now());
        let failed = matches!(written, Written::Failed(_));
        // An answer that was lost: the pod tells what it was, now or in a moment.
        let left = failed && world.pods.get(uid).is_none_or(|pod| pod.deleting);
        if left || matches!(written, Written::Done) {
            world.refused_evictions.remove(uid);
            if eviction.cause != Reason::Stranded {
                world.evicted.insert(eviction.workload, LastEviction { at, pods });
            }
            return;
        }
        if let (Written::Refused(message) | Written::Failed(message), true) = (written, refused) {
            let message = message.clone();
            world.refused_evictions.insert(uid.to_owned(), RefusedEviction { at, message });
        }
        if failed {
            let until = Some(Instant::now() + LOST_ANSWER);
            self.evicting.insert(uid.to_owned(), Evicting { eviction, pods, until });
        }
    }

    /// Lets go of what is too old to be relied on, and of what is remembered about things that are gone.
    fn tidy(&mut self, now: Instant) {
        if now < self.tidied + LONGEST_SLEEP {
            return;
        }
        self.tidied = now;
        self.evicting.retain(|_, evicting| evicting.until.is_none_or(|until| until > now));
        let world = &mut self.state.world;
        self.accounts.expire(world);
        let mut known: BTreeSet<IpAddr> = BTreeSet::new();
        for object in world.allocations.values() {
            known.extend(object.spec.iter().flat_map(|spec| &spec.addresses));
            known.extend(object.status.ips.iter().filter_map(|ip| ip.address.parse::<IpAddr>().ok()));
        }
        forget_gone(world, &known);
    }
}

/// What is not known any more once the lease is ours. If nobody had it since we gave it up, what failed then failed
/// a moment ago, and is not to be tried again any sooner.
pub(super) fn take_over(world: &mut World, epoch: i64, nobody_took_it: bool) {
    world.epoch = epoch;
    world.last_write.clear();
    if !nobody_took_it {
        world.failures.clear();
    }
}

/// Addresses that nobody lists or holds, and pods that are gone, are not remembered.
fn forget_gone(world: &mut World, known: &BTreeSet<IpAddr>) {
    world.failures.retain(|(address, _), _| known.contains(address));
    world.last_write.retain(|address, _| known.contains(address));
    let pods = &world.pods;
    world.refused_evictions.retain(|uid, _| pods.contains_key(uid));
    let allocations = world.allocations.values().filter_map(|object| object.spec.as_ref().ok());
    let workloads: BTreeSet<_> = allocations.filter_map(|spec| spec.workload.clone()).collect();
    world.evicted.retain(|key, _| workloads.contains(key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Failure, FailureClass, LastWrite, Time};

    /// A write of the address failed.
    fn fail(world: &mut World, address: IpAddr) {
        let (at, class, provider_id) = (Time(0), FailureClass::Conflict, "gce://p/z/n1".to_owned());
        let failure = Failure { at, attempts: 1, class, message: String::new(), retry_after: None };
        world.failures.insert((address, provider_id.clone()), failure);
        let write = LastWrite { at, kind: WriteKind::Attach, provider_id, succeeded: false };
        world.last_write.insert(address, write);
    }

    #[test]
    fn failures_are_forgotten_if_another_replica_led_meanwhile() {
        for (nobody_took_it, remembered) in [(false, 0), (true, 1)] {
            let mut world = World::default();
            fail(&mut world, IpAddr::from([203, 0, 113, 1]));
            take_over(&mut world, 7, nobody_took_it);
            assert_eq!((world.epoch, world.failures.len(), world.last_write.len()), (7, remembered, 0));
        }
    }

    #[test]
    fn what_is_gone_is_not_remembered() {
        let (here, gone) = (IpAddr::from([203, 0, 113, 1]), IpAddr::from([203, 0, 113, 2]));
        let mut world = World::default();
        fail(&mut world, here);
        fail(&mut world, gone);
        let refused = RefusedEviction { at: Time(0), message: "a budget".to_owned() };
        world.refused_evictions.insert("gone".to_owned(), refused);
        forget_gone(&mut world, &BTreeSet::from([here]));
        assert_eq!(world.failures.keys().map(|(address, _)| *address).collect::<Vec<_>>(), [here]);
        assert_eq!(world.last_write.keys().copied().collect::<Vec<_>>(), [here]);
        assert!(world.refused_evictions.is_empty());
    }
}
