//! The world, indexed once per plan so that every later question is cheap.

use crate::parse::Spec;
use crate::select::{self, Tolerated};
use crate::{Allocation, InstanceView, Node, Pod, Reason, Time, WorkloadKey, World, marks};
use crds::{CloudProvider, IpStatus, WorkloadKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// A node and what holds for it whatever allocation asks. It is looked at once: nodes of a large cluster do
/// not fit into the processor's caches, these entries do.
#[allow(clippy::struct_excessive_bools)] // what is asked of a node, at hand
pub struct NodeEntry<'w> {
    pub name: &'w str,
    pub node: &'w Node,
    pub zone: &'w str,
    pub cloud: Option<CloudProvider>,
    pub ready: bool,
    /// It is no newcomer: one that starts is NotReady for a while, which says nothing of the others.
    pub settled: bool,
    pub tainted: bool,
    /// It has any of our marks.
    pub marked: bool,
    /// Why it can take no address at all, if it can't.
    pub unfit: Option<Reason>,
}

/// An allocation with a valid spec.
pub struct Claim<'w> {
    pub name: &'w str,
    pub object: &'w Allocation,
    pub spec: &'w Spec,
    pub tolerated: Tolerated<'w>,
    pub pool: Rc<Pool>,
    /// Why nobody can say where the pods of its workload are, if nobody can.
    pub unlisted: Option<&'w str>,
}

/// Nodes that match selector, terms, cloud, region and zones.
pub struct Pool {
    /// Allocations that select alike have the same.
    pub number: usize,
    /// In order of their names.
    pub nodes: Vec<usize>,
    /// Some of them have taints, so that tolerations matter.
    pub tainted: bool,
    /// How many of them are no newcomers, and how many of those are NotReady.
    pub settled: usize,
    pub settled_not_ready: usize,
    /// When the next newcomer is one no longer.
    pub next_settles: Option<Time>,
}

impl Claim<'_> {
    /// Whether it acts, as opposed to saying what it would do.
    pub fn enforces(&self) -> bool {
        self.object.acts()
    }

    pub fn is_daemon_set(&self) -> bool {
        self.spec.workload.as_ref().is_some_and(|workload| workload.kind == WorkloadKind::DaemonSet)
    }

    pub fn has_in_pool(&self, node: usize) -> bool {
        self.pool.nodes.binary_search(&node).is_ok()
    }
}

pub struct Index<'w> {
    pub world: &'w World,
    pub now: Time,
    pub nodes: Vec<NodeEntry<'w>>,
    /// Claims in order of seniority: acting before planning ones, older before younger.
    pub claims: Vec<Claim<'w>>,
    /// Workloads that pods are of, in order, and their pods.
    pub workloads: Vec<(&'w WorkloadKey, Vec<PodEntry<'w>>)>,
    workload_numbers: FxHashMap<&'w WorkloadKey, usize>,
    machines: Machines<'w>,
    /// What any status says of an address, in order of addresses.
    pub records: Vec<(IpAddr, &'w IpStatus)>,
    /// Pods of a workload on a node that are not Succeeded or Failed.
    live: FxHashMap<(usize, usize), usize>,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not scheduled yet.
    Waiting,
    /// On a node, and to stay.
    Bound,
    /// Told to go, or Succeeded or Failed.
    Over,
}

/// A pod and the node it is on.
#[derive(Clone, Copy)]
pub struct PodEntry<'w> {
    pub uid: &'w String,
    pub pod: &'w Pod,
    /// At hand: a look at each of twenty thousand pods is what a plan costs most.
    pub phase: Phase,
    /// Index of its node, if it is bound and the node is there. Small, since there are many.
    node: Option<u32>,
}

impl PodEntry<'_> {
    pub fn node(&self) -> Option<usize> {
        self.node.and_then(|node| node.try_into().ok())
    }
}

