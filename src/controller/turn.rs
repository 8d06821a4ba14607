//! One turn of the loop: a plan, and the beginning of what it says.

use super::act::{self, Outcome, Restoration};
use super::publish::Target;
use super::{Addresses, Controller, Pulse};
use crate::leader::Command;
use plan::{Action, LastEviction, Plan, Reason, Step, WriteKind};
use std::time::Duration;
use tokio::time::Instant;
use tracing::info;

/// Nothing is asked for longer than this: gauges and pulse stay fresh.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// How long a reading that contradicts a write is left to settle before the next one.
const VERIFY_AGAIN: Duration = Duration::from_secs(1);

impl Controller {
    /// Plans and begins what is to be done; when to turn again, if nothing happens.
    pub(super) fn turn(&mut self) -> Instant {
        let now = Instant::now();
        let missing = self.state.missing();
        self.beat(missing.clone());
        if missing.is_some() {
            return now + LONGEST_SLEEP;
        }
        let leading = self.is_leading();
        if leading && std::mem::take(&mut self.state.reshaped) {
            self.accounts.reshape(&mut self.state.world);
        }
        let mut plan = self.plan();
        let wakes = [
            plan.wake_at.map(|at| self.clock.instant(at)),
            leading.then(|| self.accounts.audit(&mut self.tasks)).flatten(),
        ];
        if leading {
            self.begin(&mut plan);
            self.gauges.set(&self.state.world, &plan);
            self.accounts.count_audits(&plan.statuses);
        } else {
            self.gauges.clear();
        }
        let wakes = wakes.into_iter().chain([self.writes.next()]).flatten();
        // A moment later rather than now: what is due now was begun.
        wakes.min().unwrap_or(now + LONGEST_SLEEP).clamp(now + Duration::from_millis(5), now + LONGEST_SLEEP)
    }

