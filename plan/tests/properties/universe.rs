//! The truth: a cluster and a cloud, and a controller process that sees it through its own memory.

use crate::cloud::{Cloud, Refusal};
use crate::generate::workload;
use crate::random::Random;
use plan::parse::Spec;
use plan::{
    Action, AddressView, Allocation, Failure, FailureClass, InFlight, InstanceView, LastEviction, LastWrite,
    Node, Notice, Plan, Pod, Seen, Step, Time, WorkloadKey, World, WriteKind, plan,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What the process knows and forgets when it dies.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub last_write: BTreeMap<IpAddr, LastWrite>,
    pub failures: BTreeMap<(IpAddr, String), Failure>,
    pub evicted: BTreeMap<WorkloadKey, LastEviction>,
    pub noticed: BTreeMap<Notice, Time>,
    pub started: Vec<Step>,
}

#[derive(Clone, Debug, Default)]
pub struct Universe {
    pub now: Time,
    pub allocations: BTreeMap<String, Allocation>,
    pub nodes: BTreeMap<String, Node>,
    pub pods: BTreeMap<String, Pod>,
    pub cloud: Cloud,
    pub memory: Memory,
    /// The workload cannot be listed.
    pub unlisted: bool,
    /// Addresses whose cloud does not answer.
    pub silent: BTreeSet<IpAddr>,
    /// Addresses whose readings lag behind: what they still show, and until when.
    pub lagging: BTreeMap<IpAddr, (AddressView, Time)>,
    pub epoch: i64,
    /// Calls that take a while, and when they land; a process that dies does not take them back.
    pub wire: Vec<(Step, Time)>,
    /// Where a living process has seen its call put an address, while nobody else touched it.
    pub put_by_us: BTreeMap<IpAddr, String>,
}

/// How a write ends in a bad hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Luck {
    Good,
    /// Done, but nobody hears of it.
    ReplyLost,
    /// Done, but for some seconds readings show the state before.
    Lags,
    /// Done later: until then it is under way, and other things happen.
    Slow,
    /// Not done.
    Failed(FailureClass),
    /// The process dies before the call.
    CrashBefore,
    /// The process dies after the call.
    CrashAfter,
}

impl Universe {
    pub fn world(&self) -> World {
        World {
            allocations: self.allocations.clone(),
            nodes: self.nodes.clone(),
            pods: if self.unlisted { BTreeMap::new() } else { self.pods.clone() },
            unlisted: self.unlisted.then(|| (workload(), "403".to_owned())).into_iter().collect(),
            addresses: self.cloud.addresses.keys().map(|a| (*a, self.seen(*a))).collect(),
            instances: self
                .nodes
                .values()
                .map(|node| (node.provider_id.clone(), self.instance(node)))
                .collect(),
            in_flight: self.memory.started.iter().map(in_flight).collect(),
            last_write: self.memory.last_write.clone(),
            failures: self.memory.failures.clone(),
            evicted: self.memory.evicted.clone(),
            noticed: self.memory.noticed.clone(),
            nobody_took_the_lease: true,
            epoch: self.epoch,
            ..World::default()
        }
    }

    fn seen(&self, address: IpAddr) -> Seen<AddressView> {
        if let Some((view, until)) = self.lagging.get(&address)
            && self.now < *until
        {
            return Seen { view: view.clone(), at: self.now };
        }
        Seen { view: self.truth(address), at: self.now }
    }

    fn truth(&self, address: IpAddr) -> AddressView {
        match self.cloud.addresses.get(&address) {
            _ if self.silent.contains(&address) => AddressView::Unknown { message: "no answer".into() },
            None => AddressView::NotFound,
            Some(None) => AddressView::Free { token: self.cloud.token(address) },
            Some(Some(on)) => {
                AddressView::Attached { provider_id: on.clone(), token: self.cloud.token(address) }
            }
        }
    }

    fn instance(&self, node: &Node) -> Seen<InstanceView> {
        let view = match self.cloud.instances.get(&node.provider_id) {
            Some(true) => InstanceView::Running { refuses: None },
            Some(false) => InstanceView::Stopped,
            None => InstanceView::NotFound,
        };
        Seen { view, at: self.now }
    }

