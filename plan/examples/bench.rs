//! How long a plan takes, and how much it allocates: `make bench-plan`.
//!
//! The limit is 50 ms for 5,000 nodes, 1,000 addresses, 200 allocations and 20,000 pods, and a cost per
//! node that stays within 1.3 times from 50 to 5,000 nodes.
//!
//! Small worlds are planned in turn, as many of them as have 5,000 nodes together: what grows is then the
//! work, and not the share of memory that is in the processor's caches. A small cluster's controller plans
//! every few seconds and finds them cold, too. The last column is one world planned again and again.

use crds::{NodeSelectorRequirement, NodeSelectorTerm, SelectorOperator};
use plan::parse::parse;
use plan::{
    AddressView, Allocation, Failure, FailureClass, InstanceView, Node, Plan, Pod, Reason, Seen, Time,
    Workload, WorkloadKey, World, plan,
};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LARGEST: usize = 5_000;
const SIZES: [usize; 3] = [50, 500, LARGEST];
const NOW: Time = Time(1_700_000_000_000);

/// Its name, and how it differs from a world at rest.
type Situation = (&'static str, fn(&mut World));

/// The sizes of the contract, scaled down by a factor.
struct Size {
    nodes: usize,
    addresses: usize,
    allocations: usize,
    pods: usize,
}

impl Size {
    fn scaled(nodes: usize) -> Self {
        Self { nodes, addresses: (nodes / 5).max(1), allocations: (nodes / 25).max(1), pods: nodes * 4 }
    }
}

fn main() {
    println!(
        "{:<28} {:>6} {:>10} {:>10} {:>12} {:>12} {:>14}",
        "situation", "nodes", "ms a plan", "us a node", "allocations", "of linear", "us a node, hot"
    );
    let situations: [Situation; 4] = [
        ("at rest", |_| {}),
        ("first attach of everything", |world| {
            for seen in world.addresses.values_mut() {
                seen.view = AddressView::Free { token: "0".into() };
            }
        }),
        ("every tenth node NotReady", |world| {
            for node in world.nodes.values_mut().step_by(10) {
                node.ready = false;
            }
        }),
        ("no selectors, first attach", |world| {
            for allocation in world.allocations.values_mut() {
                if let Ok(spec) = &mut allocation.spec {
                    Arc::make_mut(spec).node_selector.clear();
                }
            }
            for seen in world.addresses.values_mut() {
                seen.view = AddressView::Free { token: "0".into() };
            }
        }),
    ];
    for (name, change) in situations {
        report(name, change);
    }
    troubles();
}

/// What trouble costs a plan of 100 allocations without selectors × 5,000 nodes, beside the same world
/// without it: within 2×, so that one refusing account delays nobody.
fn troubles() {
    println!(
        "\n{:<44} {:>12} {:>12} {:>8}",
        "100 allocations x 5,000 nodes", "ms without", "ms with", "ratio"
    );
    let everywhere: Situation = ("an account refuses 1,000 addresses", |world| {
        for number in 0..1_000 {
            fail(world, number, number, FailureClass::Denied);
        }
    });
    let somewhere: Situation = ("1,000 addresses failed on three nodes each", |world| {
        for number in 0..1_000 {
            (0..3).for_each(|n| fail(world, number, n, FailureClass::Permanent));
        }
    });
    let foreign: Situation = ("foreign addresses on all nodes", |world| {
        for seen in world.instances.values_mut() {
            let refuses = Some((Reason::HoldsForeignAddress, "it holds 198.51.100.7".to_owned()));
            seen.view = InstanceView::Running { refuses };
        }
    });
    let unlisted: Situation = ("no workload can be listed", |world| {
        let keys: Vec<WorkloadKey> = world.workloads.keys().cloned().collect();
        world.unlisted.extend(keys.into_iter().map(|key| (key, "403".to_owned())));
    });
    let lost: Situation = ("every other node NotReady, storm guard", |world| {
        for node in world.nodes.values_mut().step_by(2) {
            node.ready = false;
        }
    });
    let selector: Situation = ("a selector of 32 terms x 32 x 64 values", |world| {
        let requirement = |number: usize| NodeSelectorRequirement {
            key: format!("example.com/label-{}", number % 12),
            operator: SelectorOperator::NotIn,
            values: (0..64).map(|value| format!("value-{}", (number * 64 + value) % LARGEST)).collect(),
        };
        let term = |number: usize| NodeSelectorTerm {
            match_expressions: (0..32).map(|n| requirement(number * 32 + n)).collect(),
            match_fields: Vec::new(),
        };
        if let Some(Ok(spec)) = world.allocations.values_mut().next().map(|object| &mut object.spec) {
            Arc::make_mut(spec).terms = (0..32).map(term).collect();
        }
    });
    let crowd = || {
        let mut world = wide_world(false);
        for number in 0..1_000 {
            let spec = json!({
                "reservedIPs": (0..20).map(|k| crowd_address(number * 20 + k).to_string()).collect::<Vec<_>>(),
                "nodeSelector": { "pool": "nobody" }, "cloud": { "provider": "gcp" },
            });
            let mut object = allocation(0, &Size { nodes: 1, addresses: 1, allocations: 1, pods: 0 });
            object.uid = format!("crowd-{number}");
            object.spec = parse(&spec).map(Arc::new);
            world.allocations.insert(format!("crowd-{number}"), object);
        }
        for (name, status) in plan(&world, NOW).statuses {
            if let Some(allocation) = world.allocations.get_mut(&name) {
                allocation.status = status;
            }
        }
        world
    };
    println!(
        "{:<44} {:>12} {:>12.2}",
        "the same, and 1,000 allocations x 20 addresses without a node",
        "",
        measure(&[std::slice::from_ref(&crowd())])[0].as_secs_f64() * 1e3
    );
    let free = wide_world(true);
    let held = wide_world(false);
    for ((name, change), base) in [
        (everywhere, &free),
        (somewhere, &free),
        (foreign, &free),
        (unlisted, &held),
        (lost, &held),
        (selector, &held),
    ] {
        let mut with = base.clone();
        change(&mut with);
        let [without, with] = measure(&[std::slice::from_ref(base), std::slice::from_ref(&with)]);
        let (without, with) = (without.as_secs_f64() * 1e3, with.as_secs_f64() * 1e3);
        println!("{name:<44} {without:>12.2} {with:>12.2} {:>8.2}", with / without);
    }
}

/// Allocations that all see all nodes; their addresses are free, or on nodes.
fn wide_world(free: bool) -> World {
    let size = Size { nodes: LARGEST, addresses: 1_000, allocations: 100, pods: 20_000 };
    let mut world = world(&size);
    for allocation in world.allocations.values_mut() {
        if let Ok(spec) = &mut allocation.spec {
            Arc::make_mut(spec).node_selector.clear();
        }
    }
    if free {
        for seen in world.addresses.values_mut() {
            seen.view = AddressView::Free { token: "0".into() };
        }
    }
    world
}

fn fail(world: &mut World, number: usize, node: usize, class: FailureClass) {
    let failure = Failure { at: NOW, attempts: 1, class, message: "no".to_owned(), retry_after: None };
    world.failures.insert((address(number), provider_id(node)), failure);
}

#[allow(clippy::cast_precision_loss)] // node counts are small
fn report(name: &str, change: fn(&mut World)) {
    let worlds_of = |nodes: usize| -> Vec<World> {
        let mut worlds: Vec<World> = (0..LARGEST / nodes).map(|_| world(&Size::scaled(nodes))).collect();
        worlds.iter_mut().for_each(change);
        worlds
    };
    let worlds = SIZES.map(worlds_of);
    let cold = measure(&worlds.each_ref().map(Vec::as_slice));
    let hot = worlds.each_ref().map(|worlds| measure(&[&worlds[..1]])[0]);
    let per_node = |size: usize, time: Duration| time.as_secs_f64() * 1e6 / SIZES[size] as f64;
    for (size, nodes) in SIZES.into_iter().enumerate() {
        println!(
            "{name:<28} {nodes:>6} {:>10.3} {:>10.2} {:>12} {:>12.2} {:>14.2}",
            cold[size].as_secs_f64() * 1e3,
            per_node(size, cold[size]),
            allocations_of_a_plan(&worlds[size][0]),
            per_node(size, cold[size]) / per_node(0, cold[0]),
            per_node(size, hot[size]),
        );
    }
}

fn allocations_of_a_plan(world: &World) -> usize {
    let region = Region::new(ALLOCATOR);
    let made: Plan = plan(world, NOW);
    let allocations = region.change().allocations;
    std::hint::black_box(made);
    allocations
}

/// The median time of a plan for each kind of world, over many rounds. They take turns, so that whatever
/// else the machine does in between is in all of them.
fn measure<const KINDS: usize>(kinds: &[&[World]; KINDS]) -> [Duration; KINDS] {
    let round = |worlds: &[World]| {
        let start = Instant::now();
        for world in worlds {
            std::hint::black_box(plan(std::hint::black_box(world), NOW));
        }
        start.elapsed() / u32::try_from(worlds.len()).unwrap_or(1)
    };
    let mut times = [const { Vec::new() }; KINDS];
    for _ in 0..41 {
        for (kind, worlds) in kinds.iter().enumerate() {
            times[kind].push(round(worlds));
        }
    }
    times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    })
}