    fn beat(&mut self, missing: Option<String>) {
        let leading = self.is_leading();
        self.gauges.pulse(missing.is_none(), leading);
        self.pulse.send_modify(|pulse| {
            *pulse = Pulse { missing, leading, turns: pulse.turns.wrapping_add(1) };
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
        if plan.yield_lease && self.giving_up.is_none() {
            info!("the next step takes the address from our own node: another replica has to lead");
            self.giving_up = Some(Command::Yield);
        }
        if let Some(command) = self.giving_up {
            if command == Command::Yield && self.is_idle() {
                let _ = self.tell_elector.try_send(Command::Yield);
            }
            return;
        }
        self.publish(plan);
        self.pods(plan);
        self.steps(std::mem::take(&mut plan.steps));
    }

    fn steps(&mut self, steps: Vec<Step>) {
        let mut verify = Addresses::new();
        let now = Instant::now();
        for step in steps {
            let world = &self.state.world;
            let Some((provider_id, _)) = act::concerns(&step.action) else {
                let last = self.verified.get(&step.address);
                let written = world.last_write.get(&step.address).map(|write| self.clock.instant(write.at));
                let fresh = last.is_some_and(|last| {
                    written.is_none_or(|written| *last >= written) && *last + VERIFY_AGAIN > now
                });
                if !fresh {
                    verify.insert(step.address);
                }
                continue;
            };
            let claimed = world.allocations.get(&step.allocation);
            if !claimed.is_some_and(|object| step.is_claimed_in(&object.status))
                || act::is_busy(world, step.address, provider_id)
                || self.is_being_marked(&step.action)
            {
                continue;
            }
            if let Some(provider) = self.accounts.provider_of(provider_id) {
                let provider_id = provider_id.to_owned();
                act::begin(&mut self.state.world, step.address, &provider_id);
                let (token, mailbox) = (self.token.clone(), self.writer.mailbox.clone());
                self.tasks.spawn(act::carry_out(step, provider, token, mailbox, self.clock));
            }
        }
        self.verified.extend(verify.iter().map(|address| (*address, now)));
        self.accounts.verify(&verify, &mut self.tasks);
    }

    /// Marks that are on their way to a node are not in the world yet: an address must not leave under them.
    fn is_being_marked(&self, action: &Action) -> bool {
        let Action::Detach { from, .. } = action else { return false };
        from.node.as_ref().is_some_and(|node| self.writes.is_under_way(&Target::Node(node.clone())))
    }

    pub(super) fn step_ended(&mut self, outcome: &Outcome) {
        act::end(&mut self.state.world, outcome);
        self.writer.stories.step(outcome);
        let (step, result) = (&outcome.step, &outcome.result);
        let status = if result.is_ok() { "success" } else { "error" };
        let labels = [step.allocation.as_str(), status];
        match act::concerns(&step.action) {
            Some((_, WriteKind::Attach)) => self.metrics.attaches.with_label_values(&labels).inc(),
            Some((_, WriteKind::Detach)) => self.metrics.detaches.with_label_values(&labels).inc(),
            None => {}
        }
        if let Action::Detach { from, token, .. } = &step.action
            && result.is_ok()
        {
            self.restore(Restoration {
                operation: step.operation.clone(),
                provider_id: from.provider_id.clone(),
                token: token.clone(),
            });
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
                    token: operation.token.clone()?,
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

    /// Statuses, finalizers, marks: only where they differ. A claim and the marks that go are written side
    /// by side.
    fn publish(&mut self, plan: &mut Plan) {
        for change in std::mem::take(&mut plan.finalizers) {
            let target = Target::Allocation(change.allocation.clone());
            if self.writes.begin(&target) {
                let writer = self.writer.clone();
                self.tasks.spawn(async move {
                    let write = writer.finalizer(&change.allocation, change.present);
                    writer.clone().run(target, write).await;
                });
            }
        }
        for marks in std::mem::take(&mut plan.labels) {
            let target = Target::Node(marks.node.clone());
            let Some(node) = self.state.world.nodes.get(&marks.node).cloned() else { continue };
            if self.writes.begin(&target) {
                let writer = self.writer.clone();
                self.tasks.spawn(async move {
                    let write = writer.marks(&marks, &node);
                    writer.clone().run(target, write).await;
                });
            }
        }
        self.statuses(plan);
    }

    fn statuses(&mut self, plan: &Plan) {
        for (name, status) in &plan.statuses {
            let Some(object) = self.state.world.allocations.get(name) else { continue };
            let awaited = object
                .spec
                .as_ref()
                .is_ok_and(|spec| spec.addresses.iter().any(|address| self.accounts.awaits(address)));
            let target = Target::Allocation(name.clone());
            if awaited || object.status == *status || !self.writes.begin(&target) {
                continue;
            }
            let Some(version) = self.state.version(name).map(str::to_owned) else { continue };
            let (name, before, status) = (name.clone(), object.status.clone(), status.clone());
            let writer = self.writer.clone();
            self.tasks.spawn(async move {
                let write = writer.status(&name, &version, before, status);
                writer.clone().run(target, write).await;
            });
        }
    }

    fn pods(&mut self, plan: &mut Plan) {
        for eviction in std::mem::take(&mut plan.evictions) {
            let target = Target::Pod(eviction.uid.clone());
            if !self.writes.begin(&target) {
                continue;
            }
            let world = &mut self.state.world;
            if eviction.cause != Reason::Stranded {
                let pods = world.pods.iter().filter(|(_, pod)| *pod.workload == eviction.workload);
                let pods = pods.map(|(uid, _)| uid.clone()).collect();
                let last = LastEviction { at: self.clock.now(), pods };
                world.evicted.insert(eviction.workload.clone(), last);
            }
            let writer = self.writer.clone();
            self.tasks.spawn(async move {
                let run = writer.clone();
                match eviction.cause {
                    Reason::Stranded => run.run(target, writer.delete(&eviction)).await,
                    _ => run.run(target, writer.evict(&eviction)).await,
                }
            });
        }
        for change in std::mem::take(&mut plan.daemon_sets) {
            let target = Target::Template(change.workload.clone());
            if self.writes.begin(&target) {
                let writer = self.writer.clone();
                self.tasks.spawn(async move {
                    let write = writer.template(&change);
                    writer.clone().run(target, write).await;
                });
            }
        }
    }
}