    /// Plans and writes down what a shell writes before it acts. Returns the steps.
    pub fn observe_and_plan(&mut self) -> Plan {
        let world = self.world();
        let plan = plan(&world, self.now);
        check_plan(&world, &plan);
        self.memory.noticed.clone_from(&plan.noticed);
        self.publish(&plan);
        plan
    }

    fn publish(&mut self, plan: &Plan) {
        for (name, status) in &plan.statuses {
            if let Some(allocation) = self.allocations.get_mut(name) {
                allocation.status.clone_from(status);
            }
        }
        for change in &plan.finalizers {
            if let Some(allocation) = self.allocations.get_mut(&change.allocation) {
                allocation.has_finalizer = change.present;
            }
        }
        self.allocations.retain(|_, allocation| !allocation.deleting || allocation.has_finalizer);
        for marks in &plan.labels {
            let Some(node) = self.nodes.get_mut(&marks.node).filter(|node| node.uid == marks.uid) else {
                continue;
            };
            node.labels.remove(crds::LABEL_READY);
            node.labels.remove(crds::LABEL_ALLOCATION);
            node.reserved_ip = None;
            if let Some((allocation, address)) = &marks.marks {
                node.labels.insert(crds::LABEL_READY, "true");
                node.labels.insert(crds::LABEL_ALLOCATION, allocation);
                node.reserved_ip = Some(address.to_string());
            }
        }
        for eviction in &plan.evictions {
            let pods = self.pods.iter().filter(|(_, pod)| *pod.workload == eviction.workload);
            let pods = pods.map(|(uid, _)| uid.clone()).collect();
            self.memory.evicted.insert(eviction.workload.clone(), LastEviction { at: self.now, pods });
            self.pods.remove(&eviction.uid);
        }
    }

    /// Carries out a step. True: the process died.
    pub fn act(&mut self, step: &Step, luck: Luck) -> bool {
        let (kind, instance) = match &step.action {
            Action::Verify => return false,
            Action::Attach { to, .. } => (WriteKind::Attach, to.provider_id.clone()),
            Action::Detach { from, .. } => (WriteKind::Detach, from.provider_id.clone()),
        };
        if luck == Luck::CrashBefore {
            self.memory = Memory::default();
            return true;
        }
        self.now = self.now.plus_millis(50);
        if luck == Luck::Slow {
            self.memory.started.push(step.clone());
            self.wire.push((step.clone(), self.now.plus_seconds(15)));
            return false;
        }
        let outcome = match luck {
            Luck::Failed(class) => Err(class),
            _ => self.call_and_lag(luck, step, &instance).map_err(class_of),
        };
        match luck {
            Luck::CrashAfter => {
                self.memory = Memory::default();
                return true;
            }
            Luck::ReplyLost => self.remember(step.address, kind, instance, Err(FailureClass::Transient)),
            _ => self.remember(step.address, kind, instance, outcome),
        }
        self.now = self.now.plus_millis(50);
        false
    }

    /// Calls that were on the wire long enough have their effect; who made them hears of it if he lives.
    pub fn land(&mut self, everything: bool) {
        let (due, waiting) =
            std::mem::take(&mut self.wire).into_iter().partition(|(_, at)| everything || *at <= self.now);
        self.wire = waiting;
        let due: Vec<(Step, Time)> = due;
        for (step, _) in due {
            let (kind, instance) = match &step.action {
                Action::Verify => continue,
                Action::Attach { to, .. } => (WriteKind::Attach, to.provider_id.clone()),
                Action::Detach { from, .. } => (WriteKind::Detach, from.provider_id.clone()),
            };
            let outcome = self.call(&step, &instance).map_err(class_of);
            let Some(known) = self.memory.started.iter().position(|other| *other == step) else { continue };
            self.memory.started.remove(known);
            if outcome.is_ok() && kind == WriteKind::Attach {
                self.put_by_us.insert(step.address, instance.clone());
            }
            self.remember(step.address, kind, instance, outcome);
            self.now = self.now.plus_millis(50);
        }
    }

