//! Pods that are in the wrong place, and DaemonSet templates.

use crate::decide::Planner;
use crate::slot::State;
use crate::{Eviction, Notice, Pod, Reason, TemplateChange, WorkloadKey};
use crds::{LABEL_ALLOCATION, LABEL_READY, WorkloadKind};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// How long a pod may be in the wrong place before it is evicted: a label that is just being written,
/// an index that lags, settle in less.
const MISPLACED_SECONDS: i64 = 30;
/// How long a replacement may wait for the scheduler before evictions stop.
const UNSCHEDULED_SECONDS: i64 = 60;

/// The acting allocations of a workload, by their index.
type Owners<'w> = BTreeMap<&'w WorkloadKey, Vec<usize>>;

pub fn plan(planner: &mut Planner<'_, '_>) {
    let owners = owners(planner);
    for (workload, claims) in &owners {
        if !planner
            .index
            .world
            .excluded_namespaces
            .contains(&workload.namespace)
        {
            evict(planner, workload, claims);
            strand(planner, workload, claims);
        }
    }
    strand_orphans(planner, &owners);
    templates(planner, &owners);
}

fn owners<'w>(planner: &Planner<'_, 'w>) -> Owners<'w> {
    let mut owners: Owners = BTreeMap::new();
    for (number, claim) in planner.index.claims.iter().enumerate() {
        if let (Some(workload), true, false) = (&claim.spec.workload, claim.enforces(), claim.object.deleting)
        {
            owners.entry(workload).or_default().push(number);
        }
    }
    owners
}

/// Evicts at most one misplaced pod of a workload, and those on lost nodes.
fn evict(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize]) {
    let index = planner.index;
    let may = claims
        .iter()
        .all(|claim| index.claims[*claim].spec.evict && !index.claims[*claim].spec.paused);
    let known = !planner
        .slots
        .all
        .iter()
        .any(|slot| claims.contains(&slot.claim) && matches!(slot.state, State::Unknown(_)));
    let home = home_nodes(planner, claims);
    let target_exists = home
        .iter()
        .any(|node| index.nodes[*node].node.ready && !index.nodes[*node].node.unschedulable);
    if !may || !known || !target_exists || workload.kind == WorkloadKind::DaemonSet {
        // A DaemonSet's pods follow its template; there is nothing that an eviction could change.
        return;
    }
    let pods = index.pods_of.get(workload).map(Vec::as_slice).unwrap_or_default();
    let misplaced: Vec<(&str, &Pod)> = pods
        .iter()
        .copied()
        .filter(|(_, pod)| is_misplaced(planner, pod, &home))
        .collect();
    let mut ripe = Vec::new();
    for (uid, pod) in misplaced {
        let node = pod.node.as_deref().and_then(|name| index.node_named(name));
        if node.is_none_or(|node| !index.nodes[node].node.ready) {
            planner.plan.evictions.push(eviction(uid, pod, Reason::NodeLost));
            continue;
        }
        let due = planner
            .notices
            .since(Notice::Misplaced(uid.to_owned()))
            .plus_seconds(MISPLACED_SECONDS);
        if index.now >= due {
            ripe.push((uid, pod));
        } else {
            planner.notices.wake(due);
        }
    }
    if ripe.is_empty() || stopped(planner, workload, claims, pods) {
        return;
    }
    // One at a time: the next when everything that should run does.
    let settled = pods
        .iter()
        .all(|(_, pod)| pod.finished || (pod.ready && !pod.deleting));
    if let (Some((uid, pod)), true) = (ripe.first(), settled) {
        planner.plan.evictions.push(eviction(uid, pod, Reason::Misplaced));
    }
}

fn eviction(uid: &str, pod: &Pod, cause: Reason) -> Eviction {
    Eviction {
        uid: uid.to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        workload: pod.workload.clone(),
        cause,
    }
}

/// Nodes where pods of these allocations belong: an address is there, and the marks say so.
fn home_nodes(planner: &Planner<'_, '_>, claims: &[usize]) -> HashSet<usize> {
    let index = planner.index;
    let slots = planner
        .slots
        .all
        .iter()
        .filter(|slot| claims.contains(&slot.claim));
    slots
        .filter_map(|slot| {
            let node = slot.on_node()?;
            let labels = &index.nodes[node].node.labels;
            let marked = labels.get(LABEL_READY).is_some_and(|value| value == "true")
                && labels.get(LABEL_ALLOCATION).map(String::as_str) == Some(index.claims[slot.claim].name);
            marked.then_some(node)
        })
        .collect()
}

