//! The world, indexed once per plan so that every later question is cheap.

use crate::parse::Spec;
use crate::select::{self, Tolerated};
use crate::{Allocation, InstanceView, Node, Pod, Reason, Time, WorkloadKey, World};
use crds::{CloudProvider, Mode, WorkloadKind};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// A node and what holds for it whatever allocation asks.
pub struct NodeEntry<'w> {
    pub name: &'w str,
    pub node: &'w Node,
    pub zone: &'w str,
    /// Why it can take no address at all, if it can't.
    pub unfit: Option<Reason>,
}

/// An allocation with a valid spec.
pub struct Claim<'w> {
    pub name: &'w str,
    pub object: &'w Allocation,
    pub spec: &'w Spec,
    pub tolerated: Tolerated<'w>,
    /// Nodes that match selector, terms, cloud, region and zones, in order of their names.
    pub pool: Rc<Vec<usize>>,
}

impl Claim<'_> {
    /// Whether it acts, as opposed to saying what it would do.
    pub fn enforces(&self) -> bool {
        self.spec.mode == Mode::Enforce
    }

    pub fn is_daemon_set(&self) -> bool {
        self.spec
            .workload
            .as_ref()
            .is_some_and(|workload| workload.kind == WorkloadKind::DaemonSet)
    }

    pub fn has_in_pool(&self, node: usize) -> bool {
        self.pool.binary_search(&node).is_ok()
    }
}

pub struct Index<'w> {
    pub world: &'w World,
    pub now: Time,
    pub nodes: Vec<NodeEntry<'w>>,
    /// Claims in order of seniority: acting before planning ones, older before younger.
    pub claims: Vec<Claim<'w>>,
    pub pods_of: BTreeMap<&'w WorkloadKey, Vec<(&'w str, &'w Pod)>>,
    by_name: HashMap<&'w str, usize>,
    by_provider_id: HashMap<&'w str, usize>,
    /// Pods of a workload on a node that are not Succeeded or Failed.
    live: HashMap<(&'w WorkloadKey, usize), usize>,
}

impl<'w> Index<'w> {
    pub fn new(world: &'w World, now: Time) -> Self {
        let nodes: Vec<NodeEntry> = world
            .nodes
            .iter()
            .map(|(name, node)| entry(world, name, node))
            .collect();
        let by_name = nodes.iter().enumerate().map(|(i, node)| (node.name, i)).collect();
        // Two nodes with one provider ID cannot be; should they, the first by name counts.
        let by_provider_id = nodes
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, entry)| !entry.node.provider_id.is_empty())
            .map(|(i, entry)| (entry.node.provider_id.as_str(), i))
            .collect();
        let claims = claims(world, &nodes);
        let mut index = Self {
            world,
            now,
            nodes,
            claims,
            pods_of: BTreeMap::new(),
            by_name,
            by_provider_id,
            live: HashMap::new(),
        };
        index.add_pods();
        index
    }

    fn add_pods(&mut self) {
        for (uid, pod) in &self.world.pods {
            self.pods_of.entry(&pod.workload).or_default().push((uid, pod));
            if let Some(node) = pod.node.as_deref().and_then(|name| self.node_named(name))
                && !pod.finished
            {
                *self.live.entry((&pod.workload, node)).or_default() += 1;
            }
        }
    }

    pub fn node_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn node_of_instance(&self, provider_id: &str) -> Option<usize> {
        self.by_provider_id.get(provider_id).copied()
    }

    /// How many pods of the claim's workload are still on a node; a terminating one counts.
    pub fn live_pods(&self, claim: &Claim<'w>, node: usize) -> usize {
        let workload = claim.spec.workload.as_ref();
        workload
            .and_then(|workload| self.live.get(&(workload, node)))
            .copied()
            .unwrap_or(0)
    }

    pub fn instance(&self, provider_id: &str) -> &'w InstanceView {
        self.world
            .instances
            .get(provider_id)
            .map_or(&InstanceView::Unknown, |seen| &seen.view)
    }

    /// Why a node cannot take an address of a claim, apart from being taken.
    pub fn refusal(&self, claim: &Claim<'w>, node: usize) -> Option<Reason> {
        if !claim.has_in_pool(node) {
            return Some(not_in_pool(claim.spec, &self.nodes[node]));
        }
        let entry = &self.nodes[node];
        entry
            .unfit
            .or_else(|| claim.tolerated.keeps_away(entry.node).map(|_| Reason::Tainted))
    }
}

fn entry<'w>(world: &'w World, name: &'w str, node: &'w Node) -> NodeEntry<'w> {
    let zone = node.labels.get(ZONE).map_or("", String::as_str);
    NodeEntry {
        name,
        node,
        zone,
        unfit: unfit(world, name, node),
    }
}

