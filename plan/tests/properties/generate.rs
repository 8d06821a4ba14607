//! Worlds out of seeds.

use crate::random::Random;
use crate::universe::{Universe, pod};
use plan::parse::{self, Spec};
use plan::{Allocation, Labels, Node, Taint, Time, WorkloadKey, World, plan};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const ZONES: [&str; 3] = ["a", "b", "c"];
pub const START: Time = Time(1_700_000_000_000);

pub fn address(number: usize) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, u8::try_from(number + 1).unwrap_or(u8::MAX)).into()
}

pub fn workload() -> WorkloadKey {
    WorkloadKey { kind: crds::WorkloadKind::Deployment, namespace: "default".into(), name: "app".into() }
}

pub fn node(number: usize, pool: &str) -> Node {
    let zone = ZONES[number % 3];
    Node {
        uid: format!("uid-{number}"),
        provider_id: format!("gce://p/{zone}/n{number}"),
        labels: BTreeMap::from([
            ("pool".to_owned(), pool.to_owned()),
            ("topology.kubernetes.io/zone".to_owned(), zone.to_owned()),
            (format!("extra-{}", number % 2), "yes".to_owned()),
        ])
        .into(),
        ready: true,
        ..Node::default()
    }
}

pub fn spec(value: &Value) -> Arc<Spec> {
    Arc::new(parse::parse(value).expect("a valid spec"))
}

pub fn allocation(number: usize, spec: Arc<Spec>) -> Allocation {
    Allocation {
        uid: format!("allocation-{number}"),
        created: START.plus_seconds(i64::try_from(number % 3).unwrap_or(0)),
        generation: 1,
        deleting: false,
        has_finalizer: false,
        spec: Ok(spec),
        status: std::sync::Arc::default(),
    }
}

/// A selector that some nodes match: all, a pool, or one half of the nodes.
pub fn random_selector(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({}),
        1 => json!({ "extra-0": "yes" }),
        2 => json!({ "extra-1": "yes" }),
        _ => json!({ "pool": "p" }),
    }
}

/// A small world: up to six nodes, five addresses, three allocations, some pods, some of the addresses
/// attached to something already.
pub fn universe(random: &mut Random) -> Universe {
    let mut universe = Universe { now: START.plus_seconds(100), ..Universe::default() };
    let (nodes, addresses, allocations) = (1 + random.below(6), 1 + random.below(5), 1 + random.below(3));
    for number in 0..nodes {
        let pool = if random.percent(80) { "p" } else { "q" };
        let node = node(number, pool);
        universe.cloud.instances.insert(node.provider_id.clone(), true);
        universe.nodes.insert(format!("n{number}"), node);
    }
    for number in 0..addresses {
        universe.cloud.addresses.insert(address(number), None);
    }
    for number in 0..allocations {
        let name = format!("allocation-{number}");
        let spec = random_spec(random, addresses);
        universe.allocations.insert(name, allocation(number, spec));
    }
    for number in 0..addresses {
        if random.percent(40) {
            attach_somewhere(random, &mut universe, address(number));
        }
    }
    for number in 0..random.below(4) {
        let names: Vec<String> = universe.nodes.keys().cloned().collect();
        let names_of: BTreeSet<String> = universe.allocations.keys().cloned().collect();
        let created = START.plus_seconds(i64::try_from(number).unwrap_or(0));
        universe
            .pods
            .insert(format!("pod-{number}"), pod(&workload(), random.pick(&names), names_of, created));
    }
    universe
}

pub fn random_spec(random: &mut Random, addresses: usize) -> Arc<Spec> {
    let listed: BTreeSet<usize> = (0..=random.below(3)).map(|_| random.below(addresses)).collect();
    let listed: Vec<String> = listed.iter().map(|number| address(*number).to_string()).collect();
    let mut value = json!({
        "reservedIPs": listed,
        "cloud": { "provider": "gcp" },
        "nodeSelector": random_selector(random),
        "failover": { "notReadyGraceSeconds": random.below(3) * 10, "stormThresholdPercent": if random.percent(30) { 55 } else { 100 },
                      "minHoldSeconds": if random.percent(20) { 60 } else { 0 } },
        "strategy": { "maxUnavailable": random.below(3) },
        "releasePolicy": if random.percent(20) { "Retain" } else { "Detach" },
        "mode": if random.percent(10) { "Plan" } else { "Enforce" },
    });
    if random.percent(60) {
        value["workloadRef"] = json!({ "kind": "Deployment", "name": "app" });
    }
    spec(&value)
}

/// By hand: to a node that holds nothing, or to a machine outside the cluster.
pub fn attach_somewhere(random: &mut Random, universe: &mut Universe, address: IpAddr) {
    let held: BTreeSet<&String> = universe.cloud.addresses.values().flatten().collect();
    let free: Vec<String> =
        universe.cloud.instances.keys().filter(|instance| !held.contains(instance)).cloned().collect();
    let place = if random.percent(15) {
        Some(format!("gce://p/a/foreign-{address}"))
    } else {
        random.pick(&free).cloned()
    };
    if place.is_some() {
        universe.cloud.put(address, place);
    }
}

