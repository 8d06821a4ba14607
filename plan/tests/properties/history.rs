//! A bad hour, then peace.

use crate::generate::{self, START, address, attach_somewhere, workload};
use crate::random::Random;
use crate::universe::{Luck, Memory, Universe};
use plan::{Action, FailureClass, Step};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rounds of trouble, and of peace until everything must be at rest.
const TROUBLE: usize = 12;
const PEACE: usize = 120;

pub fn run(random: &mut Random) {
    let mut universe = generate::universe(random);
    let mut late: Vec<Step> = Vec::new();
    for _ in 0..TROUBLE {
        for _ in 0..random.below(3) {
            something_happens(random, &mut universe);
        }
        universe.land(false);
        let steps = universe.observe_and_plan().steps;
        // A deposed leader wakes up and does what it had decided long ago.
        if let Some(step) = random.pick(&late).cloned()
            && random.percent(30)
        {
            carry_out_late(&mut universe, &step);
        }
        late.extend(steps.iter().cloned());
        for step in steps {
            if universe.act(&step, luck(random)) {
                break;
            }
        }
        universe.now = universe.now.plus_millis(i64::try_from(random.below(20_000)).unwrap_or(0));
    }
    universe.silent.clear();
    universe.unlisted = false;
    universe.land(true);
    settle(random, &mut universe);
    // Pauses after failures end too.
    universe.memory.failures.clear();
    settle(random, &mut universe);
    at_rest(&mut universe);
}

fn carry_out_late(universe: &mut Universe, step: &Step) {
    let instance = match &step.action {
        Action::Verify => return,
        Action::Attach { to, .. } => to.provider_id.clone(),
        Action::Detach { from, .. } => from.provider_id.clone(),
    };
    // Refused or not: the token decides. What it may do is no more than what was decided then.
    let _ = universe.call(step, &instance);
}

fn luck(random: &mut Random) -> Luck {
    match random.below(12) {
        0 => Luck::ReplyLost,
        1 => Luck::Failed(FailureClass::Transient),
        2 => Luck::Failed(FailureClass::Permanent),
        3 => Luck::CrashBefore,
        4 => Luck::CrashAfter,
        5 => Luck::Lags,
        6 => Luck::Slow,
        _ => Luck::Good,
    }
}

fn something_happens(random: &mut Random, universe: &mut Universe) {
    let names: Vec<String> = universe.nodes.keys().cloned().collect();
    let Some(name) = random.pick(&names).cloned() else { return };
    let kind = random.below(17);
    match kind {
        0 => drop(universe.nodes.get_mut(&name).map(|node| node.ready = !node.ready)),
        1 => drop(universe.nodes.get_mut(&name).map(|node| node.unschedulable = !node.unschedulable)),
        2 => {
            if let Some(node) = universe.nodes.remove(&name)
                && random.percent(60)
            {
                universe.cloud.terminate(&node.provider_id);
            }
        }
        3 => recreate(universe, &name),
        4 => {
            let address = address(random.below(5));
            if universe.cloud.addresses.contains_key(&address) {
                universe.meddle(address, None);
                attach_somewhere(random, universe, address);
            }
        }
        5 => {
            let address = address(random.below(5));
            if universe.cloud.addresses.contains_key(&address) {
                universe.meddle(address, None);
            }
        }
        6 => drop(universe.silent.insert(address(random.below(5)))),
        7 => universe.silent.clear(),
        8 => change_labels(random, universe, &name),
        9 => change_spec(random, universe),
        10 => drop(universe.pods.pop_first()),
        11 => {
            let names: BTreeSet<String> = universe.allocations.keys().cloned().collect();
            universe.schedule_pods(random, &workload(), &names);
        }
        12 => universe.memory = Memory::default(),
        13 | 14 => universe.unlisted = !universe.unlisted,
        15 => register_again(universe, &name),
        _ => delete_allocation(random, universe),
    }
}

/// The same machine comes back under another name; its old Node object stays behind.
fn register_again(universe: &mut Universe, name: &str) {
    let Some(old) = universe.nodes.get_mut(name) else { return };
    let mut new = old.clone();
    old.ready = false;
    new.uid.push('*');
    new.ready = true;
    new.labels.remove(crds::LABEL_READY);
    new.labels.remove(crds::LABEL_ALLOCATION);
    new.reserved_ip = None;
    universe.nodes.insert(format!("{name}-again"), new);
}