fn unfit(world: &World, name: &str, node: &Node) -> Option<Reason> {
    let instance = world.instances.get(&node.provider_id).map(|seen| &seen.view);
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
            Some(InstanceView::Running { refuses }) => refuses.as_ref().map(|(reason, _)| *reason),
            Some(InstanceView::Stopped | InstanceView::NotFound) => Some(Reason::InstanceStopped),
            // What its interface holds has to be read before the first write.
            Some(InstanceView::Unknown) | None => Some(Reason::CloudUnknown),
        }
    }
}

fn claims<'w>(world: &'w World, nodes: &[NodeEntry<'w>]) -> Vec<Claim<'w>> {
    let valid = world.allocations.iter().filter_map(|(name, object)| {
        let spec = object.spec.as_ref().ok()?;
        Some((name.as_str(), object, spec.as_ref()))
    });
    let mut pools = Pools::new(nodes, valid.clone().map(|(_, _, spec)| spec));
    let mut claims: Vec<Claim> = valid
        .map(|(name, object, spec)| Claim {
            name,
            object,
            spec,
            tolerated: tolerated(world, spec),
            pool: pools.of(spec),
        })
        .collect();
    claims.sort_by_key(|claim| (!claim.enforces(), claim.object.created, claim.name));
    claims
}

fn tolerated<'w>(world: &'w World, spec: &'w Spec) -> Tolerated<'w> {
    let of_workload = || {
        spec.workload
            .as_ref()
            .and_then(|workload| world.workloads.get(workload))
    };
    match (&spec.tolerations, of_workload()) {
        (Some(listed), _) => Tolerated::Listed(listed),
        (None, Some(workload)) => Tolerated::Listed(&workload.tolerations),
        (None, None) => Tolerated::AllButSystem,
    }
}

/// The pools of all allocations. Allocations that select alike share one; selectors are answered from
/// lists of nodes by label, made for the labels that selectors use.
struct Pools<'n, 'w> {
    nodes: &'n [NodeEntry<'w>],
    by_label: HashMap<(&'w str, &'w str), Vec<usize>>,
    made: HashMap<String, Rc<Vec<usize>>>,
}

impl<'n, 'w> Pools<'n, 'w> {
    fn new(nodes: &'n [NodeEntry<'w>], specs: impl Iterator<Item = &'w Spec>) -> Self {
        let mut keys: Vec<&str> = specs
            .filter_map(|spec| spec.node_selector.keys().next().map(String::as_str))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let mut by_label: HashMap<_, Vec<usize>> = HashMap::new();
        for (i, entry) in nodes.iter().enumerate() {
            for key in &keys {
                if let Some((key, value)) = entry.node.labels.get_key_value(*key) {
                    by_label
                        .entry((key.as_str(), value.as_str()))
                        .or_default()
                        .push(i);
                }
            }
        }
        Self {
            nodes,
            by_label,
            made: HashMap::new(),
        }
    }

    fn of(&mut self, spec: &Spec) -> Rc<Vec<usize>> {
        let key = format!(
            "{:?}",
            (
                &spec.node_selector,
                &spec.terms,
                spec.provider,
                &spec.region,
                &spec.zones
            )
        );
        if let Some(pool) = self.made.get(&key) {
            return pool.clone();
        }
        let fits = |i: &usize| selected(spec, &self.nodes[*i]) && in_place(spec, &self.nodes[*i]);
        let pool: Vec<usize> = match spec.node_selector.first_key_value() {
            Some((key, value)) => {
                let listed = self.by_label.get(&(key.as_str(), value.as_str()));
                listed
                    .into_iter()
                    .flatten()
                    .copied()
                    .filter(|i| fits(i))
                    .collect()
            }
            None => (0..self.nodes.len()).filter(fits).collect(),
        };
        let pool = Rc::new(pool);
        self.made.insert(key, pool.clone());
        pool
    }
}

fn selected(spec: &Spec, entry: &NodeEntry) -> bool {
    spec.node_selector
        .iter()
        .all(|(key, value)| entry.node.labels.get(key) == Some(value))
        && (spec.terms.is_empty() || select::matches_any_term(&spec.terms, entry.name, entry.node))
}

fn in_place(spec: &Spec, entry: &NodeEntry) -> bool {
    of_cloud(spec.provider, &entry.node.provider_id)
        && spec
            .region
            .as_ref()
            .is_none_or(|region| entry.node.labels.get(REGION) == Some(region))
        && (spec.zones.is_empty() || spec.zones.iter().any(|zone| zone == entry.zone))
}

fn of_cloud(provider: CloudProvider, provider_id: &str) -> bool {
    let scheme = match provider {
        CloudProvider::Gcp => "gce://",
        CloudProvider::Aws => "aws://",
        CloudProvider::Azure => "azure://",
    };
    provider_id.starts_with(scheme)
}

/// Why a node is in nobody's pool.
pub fn not_in_pool(spec: &Spec, entry: &NodeEntry) -> Reason {
    if !selected(spec, entry) {
        Reason::NodeNotSelected
    } else if !of_cloud(spec.provider, &entry.node.provider_id) {
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