    /// Somebody else puts an address somewhere, or takes it off.
    pub fn meddle(&mut self, address: IpAddr, on: Option<String>) {
        self.put_by_us.remove(&address);
        self.cloud.put(address, on);
    }

    fn call_and_lag(&mut self, luck: Luck, step: &Step, instance: &str) -> Result<(), Refusal> {
        let before = self.truth(step.address);
        let outcome = self.call(step, instance);
        if luck == Luck::Lags {
            self.lagging.insert(step.address, (before, self.now.plus_seconds(5)));
        }
        outcome
    }

    /// The call itself; a stale caller has only its token.
    pub fn call(&mut self, step: &Step, instance: &str) -> Result<(), Refusal> {
        match &step.action {
            Action::Verify => Ok(()),
            Action::Attach { token, .. } => self.cloud.attach(step.address, instance, token),
            Action::Detach { token, .. } => self.cloud.detach(step.address, instance, token),
        }
    }

    fn remember(
        &mut self,
        address: IpAddr,
        kind: WriteKind,
        instance: String,
        outcome: Result<(), FailureClass>,
    ) {
        let succeeded = outcome.is_ok();
        let key = (address, instance.clone());
        match outcome {
            Ok(()) => drop(self.memory.failures.remove(&key)),
            Err(class) => {
                let attempts = self.memory.failures.get(&key).map_or(0, |failure| failure.attempts) + 1;
                let failure =
                    Failure { at: self.now, attempts, class, message: "no".into(), retry_after: None };
                self.memory.failures.insert(key, failure);
            }
        }
        self.memory
            .last_write
            .insert(address, LastWrite { at: self.now, kind, provider_id: instance, succeeded });
    }

    /// Lets pods that were evicted or drained come back where they may run.
    pub fn schedule_pods(&mut self, random: &mut Random, workload: &WorkloadKey, names: &BTreeSet<String>) {
        let home: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.ready && !node.unschedulable && node.labels.ready().is_some())
            .map(|(name, _)| name.clone())
            .collect();
        if let Some(node) = random.pick(&home) {
            let number = self.now.0;
            self.pods.insert(format!("pod-{number}"), pod(workload, Some(node), names.clone(), self.now));
        }
    }
}

fn class_of(refusal: Refusal) -> FailureClass {
    match refusal {
        Refusal::Conflict => FailureClass::Conflict,
        Refusal::NotFound => FailureClass::Permanent,
    }
}

fn in_flight(step: &Step) -> InFlight {
    let provider_id = match &step.action {
        Action::Verify => String::new(),
        Action::Attach { to, .. } => to.provider_id.clone(),
        Action::Detach { from, .. } => from.provider_id.clone(),
    };
    InFlight { address: step.address, provider_id }
}

pub fn pod(workload: &WorkloadKey, node: Option<&String>, injected: BTreeSet<String>, created: Time) -> Pod {
    Pod {
        namespace: workload.namespace.clone(),
        name: format!("{}-{}", workload.name, created.0),
        workload: Arc::new(workload.clone()),
        node: node.map(|name| name.as_str().into()),
        finished: false,
        ready: node.is_some(),
        deleting: false,
        created,
        injected: Some(injected),
        ours: true,
    }
}