impl<'w> Index<'w> {
    pub fn new(world: &'w World, now: Time) -> Self {
        let (mut machines, mut pools) = (machines(world), Pools::new(world));
        let mut by_name: FxHashMap<&str, usize> = FxHashMap::default();
        by_name.reserve(world.nodes.len());
        let mut shared = Vec::new();
        // All that is asked of a node's own data, while it is in the processor's caches.
        let mut nodes: Vec<NodeEntry> = world
            .nodes
            .iter()
            .enumerate()
            .map(|(number, (name, node))| {
                pools.add(number, node);
                by_name.insert(name, number);
                let (entry, others) = entry(world, now, &mut machines, number, name, node);
                shared.extend(others.map(|_| number));
                entry
            })
            .collect();
        one_node_per_machine(world, &mut machines, &mut nodes, &shared);
        let claims = claims(world, &nodes, pools);
        let mut index = Self {
            world,
            now,
            nodes,
            claims,
            workloads: Vec::new(),
            workload_numbers: FxHashMap::default(),
            machines,
            records: records(world),
            live: FxHashMap::default(),
        };
        index.add_pods(&by_name);
        index
    }

    /// Names that pods share (see [`Pod`]) are looked up once, not once per pod.
    fn add_pods(&mut self, by_name: &FxHashMap<&str, usize>) {
        let mut workload_at: FxHashMap<*const WorkloadKey, usize> = FxHashMap::default();
        let mut node_at: FxHashMap<*const str, Option<usize>> = FxHashMap::default();
        for (uid, pod) in &self.world.pods {
            let node = pod.node.as_ref().and_then(|name| {
                *node_at.entry(Arc::as_ptr(name)).or_insert_with(|| by_name.get(&**name).copied())
            });
            let number = *workload_at.entry(Arc::as_ptr(&pod.workload)).or_insert_with(|| {
                let next = self.workloads.len();
                let number = *self.workload_numbers.entry(&pod.workload).or_insert(next);
                if number == next {
                    self.workloads.push((&pod.workload, Vec::new()));
                }
                number
            });
            let phase = match pod {
                Pod { finished: true, .. } | Pod { deleting: true, .. } => Phase::Over,
                Pod { node: None, .. } => Phase::Waiting,
                _ => Phase::Bound,
            };
            let at = node.and_then(|node| node.try_into().ok());
            self.workloads[number].1.push(PodEntry { uid, pod, phase, node: at });
            if let (Some(node), false) = (node, pod.finished) {
                *self.live.entry((number, node)).or_default() += 1;
            }
        }
    }

    pub fn node_of_instance(&self, provider_id: &str) -> Option<usize> {
        self.machines.get(provider_id).and_then(|machine| machine.node)
    }

    /// What any allocation's status says of an address.
    pub fn recorded(&self, address: IpAddr) -> impl Iterator<Item = &'w IpStatus> + '_ {
        let first = self.records.partition_point(|(other, _)| *other < address);
        self.records[first..]
            .iter()
            .take_while(move |(other, _)| *other == address)
            .map(|(_, record)| *record)
    }

    /// The pods of a workload.
    pub fn pods_of(&self, workload: &WorkloadKey) -> &[PodEntry<'w>] {
        self.workload_numbers
            .get(workload)
            .map(|number| self.workloads[*number].1.as_slice())
            .unwrap_or_default()
    }

    /// How many pods of the claim's workload are still on a node; a terminating one counts.
    pub fn live_pods(&self, claim: &Claim<'w>, node: usize) -> usize {
        let number = claim.spec.workload.as_ref().and_then(|workload| self.workload_numbers.get(workload));
        number.and_then(|number| self.live.get(&(*number, node))).copied().unwrap_or(0)
    }