/// Rebuilds a world from its parts in another order.
pub fn order_does_not_matter(random: &mut Random) {
    let mut universe = universe(random);
    for _ in 0..random.below(4) {
        let steps = universe.observe_and_plan().steps;
        universe.memory.started = steps.into_iter().filter(|_| random.percent(30)).collect();
    }
    for node in universe.nodes.values_mut() {
        for key in ["x", "y", "z"] {
            if random.percent(20) {
                let effect = if random.percent(50) { "NoSchedule" } else { "NoExecute" };
                node.taints.push(Taint { key: key.into(), value: String::new(), effect: effect.into() });
            }
        }
    }
    let world = universe.world();
    let mut shuffled = World { nodes: BTreeMap::new(), allocations: BTreeMap::new(), ..world.clone() };
    for (name, node) in world.nodes.iter().rev() {
        let mut node = node.clone();
        node.taints.reverse();
        shuffled.nodes.insert(name.clone(), node);
    }
    for (name, allocation) in world.allocations.iter().rev() {
        let mut allocation = allocation.clone();
        std::sync::Arc::make_mut(&mut allocation.status).ips.reverse();
        shuffled.allocations.insert(name.clone(), allocation);
    }
    shuffled.in_flight.reverse();
    assert_eq!(plan(&world, universe.now), plan(&shuffled, universe.now));
}

/// Specs, statuses and nodes made of nonsense.
pub fn garbage_is_planned(random: &mut Random) {
    let mut universe = universe(random);
    for allocation in universe.allocations.values_mut() {
        allocation.spec = parse::parse(&garbage_spec(random)).map(Arc::new);
        if random.percent(70) {
            let status: crds::NetIPAllocationStatus =
                serde_json::from_value(garbage_status(random)).unwrap_or_default();
            allocation.status = status.into();
        }
        allocation.deleting = random.percent(20);
    }
    for node in universe.nodes.values_mut() {
        if random.percent(30) {
            node.provider_id =
                ["", "gce://", "aws:///", "///", "azure://x", "gce://p/a/n0"][random.below(6)].into();
            node.reserved_ip = Some(["", "foo", "203.0.113.1", "::"][random.below(4)].into());
        }
    }
    let now = Time([0, i64::MAX, i64::MIN, START.0][random.below(4)]);
    let world = universe.world();
    let made = plan(&world, now);
    assert_eq!(made, plan(&world, now), "not deterministic");
    for address in world.addresses.keys() {
        plan::explain(&world, now, *address);
    }
}

fn garbage_value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth > 2 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => json!(random.percent(50)),
        2 => json!(i64::from_ne_bytes(random.next().to_ne_bytes())),
        3 => json!(0.5),
        4 => json!(["", "x", "203.0.113.1", "Deployment", "gcp", "Retain", "In", "é\u{0}"][random.below(8)]),
        5 => json!("203.0.113.2"),
        6 => json!(30),
        7 => Value::Array((0..random.below(3)).map(|_| garbage_value(random, depth + 1)).collect()),
        _ => {
            let keys = ["name", "kind", "key", "operator", "provider", "zones", "namespace", "values"];
            let count = random.below(4);
            Value::Object(
                (0..count)
                    .map(|_| (keys[random.below(8)].to_owned(), garbage_value(random, depth + 1)))
                    .collect(),
            )
        }
    }
}

fn garbage_spec(random: &mut Random) -> Value {
    let mut spec = json!({ "reservedIPs": ["203.0.113.1", "203.0.113.2"], "cloud": { "provider": "gcp" } });
    let fields = [
        "reservedIPs",
        "cloud",
        "workloadRef",
        "deploymentRef",
        "nodeSelector",
        "nodeSelectorTerms",
        "tolerations",
        "reconcileInterval",
        "failover",
        "strategy",
        "eviction",
        "releasePolicy",
        "mode",
        "paused",
    ];
    for _ in 0..random.below(4) {
        spec[fields[random.below(fields.len())]] = garbage_value(random, 0);
    }
    if random.percent(3) { garbage_value(random, 0) } else { spec }
}

fn garbage_status(random: &mut Random) -> Value {
    let words =
        ["", "foo", "203.0.113.1", "203.0.113.2", "203.0.113.9", "gce://p/a/n0", "n0", "n7", "FirstAttach"];
    let mut word = || json!(words[random.below(words.len())]);
    let operation = json!({
        "id": word(), "cause": word(), "from": word(), "fromProviderID": word(), "to": word(), "toProviderID": word(),
        "startedAt": "1970-01-01T00:00:00Z", "epoch": -1,
    });
    let ips: Vec<Value> = (0..3)
        .map(|_| json!({ "address": word(), "state": word(), "node": word(), "providerID": word(), "reason": word(), "operation": operation }))
        .collect();
    json!({ "ips": ips, "observedGeneration": 99 })
}

/// Made at once or bit by bit, labels answer as a map would.
pub fn labels_are_a_map(random: &mut Random) {
    const KEYS: [&str; 6] = [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        crds::LABEL_READY,
        crds::LABEL_ALLOCATION,
        "pool",
        "role",
    ];
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    for key in KEYS {
        if random.percent(50) {
            map.insert(key.to_owned(), random.below(3).to_string());
        }
    }
    let mut labels = Labels::from(map.clone());
    for _ in 0..random.below(6) {
        let key = KEYS[random.below(KEYS.len())];
        if random.percent(50) {
            let value = random.below(3).to_string();
            map.insert(key.to_owned(), value.clone());
            labels.insert(key, value);
        } else {
            assert_eq!(labels.remove(key), map.remove(key), "{key}");
        }
    }
    let expected = |key: &str| map.get(key).map(String::as_str);
    for key in KEYS {
        assert_eq!(labels.get(key), expected(key), "{key}");
    }
    assert_eq!(labels.zone(), expected(KEYS[0]).unwrap_or_default());
    assert_eq!(labels.region(), expected(KEYS[1]));
    assert_eq!((labels.ready(), labels.allocation()), (expected(KEYS[2]), expected(KEYS[3])));
    assert_eq!(labels, Labels::from(map), "the same labels are the same");
}