fn recreate(universe: &mut Universe, name: &str) {
    let Some(node) = universe.nodes.get_mut(name) else { return };
    universe.cloud.terminate(&node.provider_id);
    node.uid.push('+');
    node.provider_id.push('+');
    node.labels.remove(crds::LABEL_READY);
    node.labels.remove(crds::LABEL_ALLOCATION);
    node.reserved_ip = None;
    node.ready = true;
    universe.cloud.instances.insert(node.provider_id.clone(), true);
}

fn change_labels(random: &mut Random, universe: &mut Universe, name: &str) {
    let Some(node) = universe.nodes.get_mut(name) else { return };
    let pool = if random.percent(50) { "p" } else { "q" };
    node.labels.insert("pool", pool);
    if random.percent(30) {
        node.labels.remove(crds::LABEL_READY);
    }
    if random.percent(30) {
        node.labels.insert(crds::LABEL_READY, "true");
    }
}

fn change_spec(random: &mut Random, universe: &mut Universe) {
    let names: Vec<String> = universe.allocations.keys().cloned().collect();
    let Some(allocation) = random.pick(&names).and_then(|name| universe.allocations.get_mut(name)) else {
        return;
    };
    let count = universe.cloud.addresses.len();
    allocation.generation += 1;
    allocation.spec = Ok(generate::random_spec(random, count));
    if random.percent(20)
        && let Ok(spec) = &mut allocation.spec
    {
        Arc::make_mut(spec).paused = true;
    }
}

fn delete_allocation(random: &mut Random, universe: &mut Universe) {
    let names: Vec<String> = universe.allocations.keys().cloned().collect();
    if random.percent(40)
        && let Some(name) = random.pick(&names)
        && let Some(allocation) = universe.allocations.get_mut(name)
    {
        allocation.deleting = true;
    }
    universe.allocations.retain(|_, allocation| !allocation.deleting || allocation.has_finalizer);
}

/// Nothing happens any more but what the controller does and time.
fn settle(random: &mut Random, universe: &mut Universe) {
    for _ in 0..PEACE {
        let plan = universe.observe_and_plan();
        let quiet = plan.steps.is_empty()
            && plan.labels.is_empty()
            && plan.finalizers.is_empty()
            && plan.evictions.is_empty();
        for step in &plan.steps {
            universe.act(step, Luck::Good);
        }
        match plan.wake_at {
            Some(at) if quiet => universe.now = at,
            None if quiet => return,
            _ => universe.now = universe.now.plus_millis(200),
        }
        // What was evicted comes back where it may run.
        for _ in &plan.evictions {
            let names: BTreeSet<String> = universe.allocations.keys().cloned().collect();
            universe.schedule_pods(random, &workload(), &names);
        }
    }
    let plan = universe.observe_and_plan();
    panic!("not at rest after {PEACE} rounds: {plan:#?}");
}

/// The right state, and no reason to write anything.
fn at_rest(universe: &mut Universe) {
    let before = universe.clone();
    universe.now = universe.now.plus_seconds(3600);
    let plan = universe.observe_and_plan();
    assert!(
        plan.steps.is_empty() && plan.labels.is_empty() && plan.finalizers.is_empty(),
        "not at rest: {plan:#?}"
    );
    for (name, allocation) in &before.allocations {
        assert_eq!(
            allocation.status, universe.allocations[name].status,
            "status of {name} changed with time alone"
        );
        assert!(!allocation.deleting, "{name} was not let go: {:#?}", allocation.status);
    }
    right_marks(universe);
    nothing_left_undone(universe);
    assert!(universe.now > START);
}

/// Marked if and only if it holds an address of an allocation that acts.
fn right_marks(universe: &Universe) {
    for (name, node) in &universe.nodes {
        let held =
            universe.cloud.addresses.iter().find(|(_, on)| on.as_deref() == Some(node.provider_id.as_str()));
        let owner = held.and_then(|(address, _)| owner(universe, &address.to_string()));
        let marked = node.labels.allocation();
        let same = universe.nodes.values().filter(|other| other.provider_id == node.provider_id);
        if same.clone().count() > 1 {
            // Of several Node objects of one machine one counts.
            let ours = |other: &&plan::Node| other.labels.allocation().is_some_and(|n| acts(universe, n));
            let all = same.filter(ours).count();
            assert!(all <= 1, "{all} nodes of one machine are marked\n{}", picture(universe));
            continue;
        }
        if let Some((owner, true)) = owner {
            assert_eq!(
                marked,
                Some(owner.as_str()),
                "{name} holds an address of {owner}\n{}",
                picture(universe)
            );
            assert_eq!(node.labels.ready(), Some("true"), "{name}");
        } else if owner.is_none() && marked.is_some_and(|name| acts(universe, name)) {
            panic!(
                "{name} is marked for {marked:?} and holds nothing of it: {:#?}",
                universe.cloud.addresses
            );
        }
    }
}

