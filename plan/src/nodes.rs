//! Nodes and the machines that they are, as the planner looks at them.

use crate::{InstanceView, Node, Reason, Time, World, marks, select};
use crds::{CloudProvider, IpStatus};
use rustc_hash::{FxHashMap, FxHashSet};

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

/// An instance, as far as the cloud or a node tells of it.
pub struct Machine<'w> {
    pub view: &'w InstanceView,
    pub node: Option<usize>,
}

/// Of an instance that nobody has read.
pub static UNREAD: InstanceView = InstanceView::Unknown { message: String::new() };

/// Instances by provider ID.
pub type Machines<'w> = FxHashMap<&'w str, Machine<'w>>;

pub fn machines(world: &World) -> Machines<'_> {
    let mut machines = Machines::default();
    machines.reserve(world.instances.len().max(world.nodes.len()));
    let read =
        world.instances.iter().map(|(id, seen)| (id.as_str(), Machine { view: &seen.view, node: None }));
    machines.extend(read);
    machines
}

/// The node's entry, and another node of the same machine, if there is one.
pub fn entry<'w>(
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

pub fn settles_at(world: &World, entry: &NodeEntry<'_>) -> Time {
    entry.node.created.plus_seconds(world.newcomer_seconds)
}

/// A machine that registered again under another name leaves its old Node object behind. The one that works
/// counts; then the one that is marked or on record, so that the choice holds; then the first by name. The
/// others can hold nothing.
pub fn one_node_per_machine(
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
    pub fn new(name: &'w str, node: &'w Node) -> Self {
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

fn cloud_of(provider_id: &str) -> Option<CloudProvider> {
    match provider_id.split_once("://")?.0 {
        "gce" => Some(CloudProvider::Gcp),
        "aws" => Some(CloudProvider::Aws),
        "azure" => Some(CloudProvider::Azure),
        _ => None,
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