    pub fn instance(&self, provider_id: &str) -> &'w InstanceView {
        self.machines.get(provider_id).map_or(&UNREAD, |machine| machine.view)
    }

    /// Why a node cannot take an address of a claim, apart from being taken.
    pub fn refusal(&self, claim: &Claim<'w>, node: usize) -> Option<Reason> {
        if claim.has_in_pool(node) {
            self.refusal_in_pool(claim, node)
        } else {
            Some(not_in_pool(claim.spec, &self.nodes[node]))
        }
    }

    /// The same for a node of the claim's pool.
    pub fn refusal_in_pool(&self, claim: &Claim<'w>, node: usize) -> Option<Reason> {
        let entry = &self.nodes[node];
        let kept_away = || entry.tainted && claim.tolerated.keeps_away(entry.node).is_some();
        entry.unfit.or_else(|| kept_away().then_some(Reason::Tainted))
    }
}

/// Only what names an instance: nothing else is ever asked for, and there may be thousands that wait.
fn records(world: &World) -> Vec<(IpAddr, &IpStatus)> {
    let all = world.allocations.values().flat_map(|allocation| &allocation.status.ips);
    let named = all.filter(|record| record.instances().next().is_some());
    let mut records: Vec<_> =
        named.filter_map(|record| Some((record.address.parse().ok()?, record))).collect();
    records.sort_by_key(|(address, _)| *address);
    records
}

/// An instance, as far as the cloud or a node tells of it.
struct Machine<'w> {
    view: &'w InstanceView,
    node: Option<usize>,
}

/// Of an instance that nobody has read.
static UNREAD: InstanceView = InstanceView::Unknown { message: String::new() };

/// Instances by provider ID.
type Machines<'w> = FxHashMap<&'w str, Machine<'w>>;

fn machines(world: &World) -> Machines<'_> {
    let mut machines = Machines::default();
    machines.reserve(world.instances.len().max(world.nodes.len()));
    let read =
        world.instances.iter().map(|(id, seen)| (id.as_str(), Machine { view: &seen.view, node: None }));
    machines.extend(read);
    machines
}

/// The node's entry, and another node of the same machine, if there is one.
fn entry<'w>(
    world: &'w World,
    now: Time,
    machines: &mut Machines<'w>,
    number: usize,
    name: &'w str,
    node: &'w Node,
) -> (NodeEntry<'w>, Option<usize>) {
    let unread = Machine { view: &UNREAD, node: None };
    let machine = machines.entry(&node.provider_id).or_insert(unread);
    let other = machine.node;
    if other.is_none() && !node.provider_id.is_empty() {
        machine.node = Some(number);
    }
    let entry = NodeEntry { unfit: unfit(world, name, node, machine.view), ..NodeEntry::new(name, node) };
    (NodeEntry { settled: settles_at(world, &entry) <= now, ..entry }, other)
}

fn settles_at(world: &World, entry: &NodeEntry<'_>) -> Time {
    entry.node.created.plus_seconds(world.newcomer_seconds)
}