fn is_misplaced(planner: &Planner<'_, '_>, pod: &Pod, home: &HashSet<usize>) -> bool {
    let Some(name) = pod.node.as_deref() else {
        return false;
    };
    let node = planner.index.node_named(name);
    // On a node that still holds its address the pod is where it should be, marked or not.
    let holds = |node| {
        planner
            .slots
            .all
            .iter()
            .any(|slot| slot.on_node() == Some(node) && !slot.released)
    };
    !pod.finished && !pod.deleting && node.is_none_or(|node| !home.contains(&node) && !holds(node))
}

/// Whether evicting does not help: a replacement came without the requirement, or none can be scheduled.
fn stopped(
    planner: &mut Planner<'_, '_>,
    workload: &WorkloadKey,
    claims: &[usize],
    pods: &[(&str, &Pod)],
) -> bool {
    let index = planner.index;
    let newest = pods
        .iter()
        .filter(|(_, pod)| !pod.finished && !pod.deleting)
        .max_by_key(|(uid, pod)| (pod.created, *uid));
    let without = newest.is_some_and(|(_, pod)| pod.injected.is_none());
    let evicted_before = index
        .world
        .evicted
        .get(workload)
        .is_some_and(|at| newest.is_some_and(|(_, pod)| pod.created >= *at));
    let said_before = claims.iter().any(|claim| {
        let conditions = &index.claims[*claim].object.status.conditions;
        conditions
            .iter()
            .any(|c| c.type_ == "Degraded" && c.reason == Reason::EvictionStopped.as_str())
    });
    let mut unscheduled = false;
    for (uid, pod) in pods {
        if pod.node.is_none() && !pod.finished && !pod.deleting {
            let due = planner
                .notices
                .since(Notice::Unscheduled((*uid).to_owned()))
                .plus_seconds(UNSCHEDULED_SECONDS);
            planner.notices.wake(due);
            unscheduled |= index.now >= due;
        }
    }
    let stopped = unscheduled || (without && (evicted_before || said_before));
    if stopped {
        planner.plan_notes.insert((claims[0], Reason::EvictionStopped));
    }
    stopped
}

/// A pod that was never scheduled and waits for an allocation that its workload does not have (any more).
fn strand(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize]) {
    let names: BTreeSet<&str> = claims
        .iter()
        .map(|claim| planner.index.claims[*claim].name)
        .collect();
    let pods = planner
        .index
        .pods_of
        .get(workload)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut waiting = 0;
    for (uid, pod) in pods {
        if pod.node.is_some() || pod.finished || pod.deleting {
            continue;
        }
        waiting += 1;
        if pod
            .injected
            .as_ref()
            .is_some_and(|injected| !injected.iter().any(|name| names.contains(name.as_str())))
        {
            planner.plan.evictions.push(eviction(uid, pod, Reason::Stranded));
        }
    }
    let all_attached = !planner
        .slots
        .all
        .iter()
        .any(|slot| claims.contains(&slot.claim) && slot.on_node().is_none());
    if waiting > 0 && all_attached {
        planner
            .plan_notes
            .extend(claims.iter().map(|claim| (*claim, Reason::MorePodsThanAddresses)));
    }
}

/// The same for workloads that no allocation refers to any more.
fn strand_orphans(planner: &mut Planner<'_, '_>, owners: &Owners<'_>) {
    for (workload, pods) in &planner.index.pods_of {
        if owners.contains_key(workload)
            || planner
                .index
                .world
                .excluded_namespaces
                .contains(&workload.namespace)
        {
            continue;
        }
        for (uid, pod) in pods {
            if pod.node.is_none() && !pod.finished && !pod.deleting && pod.injected.is_some() {
                planner.plan.evictions.push(eviction(uid, pod, Reason::Stranded));
            }
        }
    }
}

/// DaemonSets get the requirement once a node of theirs is marked, and lose it with their last
/// allocation.
fn templates(planner: &mut Planner<'_, '_>, owners: &Owners<'_>) {
    let index = planner.index;
    for (workload, object) in &index.world.workloads {
        if workload.kind != WorkloadKind::DaemonSet
            || index.world.excluded_namespaces.contains(&workload.namespace)
        {
            continue;
        }
        let claims = owners.get(workload).map(Vec::as_slice).unwrap_or_default();
        let wanted: BTreeSet<String> = claims
            .iter()
            .map(|claim| index.claims[*claim].name.to_owned())
            .collect();
        let current = object.injected.clone().unwrap_or_default();
        let too_early = object.injected.is_none() && home_nodes(planner, claims).is_empty();
        if wanted != current && !too_early {
            planner.plan.daemon_sets.push(TemplateChange {
                workload: workload.clone(),
                names: wanted,
            });
        }
    }
}