fn address(number: usize) -> IpAddr {
    let [.., b, c] = u32::try_from(number).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(203, 0, b, c).into()
}

fn crowd_address(number: usize) -> IpAddr {
    let [.., b, c, d] = u32::try_from(number).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(11, b, c, d).into()
}

fn provider_id(number: usize) -> String {
    format!("gce://project/us-central1-{}/node-{number:05}", ["a", "b", "c"][number % 3])
}

fn workload(number: usize) -> WorkloadKey {
    WorkloadKey {
        kind: crds::WorkloadKind::Deployment,
        namespace: "default".into(),
        name: format!("app-{number}"),
    }
}

fn world(size: &Size) -> World {
    let mut world = World::default();
    for number in 0..size.nodes {
        world.nodes.insert(format!("node-{number:05}"), node(number, size));
        let view = InstanceView::Running { refuses: None };
        world.instances.insert(provider_id(number), Seen { view, at: NOW });
    }
    for number in 0..size.allocations {
        world.workloads.insert(workload(number), Workload::default());
        world.allocations.insert(format!("allocation-{number:03}"), allocation(number, size));
    }
    for number in 0..size.addresses {
        let view = AddressView::Attached { provider_id: provider_id(number), token: "0".into() };
        world.addresses.insert(address(number), Seen { view, at: NOW });
    }
    let workloads: Vec<Arc<WorkloadKey>> =
        (0..size.allocations).map(|number| Arc::new(workload(number))).collect();
    let names: Vec<Arc<str>> = world.nodes.keys().map(|name| name.as_str().into()).collect();
    for number in 0..size.pods {
        let owner = number % size.allocations;
        // On a node of its allocation that holds an address.
        let pod = pod(number, owner, &workloads[owner], &names[number % size.addresses]);
        world.pods.insert(format!("pod-{number:06}"), pod);
    }
    // As it is after a while: statuses written, nodes marked.
    for _ in 0..2 {
        let made = plan(&world, NOW);
        for (name, status) in made.statuses {
            if let Some(allocation) = world.allocations.get_mut(&name) {
                allocation.status = status;
                allocation.has_finalizer = true;
            }
        }
        for marks in made.labels {
            if let (Some(node), Some((allocation, address))) = (world.nodes.get_mut(&marks.node), marks.marks)
            {
                node.labels.insert(crds::LABEL_READY, "true");
                node.labels.insert(crds::LABEL_ALLOCATION, &allocation);
                node.reserved_ip = Some(address.to_string());
            }
        }
    }
    world
}

