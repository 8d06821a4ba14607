//! The number of moves against an exhaustive solver that knows nothing of how the planner works.

use crate::generate::{self, START, address, allocation, node, spec};
use crate::history::{owner, picture};
use crate::random::Random;
use crate::universe::{Luck, Universe};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub fn run(random: &mut Random) {
    let mut universe = quiet_universe(random);
    let most = most_placements(&universe);
    let before = universe.cloud.addresses.clone();
    for _ in 0..60 {
        let plan = universe.observe_and_plan();
        for step in &plan.steps {
            universe.act(step, Luck::Good);
        }
        if plan.steps.is_empty()
            && plan.labels.is_empty()
            && plan.finalizers.is_empty()
            && plan.wake_at.is_none()
        {
            break;
        }
        universe.now =
            plan.wake_at.filter(|_| plan.steps.is_empty()).unwrap_or(universe.now.plus_millis(500));
    }
    let left = before
        .iter()
        .filter(|(address, on)| on.is_some() && universe.cloud.addresses[address] != **on)
        .count();
    assert_eq!(universe.cloud.attaches, most, "attaches\nbefore {before:?}\n{}", picture(&universe));
    assert_eq!(universe.cloud.detaches, left, "every address that moved moved once");
}

/// Nodes that are fine, cordoned, NotReady or gone; addresses that are free or on one of them.
fn quiet_universe(random: &mut Random) -> Universe {
    let mut universe = Universe { now: START.plus_seconds(100), ..Universe::default() };
    for number in 0..=random.below(5) {
        let mut node = node(number, "p");
        match random.below(6) {
            0 => node.unschedulable = true,
            1 => node.ready = false,
            _ => {}
        }
        universe.cloud.instances.insert(node.provider_id.clone(), true);
        universe.nodes.insert(format!("n{number}"), node);
    }
    let addresses = 1 + random.below(5);
    for number in 0..addresses {
        universe.cloud.addresses.insert(address(number), None);
    }
    for number in 0..=random.below(2) {
        let mine: Vec<String> =
            (0..addresses).filter(|n| n % 3 == number).map(|n| address(n).to_string()).collect();
        if mine.is_empty() {
            continue;
        }
        let selector = generate::random_selector(random);
        let value = json!({ "reservedIPs": mine, "cloud": { "provider": "gcp" }, "nodeSelector": selector,
                            // With a grace the planner would have to foresee who loses a node next.
                            "failover": { "stormThresholdPercent": 100, "notReadyGraceSeconds": 0 } });
        universe.allocations.insert(format!("allocation-{number}"), allocation(number, spec(&value)));
    }
    place_some(random, &mut universe);
    universe
}

/// Attaches some addresses to nodes that their allocation selects, one each.
fn place_some(random: &mut Random, universe: &mut Universe) {
    let addresses: Vec<IpAddr> = universe.cloud.addresses.keys().copied().collect();
    for address in addresses {
        let free: Vec<String> = universe
            .nodes
            .values()
            .filter(|node| selects(universe, address, &node.labels))
            .map(|node| node.provider_id.clone())
            .filter(|instance| !universe.cloud.addresses.values().flatten().any(|on| on == instance))
            .collect();
        if let Some(instance) = random.pick(&free)
            && random.percent(60)
        {
            universe.cloud.addresses.insert(address, Some(instance.clone()));
        }
    }
}

fn selects(universe: &Universe, address: IpAddr, labels: &plan::Labels) -> bool {
    let Some((name, _)) = owner(universe, &address.to_string()) else { return false };
    let spec = universe.allocations[&name].spec.as_ref().expect("valid");
    spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value.as_str()))
}

/// How many of the addresses that are free or on a bad node can be on a good one; whatever is on a good
/// node stays there.
fn most_placements(universe: &Universe) -> usize {
    let good = |instance: &str| {
        let node = universe.nodes.values().find(|node| node.provider_id == instance);
        node.is_some_and(|node| node.ready && !node.unschedulable)
    };
    let free_nodes: Vec<&plan::Node> = universe
        .nodes
        .values()
        .filter(|node| node.ready && !node.unschedulable)
        .filter(|node| !universe.cloud.addresses.values().flatten().any(|on| *on == node.provider_id))
        .collect();
    let listed = |address: &IpAddr| owner(universe, &address.to_string()).is_some();
    let waiting: Vec<IpAddr> = universe
        .cloud
        .addresses
        .iter()
        .filter(|(address, on)| listed(address) && on.as_ref().is_none_or(|on| !good(on)))
        .map(|(address, _)| *address)
        .collect();
    best(universe, &waiting, &free_nodes, &mut BTreeSet::new())
}

/// The most addresses that can be placed, by trying everything.
fn best(universe: &Universe, waiting: &[IpAddr], nodes: &[&plan::Node], used: &mut BTreeSet<usize>) -> usize {
    let Some((address, rest)) = waiting.split_first() else { return 0 };
    let mut most = best(universe, rest, nodes, used);
    for (number, node) in nodes.iter().enumerate() {
        if !used.contains(&number) && selects(universe, *address, &node.labels) {
            used.insert(number);
            most = most.max(1 + best(universe, rest, nodes, used));
            used.remove(&number);
        }
    }
    most
}