/// A machine that registered again under another name leaves its old Node object behind. The one that works
/// counts; then the one that is marked or on record, so that the choice holds; then the first by name. The
/// others can hold nothing.
fn one_node_per_machine(
    world: &World,
    machines: &mut Machines<'_>,
    nodes: &mut [NodeEntry<'_>],
    shared: &[usize],
) {
    if shared.is_empty() {
        return;
    }
    let records = world.allocations.values().flat_map(|allocation| &allocation.status.ips);
    let named = |ip: &IpStatus| [ip.node.clone(), ip.operation.as_ref().and_then(|o| o.from.clone())];
    let on_record: FxHashSet<String> = records.flat_map(named).flatten().collect();
    for number in shared.iter().copied() {
        let Some(machine) = machines.get_mut(nodes[number].node.provider_id.as_str()) else { continue };
        let Some(first) = machine.node else { continue };
        let rank = |number: usize| {
            let entry = &nodes[number];
            (entry.ready && !entry.node.deleting, entry.marked, on_record.contains(entry.name))
        };
        let (counts, other) = if rank(number) > rank(first) { (number, first) } else { (first, number) };
        machine.node = Some(counts);
        nodes[other].unfit = Some(Reason::SameInstance);
    }
}

impl<'w> NodeEntry<'w> {
    /// What the node itself tells.
    fn new(name: &'w str, node: &'w Node) -> Self {
        Self {
            name,
            node,
            zone: node.labels.zone(),
            cloud: cloud_of(&node.provider_id),
            ready: node.ready,
            settled: true,
            tainted: !node.taints.is_empty(),
            marked: marks::has_marks(node),
            unfit: None,
        }
    }
}

fn unfit(world: &World, name: &str, node: &Node, instance: &InstanceView) -> Option<Reason> {
    if node.deleting {
        Some(Reason::NodeLost)
    } else if select::out_of_service(node) {
        Some(Reason::NodeOutOfService)
    } else if !node.ready {
        Some(Reason::NotReady)
    } else if select::scaled_down(node) {
        Some(Reason::NodeScaledDown)
    } else if node.unschedulable {
        Some(Reason::Cordoned)
    } else if world.own_node.as_deref() == Some(name) {
        Some(Reason::OwnNode)
    } else {
        match instance {
            InstanceView::Running { refuses } => refuses.as_ref().map(|(reason, _)| *reason),
            InstanceView::Stopped | InstanceView::NotFound => Some(Reason::InstanceStopped),
            // What its interface holds has to be read before the first write.
            InstanceView::Unknown { .. } => Some(Reason::CloudUnknown),
        }
    }
}

fn valid_specs(world: &World) -> impl Iterator<Item = (&str, &Allocation, &Spec)> {
    let allocations = world.allocations.iter();
    allocations.filter_map(|(name, object)| Some((name.as_str(), object, object.spec.as_deref().ok()?)))
}

fn claims<'w>(world: &'w World, nodes: &[NodeEntry<'w>], mut pools: Pools<'w>) -> Vec<Claim<'w>> {
    let mut claims: Vec<Claim> = valid_specs(world)
        .map(|(name, object, spec)| Claim {
            name,
            object,
            spec,
            tolerated: tolerated(world, spec),
            pool: pools.of(spec, nodes),
            unlisted: spec.workload.as_ref().and_then(|key| world.unlisted.get(key)).map(String::as_str),
        })
        .collect();
    claims.sort_by_key(|claim| (!claim.enforces(), claim.object.created, claim.name));
    claims
}

fn tolerated<'w>(world: &'w World, spec: &'w Spec) -> Tolerated<'w> {
    let of_workload = || spec.workload.as_ref().and_then(|workload| world.workloads.get(workload));
    match (&spec.tolerations, of_workload()) {
        (Some(listed), _) => Tolerated::Listed(listed),
        (None, Some(workload)) => Tolerated::Listed(&workload.tolerations),
        (None, None) => Tolerated::AllButSystem,
    }
}

/// The pools of all allocations. Allocations that select alike share one; selectors are answered from
/// lists of nodes by label, made for the labels that selectors use.
struct Pools<'w> {
    world: &'w World,
    /// The first label of every selector.
    keys: Vec<&'w str>,
    by_label: FxHashMap<(&'w str, &'w str), Vec<usize>>,
    made: FxHashMap<String, Rc<Pool>>,
}

impl<'w> Pools<'w> {
    fn new(world: &'w World) -> Self {
        let firsts = valid_specs(world).filter_map(|(.., spec)| spec.node_selector.keys().next());
        let mut keys: Vec<&str> = firsts.map(String::as_str).collect();
        keys.sort_unstable();
        keys.dedup();
        Self { world, keys, by_label: FxHashMap::default(), made: FxHashMap::default() }
    }

    /// Takes note of a node's labels; every node comes before the first pool is asked for.
    fn add(&mut self, number: usize, node: &'w Node) {
        for key in &self.keys {
            if let Some(value) = node.labels.get(key) {
                self.by_label.entry((*key, value)).or_default().push(number);
            }
        }
    }