fn node(number: usize, size: &Size) -> Node {
    let zone = format!("us-central1-{}", ["a", "b", "c"][number % 3]);
    let mut labels: BTreeMap<String, String> =
        (0..12).map(|n| (format!("example.com/label-{n}"), format!("value-{number}"))).collect();
    labels.insert("topology.kubernetes.io/zone".into(), zone);
    labels.insert("topology.kubernetes.io/region".into(), "us-central1".into());
    labels.insert("pool".into(), format!("pool-{}", number % size.allocations));
    Node {
        uid: format!("uid-{number}"),
        provider_id: provider_id(number),
        labels: labels.into(),
        ready: true,
        ..Node::default()
    }
}

fn allocation(number: usize, size: &Size) -> Allocation {
    let mine: Vec<String> = (0..size.addresses)
        .filter(|n| n % size.allocations == number)
        .map(|n| address(n).to_string())
        .collect();
    let spec = parse(&json!({
        "reservedIPs": mine,
        "workloadRef": { "kind": "Deployment", "name": format!("app-{number}") },
        "nodeSelector": { "pool": format!("pool-{number}") },
        "cloud": { "provider": "gcp", "region": "us-central1" },
    }));
    Allocation {
        uid: format!("allocation-{number}"),
        created: NOW,
        generation: 1,
        deleting: false,
        has_finalizer: true,
        spec: spec.map(Arc::new),
        status: std::sync::Arc::default(),
    }
}

fn pod(number: usize, owner: usize, workload: &Arc<WorkloadKey>, node: &Arc<str>) -> Pod {
    Pod {
        namespace: "default".into(),
        name: format!("app-{owner}-{number}"),
        workload: workload.clone(),
        node: Some(node.clone()),
        finished: false,
        ready: true,
        deleting: false,
        created: NOW,
        injected: Some([format!("allocation-{owner:03}")].into()),
        ours: true,
    }
}
