//! The world, indexed once per plan so that every later question is cheap.

use crate::nodes::{Machines, NodeEntry, UNREAD, entry, machines, one_node_per_machine};
use crate::parse::Spec;
use crate::pools::{Pool, Pools, not_in_pool};
use crate::select::Tolerated;
use crate::{Allocation, InstanceView, Node, Pod, Reason, Time, WorkloadKey, World};
use crds::{IpStatus, WorkloadKind};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

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
                pools.add(number, name, node);
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
            Some(not_in_pool(claim.spec, &claim.pool, node, &self.nodes[node]))
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

/// The valid allocations that select alike, by name, and the nodes that they select: selector, cloud,
/// region and zones; whether a node can take an address is another question.
pub fn pools(world: &World) -> Vec<(Vec<&str>, Vec<&Node>)> {
    let nodes: Vec<NodeEntry> = world.nodes.iter().map(|(name, node)| NodeEntry::new(name, node)).collect();
    let mut pools = Pools::new(world);
    nodes.iter().enumerate().for_each(|(number, entry)| pools.add(number, entry.name, entry.node));
    let mut grouped: BTreeMap<usize, (Vec<&str>, Vec<&Node>)> = BTreeMap::new();
    for claim in claims(world, &nodes, pools) {
        let group = grouped.entry(claim.pool.number);
        let members = || claim.pool.nodes.iter().map(|i| nodes[*i].node).collect();
        group.or_insert_with(|| (Vec::new(), members())).0.push(claim.name);
    }
    grouped.into_values().collect()
}