    fn of(&mut self, spec: &Spec, all: &[NodeEntry<'w>]) -> Rc<Pool> {
        let key =
            format!("{:?}", (&spec.node_selector, &spec.terms, spec.provider, &spec.region, &spec.zones));
        if let Some(pool) = self.made.get(&key) {
            return pool.clone();
        }
        // The list by label is made by the first one.
        let fits = |i: &usize| in_place(spec, &all[*i]) && selected_but_first(spec, &all[*i]);
        let nodes: Vec<usize> = match spec.node_selector.first_key_value() {
            Some((key, value)) => {
                let listed = self.by_label.get(&(key.as_str(), value.as_str()));
                listed.into_iter().flatten().copied().filter(|i| fits(i)).collect()
            }
            None => (0..all.len()).filter(fits).collect(),
        };
        let settled = || nodes.iter().map(|i| &all[*i]).filter(|entry| entry.settled);
        let pool = Rc::new(Pool {
            number: self.made.len(),
            tainted: nodes.iter().any(|i| all[*i].tainted),
            settled: settled().count(),
            settled_not_ready: settled().filter(|entry| !entry.ready).count(),
            next_settles: nodes
                .iter()
                .map(|i| &all[*i])
                .filter(|entry| !entry.settled)
                .map(|entry| settles_at(self.world, entry))
                .min(),
            nodes,
        });
        self.made.insert(key, pool.clone());
        pool
    }
}

fn selected(spec: &Spec, entry: &NodeEntry) -> bool {
    let first = spec.node_selector.first_key_value();
    first.is_none_or(|(key, value)| entry.node.labels.get(key) == Some(value))
        && selected_but_first(spec, entry)
}

fn selected_but_first(spec: &Spec, entry: &NodeEntry) -> bool {
    spec.node_selector.iter().skip(1).all(|(key, value)| entry.node.labels.get(key) == Some(value))
        && (spec.terms.is_empty() || select::matches_any_term(&spec.terms, entry.name, entry.node))
}

fn in_place(spec: &Spec, entry: &NodeEntry) -> bool {
    entry.cloud == Some(spec.provider)
        && spec.region.as_ref().is_none_or(|region| entry.node.labels.region() == Some(region))
        && (spec.zones.is_empty() || spec.zones.iter().any(|zone| zone == entry.zone))
}

fn cloud_of(provider_id: &str) -> Option<CloudProvider> {
    match provider_id.split_once("://")?.0 {
        "gce" => Some(CloudProvider::Gcp),
        "aws" => Some(CloudProvider::Aws),
        "azure" => Some(CloudProvider::Azure),
        _ => None,
    }
}

/// Why a node is in nobody's pool.
pub fn not_in_pool(spec: &Spec, entry: &NodeEntry) -> Reason {
    if !selected(spec, entry) {
        Reason::NodeNotSelected
    } else if entry.cloud != Some(spec.provider) {
        Reason::OtherCloud
    } else {
        Reason::OutsideZones
    }
}

/// The zone in a provider ID, where the cloud writes it there.
pub fn zone_of_instance(provider_id: &str) -> &str {
    let mut parts = provider_id.split('/');
    match parts.next() {
        Some("gce:" | "aws:") => parts.nth(2).unwrap_or_default(),
        _ => "",
    }
}

/// The valid allocations that select alike, by name, and the nodes that they select: selector, cloud,
/// region and zones; whether a node can take an address is another question.
pub fn pools(world: &World) -> Vec<(Vec<&str>, Vec<&Node>)> {
    let nodes: Vec<NodeEntry> = world.nodes.iter().map(|(name, node)| NodeEntry::new(name, node)).collect();
    let mut pools = Pools::new(world);
    nodes.iter().enumerate().for_each(|(number, entry)| pools.add(number, entry.node));
    let mut grouped: BTreeMap<usize, (Vec<&str>, Vec<&Node>)> = BTreeMap::new();
    for claim in claims(world, &nodes, pools) {
        let group = grouped.entry(claim.pool.number);
        let members = || claim.pool.nodes.iter().map(|i| nodes[*i].node).collect();
        group.or_insert_with(|| (Vec::new(), members())).0.push(claim.name);
    }
    grouped.into_values().collect()
}