fn acts(universe: &Universe, name: &str) -> bool {
    let spec = universe.allocations.get(name).and_then(|allocation| allocation.spec.as_ref().ok());
    // A paused one leaves what was taken off its list as it is.
    spec.is_some_and(|spec| spec.mode == crds::Mode::Enforce && !spec.paused)
}

/// The allocation that has an address, and whether it acts.
pub fn owner(universe: &Universe, address: &str) -> Option<(String, bool)> {
    let mut owners: Vec<_> = universe
        .allocations
        .iter()
        .filter_map(|(name, allocation)| {
            let spec = allocation.spec.as_ref().ok()?;
            let lists = spec.addresses.iter().any(|listed| listed.to_string() == address);
            lists.then(|| (spec.mode != crds::Mode::Enforce, allocation.created, name.clone()))
        })
        .collect();
    owners.sort();
    owners.into_iter().next().map(|(passive, _, name)| (name, !passive))
}

/// No address of an acting allocation waits while a node that could take it stands idle.
fn nothing_left_undone(universe: &Universe) {
    for (address, on) in &universe.cloud.addresses {
        let Some((name, true)) = owner(universe, &address.to_string()) else { continue };
        let Ok(spec) = &universe.allocations[&name].spec else { continue };
        let is_node = |id: &String| universe.nodes.values().any(|node| node.provider_id == *id);
        // On a machine that is no node any more, where we put it: ours to take back.
        let stranded =
            on.as_ref().is_some_and(|on| !is_node(on) && universe.put_by_us.get(address) == Some(on));
        if (on.is_some() && !stranded) || spec.paused {
            continue;
        }
        for (node_name, node) in &universe.nodes {
            let held =
                universe.cloud.addresses.values().any(|on| on.as_deref() == Some(node.provider_id.as_str()));
            let selected =
                spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value.as_str()));
            let running = universe.cloud.instances.get(&node.provider_id) == Some(&true);
            let fit = node.ready && !node.unschedulable && selected && running && !held;
            let fit = fit && !promised_to_a_paused_one(universe, &node.provider_id);
            // Of several Node objects of one machine one counts, which may be the cordoned one.
            let twins = universe.nodes.values().filter(|other| other.provider_id == node.provider_id);
            let fit = fit && twins.count() == 1;
            assert!(
                !fit,
                "{address} of {name} is free or stranded, and {node_name} could take it\n{}",
                picture(universe)
            );
        }
    }
}

/// A move that a pause has stopped half-way keeps its target.
fn promised_to_a_paused_one(universe: &Universe, provider_id: &str) -> bool {
    let paused = |allocation: &&plan::Allocation| allocation.spec.as_ref().is_ok_and(|spec| spec.paused);
    let ips = universe.allocations.values().filter(paused).flat_map(|allocation| &allocation.status.ips);
    let mut operations = ips.filter_map(|ip| ip.operation.as_ref());
    operations.any(|operation| operation.to_provider_id.as_deref() == Some(provider_id))
}

/// Everything that a person needs to understand a failure.
pub fn picture(universe: &Universe) -> String {
    let mut lines = vec![format!("now {}", universe.now.0)];
    for (name, node) in &universe.nodes {
        lines.push(format!(
            "{name}: {:?} ready {} cordoned {} labels {:?}",
            node.provider_id, node.ready, node.unschedulable, node.labels
        ));
    }
    for (address, on) in &universe.cloud.addresses {
        lines.push(format!("{address} on {on:?}"));
    }
    for (uid, pod) in &universe.pods {
        lines.push(format!("{uid} of {} on {:?}", pod.workload.name, pod.node));
    }
    for (name, allocation) in &universe.allocations {
        lines.push(format!("{name}: deleting {} spec {:?}", allocation.deleting, allocation.spec));
        for ip in &allocation.status.ips {
            lines.push(format!("    {} {:?} {:?} {:?}", ip.address, ip.reason, ip.message, ip.operation));
        }
    }
    lines.join("\n")
}