/// What must hold for every plan, judged by the world that it was made from.
fn check_plan(world: &World, plan: &Plan) {
    let mut touched = BTreeSet::new();
    for step in &plan.steps {
        let allocation = &world.allocations[&step.allocation];
        let recorded = allocation.status.ips.iter().any(|ip| ip.address == step.address.to_string());
        let spec: Option<&Arc<Spec>> = allocation.spec.as_ref().ok();
        assert!(
            spec.is_some_and(|spec| spec.addresses.contains(&step.address)) || recorded,
            "not ours: {step:?}"
        );
        if step.action == Action::Verify {
            continue;
        }
        assert!(step.is_claimed_in(&plan.statuses[&step.allocation]), "not in the status: {step:?}");
        let view = &world.addresses[&step.address].view;
        assert!(!matches!(view, AddressView::Unknown { .. }), "a write while nothing is known: {step:?}");
        assert!(!world.in_flight.iter().any(|other| other.address == step.address), "two at once: {step:?}");
        assert!(touched.insert(step.address.to_string()), "two steps for one address: {step:?}");
        assert!(touched.insert(in_flight(step).provider_id), "two steps for one instance: {step:?}");
        check_step(world, step, view);
    }
    let operations =
        plan.statuses.values().flat_map(|status| &status.ips).filter_map(|ip| ip.operation.as_ref());
    for operation in operations {
        let named = operation.from_provider_id.is_some() || operation.to_provider_id.is_some();
        assert!(named, "from nowhere to nowhere: {operation:?}");
    }
    for marks in &plan.labels {
        if let Some((_, address)) = &marks.marks {
            let node = &world.nodes[&marks.node];
            let on = matches!(&world.addresses[address].view, AddressView::Attached { provider_id, .. } if *provider_id == node.provider_id);
            assert!(on, "marked without its address: {marks:?}");
        }
    }
}

fn check_step(world: &World, step: &Step, view: &AddressView) {
    match (&step.action, view) {
        (Action::Attach { to, .. }, AddressView::Free { .. }) => {
            let node = to.node.as_ref().and_then(|name| world.nodes.get(name)).expect("attach to a node");
            assert!(node.ready && !node.deleting, "attach to a node in trouble: {step:?}");
            let held = world.addresses.values().any(|seen| {
                matches!(&seen.view, AddressView::Attached { provider_id, .. } if *provider_id == to.provider_id)
            });
            assert!(!held, "attach to a node that holds one: {step:?}");
        }
        (Action::Detach { from, .. }, AddressView::Attached { provider_id, .. }) => {
            assert_eq!(&from.provider_id, provider_id, "detach from elsewhere: {step:?}");
            let node = from.node.as_ref().and_then(|name| world.nodes.get(name));
            if let Some(node) = node.filter(|node| healthy(world, node)) {
                check_detach_from_healthy(world, step, from.node.as_deref().unwrap_or_default(), node);
            }
        }
        _ => panic!("a step that contradicts the reading: {step:?} {view:?}"),
    }
}

fn healthy(world: &World, node: &Node) -> bool {
    let running = matches!(
        world.instances.get(&node.provider_id).map(|seen| &seen.view),
        Some(InstanceView::Running { .. })
    );
    node.ready && !node.deleting && running && node.taints.is_empty()
}

/// A healthy node loses its address only marks first, and not while a drain waits for live pods.
fn check_detach_from_healthy(world: &World, step: &Step, name: &str, node: &Node) {
    assert!(node.labels.ready().is_none(), "detached before the label was off: {step:?}");
    let allocation = &world.allocations[&step.allocation];
    let Ok(spec) = &allocation.spec else { return };
    let listed = spec.addresses.contains(&step.address) && !allocation.deleting;
    let live = world.pods.values().any(|pod| {
        Some(&*pod.workload) == spec.workload.as_ref() && pod.node.as_deref() == Some(name) && !pod.finished
    });
    let selected = spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value.as_str()));
    let begun = allocation
        .status
        .ips
        .iter()
        .any(|ip| ip.address == step.address.to_string() && ip.operation.is_some());
    let second = world
        .addresses
        .iter()
        .filter(|(_, seen)| matches!(&seen.view, AddressView::Attached { provider_id, .. } if *provider_id == node.provider_id))
        .count()
        > 1;
    if listed && selected && !second && spec.failover.drain_timeout_seconds == 0 {
        assert!(node.unschedulable, "taken from a node that is fine: {step:?}");
        assert!(!live || begun, "taken from a cordoned node with live pods: {step:?}");
        let unlisted = spec.workload.as_ref().is_some_and(|key| world.unlisted.contains_key(key));
        assert!(!unlisted || begun, "taken by choice while nobody knows the pods: {step:?}");
    }
    if let Action::Detach { target, .. } = &step.action {
        assert!(target.is_some() || !listed, "detached with nowhere to go: {step:?}");
    }
}
