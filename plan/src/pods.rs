//! Pods that are in the wrong place, and DaemonSet templates.

use crate::decide::Planner;
use crate::index::{Phase, PodEntry};
use crate::slot::{Slot, State};
use crate::{
    Allocation, Eviction, InstanceView, Notice, Reason, TemplateChange, WorkloadKey, leave, marks, select,
};
use crds::WorkloadKind;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// How long a pod may be in the wrong place before it is evicted: a label that is just being written,
/// an index that lags, settle in less.
const MISPLACED_SECONDS: i64 = 30;
/// How long a replacement may wait for the scheduler before evictions stop.
const UNSCHEDULED_SECONDS: i64 = 60;
/// How long a pod of a workload that nobody refers to may wait for a node.
const STRANDED_SECONDS: i64 = 10;
/// How long a replacement may take to be made before the next pod is looked at.
const REPLACED_SECONDS: i64 = 5 * 60;
/// How long an eviction may be refused before that is trouble: a budget has its moments.
const REFUSED_SECONDS: i64 = 60;

/// The allocations of a workload, by their index.
type Owners<'w> = BTreeMap<&'w WorkloadKey, Vec<usize>>;
/// Names of allocations.
type Names<'w> = BTreeSet<&'w str>;

pub fn plan(planner: &mut Planner<'_, '_>) {
    let (acting, passive) = (owners(planner, true), passive(planner));
    for (workload, claims) in &acting {
        name_missing(planner, workload, claims);
        if are_ours_to_touch(planner, workload) {
            let evictions = evictions(planner, workload, claims);
            planner.plan.evictions.extend(evictions);
            name_hanging(planner, workload, claims);
            strand(planner, workload, claims, &passive);
        }
    }
    for (workload, claims) in owners(planner, false) {
        if are_ours_to_touch(planner, workload) {
            would_evict(planner, workload, &claims);
        }
    }
    strand_orphans(planner, &acting, &passive);
    templates(planner, &acting, &passive);
}

/// Whether the pods of a workload may be told to go: not in an excluded namespace, and not while nobody knows
/// all of them.
fn are_ours_to_touch(planner: &Planner<'_, '_>, workload: &WorkloadKey) -> bool {
    let world = planner.index.world;
    !world.excluded_namespaces.contains(&workload.namespace) && !world.unlisted.contains_key(workload)
}

/// Says which workloads cannot be listed, or are not there.
fn name_missing(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize]) {
    let world = planner.index.world;
    let named = format!("{:?} {}/{}", workload.kind, workload.namespace, workload.name);
    let (reason, message) = match world.unlisted.get(workload) {
        Some(why) => {
            let claim = claims.first().map(|claim| &planner.index.claims[*claim]);
            let missing =
                claim.is_some_and(|c| leave::list_is_missing(planner.index, c, &mut planner.notices));
            if !missing {
                return;
            }
            (Reason::WorkloadUnknown, format!("{named} cannot be listed: {why}"))
        }
        None if !world.workloads.contains_key(workload) => {
            (Reason::WorkloadNotFound, format!("{named} does not exist"))
        }
        None => return,
    };
    planner.notes.extend(claims.iter().map(|claim| ((*claim, reason), message.clone())));
}

fn owners<'w>(planner: &Planner<'_, 'w>, acting: bool) -> Owners<'w> {
    let mut owners: Owners = BTreeMap::new();
    for (number, claim) in planner.index.claims.iter().enumerate() {
        let counts = claim.enforces() == acting && !claim.object.deleting;
        if let Some(workload) = claim.spec.workload.as_ref().filter(|_| counts) {
            owners.entry(workload).or_default().push(number);
        }
    }
    owners
}

/// What allocations in mode Plan would do.
fn would_evict(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize]) {
    for eviction in evictions(planner, workload, claims) {
        let pod = planner.index.world.pods.get(&eviction.uid);
        let node = pod.and_then(|pod| pod.node.as_deref()).map(str::to_owned);
        planner.would_evict.extend(claims.iter().map(|claim| (*claim, node.clone())));
    }
}

/// At most one misplaced pod of a workload, and those on lost nodes.
fn evictions(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize]) -> Vec<Eviction> {
    let index = planner.index;
    let may = claims.iter().all(|claim| index.claims[*claim].spec.evict && !index.claims[*claim].spec.paused);
    let home = home_nodes(planner, claims);
    let usable = |node: &usize| index.nodes[*node].node.ready && !index.nodes[*node].node.unschedulable;
    // A DaemonSet's pods follow its template; there is nothing that an eviction could change.
    let pointless = workload.kind == WorkloadKind::DaemonSet || !home.iter().any(usable);
    if !may || pointless || any_slot(planner, claims, is_unknown) {
        return Vec::new();
    }
    let held = nodes_of(planner, claims);
    let pods = index.pods_of(workload);
    let storm =
        claims.iter().any(|claim| leave::in_storm(index, &index.claims[*claim], &mut planner.notices));
    let (mut evictions, mut misplaced, mut ripe) = (Vec::new(), false, None);
    for entry in pods.iter().filter(|entry| is_misplaced(entry, &held)) {
        name_refusal(planner, entry, claims);
        if storm && is_on_silent_node(planner, entry) {
            continue;
        }
        if is_lost(planner, entry, claims) {
            evictions.push(eviction(entry, Reason::NodeLost));
            continue;
        }
        let since = planner.notices.since(Notice::Misplaced(entry.uid.to_owned()));
        let due = since.plus_seconds(MISPLACED_SECONDS);
        planner.notices.wake(due);
        misplaced = true;
        ripe = ripe.or(Some(entry).filter(|_| index.now >= due));
    }
    // Asked before a pod is ripe: what was said of an eviction that did not help outlives a restart.
    if misplaced
        && !stopped(planner, workload, claims, pods)
        && let Some(entry) = ripe
        && everybody_is_well(planner, workload, pods, &held)
    {
        evictions.push(eviction(entry, Reason::Misplaced));
    }
    evictions
}

/// One at a time: the next when everything that should run does, the last one's replacement included. A
/// replacement that does not come is not waited for for ever: the workload may have been scaled down.
///
/// A pod in the wrong place need not be Ready: it may be waiting for the very address that it lacks.
fn everybody_is_well(
    planner: &mut Planner<'_, '_>,
    workload: &WorkloadKey,
    pods: &[PodEntry<'_>],
    held: &FxHashSet<usize>,
) -> bool {
    let replaced = planner.index.world.evicted.get(workload).is_none_or(|evicted| {
        let due = evicted.at.plus_seconds(REPLACED_SECONDS);
        planner.notices.wake(due);
        planner.index.now >= due || pods.iter().any(|entry| !evicted.pods.contains(entry.uid))
    });
    let well = |entry: &PodEntry<'_>| !entry.pod.deleting && (entry.pod.ready || is_misplaced(entry, held));
    replaced && pods.iter().all(|entry| entry.pod.finished || well(entry))
}

/// An eviction that was refused for a while is for a person to look at.
fn name_refusal(planner: &mut Planner<'_, '_>, entry: &PodEntry<'_>, claims: &[usize]) {
    let Some(refused) = planner.index.world.refused_evictions.get(entry.uid) else { return };
    let due = planner.notices.since(Notice::Refused(entry.uid.clone())).plus_seconds(REFUSED_SECONDS);
    planner.notices.wake(due);
    if planner.index.now >= due {
        let message = format!("pod {}/{}: {}", entry.pod.namespace, entry.pod.name, refused.message);
        for claim in claims {
            // One is enough; of several the first.
            planner.notes.entry((*claim, Reason::EvictionRefused)).or_insert_with(|| message.clone());
        }
    }
}

/// On a node that is NotReady, and whose machine may well be running: in a storm the view may be wrong.
fn is_on_silent_node(planner: &Planner<'_, '_>, entry: &PodEntry<'_>) -> bool {
    let Some(node) = entry.node().map(|node| planner.index.nodes[node].node) else { return false };
    let confirmed =
        matches!(planner.index.instance(&node.provider_id), InstanceView::Stopped | InstanceView::NotFound);
    !node.ready && !node.deleting && !confirmed && !select::out_of_service(node)
}

/// Pods of a StatefulSet that were told to go and cannot, because their node is lost.
fn name_hanging(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize]) {
    if workload.kind != WorkloadKind::StatefulSet {
        return;
    }
    for entry in
        planner.index.pods_of(workload).iter().filter(|entry| entry.pod.deleting && !entry.pod.finished)
    {
        if entry.node().is_some() && is_lost(planner, entry, claims) {
            for claim in claims {
                planner.hanging.entry(*claim).or_default().push(entry.pod.name.clone());
            }
        }
    }
}

fn eviction(entry: &PodEntry<'_>, cause: Reason) -> Eviction {
    Eviction {
        uid: entry.uid.to_owned(),
        namespace: entry.pod.namespace.clone(),
        name: entry.pod.name.clone(),
        workload: WorkloadKey::clone(&entry.pod.workload),
        cause,
    }
}

fn any_slot(planner: &Planner<'_, '_>, claims: &[usize], test: impl Fn(&Slot<'_>) -> bool) -> bool {
    claims.iter().any(|claim| planner.slots.of(*claim).any(&test))
}

fn is_unknown(slot: &Slot<'_>) -> bool {
    matches!(slot.state, State::Unknown(_))
}

/// Nodes where pods of these allocations belong: an address is there, and the marks say so.
fn home_nodes(planner: &Planner<'_, '_>, claims: &[usize]) -> FxHashSet<usize> {
    let index = planner.index;
    let slots = claims.iter().flat_map(|claim| planner.slots.of(*claim));
    slots
        .filter_map(|slot| {
            let node = slot.on_node()?;
            let marked = marks::is_home(index.nodes[node].node, index.claims[slot.claim].name);
            marked.then_some(node)
        })
        .collect()
}

/// Nodes that hold an address of these allocations, marked or not.
fn nodes_of(planner: &Planner<'_, '_>, claims: &[usize]) -> FxHashSet<usize> {
    let slots = claims.iter().flat_map(|claim| planner.slots.of(*claim));
    slots.filter(|slot| !slot.released).filter_map(Slot::on_node).collect()
}

/// To stay on a node that holds no address of its allocations.
fn is_misplaced(entry: &PodEntry<'_>, held: &FxHashSet<usize>) -> bool {
    entry.phase == Phase::Bound && entry.node().is_none_or(|node| !held.contains(&node))
}

/// On a node that will not come back soon: gone, out of service, or NotReady for longer than the grace.
fn is_lost(planner: &mut Planner<'_, '_>, entry: &PodEntry<'_>, claims: &[usize]) -> bool {
    let index = planner.index;
    let Some(node) = entry.node().map(|node| index.nodes[node].node) else {
        return was_left(planner, entry, claims);
    };
    let instance = index.instance(&node.provider_id);
    if *instance == InstanceView::Stopped || node.deleting || select::out_of_service(node) {
        return true;
    }
    if node.ready {
        return false;
    }
    let grace = claims.iter().map(|claim| index.claims[*claim].spec.failover.not_ready_grace_seconds).max();
    let due =
        planner.notices.since(Notice::NotReady(node.uid.clone())).plus_seconds(grace.unwrap_or(0).into());
    planner.notices.wake(due);
    *instance == InstanceView::NotFound || index.now >= due
}

/// Whether a node that is not there is one that an address has left: then it is gone. Another one may be so
/// new that only the pod is known yet.
fn was_left(planner: &Planner<'_, '_>, entry: &PodEntry<'_>, claims: &[usize]) -> bool {
    let name = entry.pod.node.as_deref();
    let moves = claims.iter().flat_map(|claim| &planner.index.claims[*claim].object.status.history);
    name.is_some() && moves.into_iter().any(|moved| moved.from.as_deref() == name)
}

/// Whether evicting does not help: a replacement came without the requirement, or none can be scheduled.
fn stopped(
    planner: &mut Planner<'_, '_>,
    workload: &WorkloadKey,
    claims: &[usize],
    pods: &[PodEntry<'_>],
) -> bool {
    let index = planner.index;
    let live = || pods.iter().filter(|entry| !entry.pod.finished && !entry.pod.deleting);
    let bare = |entry: &PodEntry<'_>| entry.pod.injected.is_none();
    let evicted = index.world.evicted.get(workload);
    // A pod that comes long after is nobody's replacement: it slipped by on its own.
    let recent = evicted.filter(|evicted| index.now < evicted.at.plus_seconds(REPLACED_SECONDS));
    let bare_replacement =
        recent.is_some_and(|evicted| live().any(|entry| bare(entry) && !evicted.pods.contains(entry.uid)));
    let newest_is_bare = live().max_by_key(|entry| (entry.pod.created, entry.uid)).is_some_and(bare);
    let said_before = claims.iter().any(|claim| {
        let conditions = &index.claims[*claim].object.status.conditions;
        conditions.iter().any(|c| c.type_ == "Degraded" && c.reason == Reason::EvictionStopped.as_str())
    });
    let mut unscheduled = false;
    for entry in live().filter(|entry| entry.pod.node.is_none()) {
        let since = planner.notices.since(Notice::Unscheduled(entry.uid.to_owned()));
        let due = since.plus_seconds(UNSCHEDULED_SECONDS);
        planner.notices.wake(due);
        unscheduled |= index.now >= due;
    }
    let stopped = unscheduled || bare_replacement || (newest_is_bare && said_before);
    if stopped {
        let message = Reason::EvictionStopped.meaning().to_owned();
        planner.notes.extend(claims.iter().map(|claim| ((*claim, Reason::EvictionStopped), message.clone())));
    }
    stopped
}

/// A pod that was never scheduled and waits for an allocation that its workload does not have (any more).
fn strand(planner: &mut Planner<'_, '_>, workload: &WorkloadKey, claims: &[usize], passive: &Names<'_>) {
    let index = planner.index;
    let awaited = |name: &String| {
        passive.contains(name.as_str()) || claims.iter().any(|claim| index.claims[*claim].name == name)
    };
    let mut waiting = 0;
    for entry in index.pods_of(workload).iter().filter(|entry| entry.phase == Phase::Waiting) {
        let since = planner.notices.since(Notice::Unscheduled(entry.uid.to_owned()));
        let due = since.plus_seconds(UNSCHEDULED_SECONDS);
        planner.notices.wake(due);
        waiting += usize::from(index.now >= due);
        let injected = entry.pod.injected.as_ref().filter(|_| entry.pod.ours);
        if injected.is_some_and(|injected| !injected.iter().any(awaited)) {
            planner.plan.evictions.push(eviction(entry, Reason::Stranded));
        }
    }
    if waiting > 0 && !any_slot(planner, claims, |slot| slot.on_node().is_none()) {
        let message = format!("{waiting} more pods wait for a node than there are addresses");
        planner
            .notes
            .extend(claims.iter().map(|claim| ((*claim, Reason::MorePodsThanAddresses), message.clone())));
    }
}

/// Allocations that are there and do not act, for want of a valid spec or by their mode: what waits for
/// them may go on waiting.
fn passive<'w>(planner: &Planner<'_, 'w>) -> Names<'w> {
    let allocations = planner.index.world.allocations.iter();
    allocations.filter(|(_, allocation)| !allocation.acts()).map(|(name, _)| name.as_str()).collect()
}

/// Whether an allocation serves whoever asks for its nodes: it acts, and refers to no workload.
fn serves_anybody(allocation: &Allocation) -> bool {
    allocation.acts() && allocation.spec.as_ref().is_ok_and(|spec| spec.workload.is_none())
}

/// The same for workloads that no allocation refers to any more. Their pods may well wait for an allocation
/// that refers to no workload.
fn strand_orphans(planner: &mut Planner<'_, '_>, owners: &Owners<'_>, passive: &Names<'_>) {
    let allocations = &planner.index.world.allocations;
    for (workload, pods) in &planner.index.workloads {
        if owners.contains_key(workload)
            || planner.index.world.excluded_namespaces.contains(&workload.namespace)
        {
            continue;
        }
        for entry in pods.iter().filter(|entry| entry.phase == Phase::Waiting) {
            // A pod that somebody can schedule is scheduled by then, and one that comes back and back is not
            // deleted in a loop.
            let since = planner.notices.since(Notice::Unscheduled(entry.uid.to_owned()));
            let due = since.plus_seconds(STRANDED_SECONDS);
            planner.notices.wake(due);
            if planner.index.now < due {
                continue;
            }
            let injected = entry.pod.injected.as_ref().filter(|_| entry.pod.ours);
            let awaited = |name: &String| {
                passive.contains(name.as_str()) || allocations.get(name).is_some_and(serves_anybody)
            };
            if injected.is_some_and(|injected| !injected.iter().any(awaited)) {
                planner.plan.evictions.push(eviction(entry, Reason::Stranded));
            }
        }
    }
    // In order, whatever order the workloads were met in.
    planner.plan.evictions.sort_by(|a, b| (&a.workload, &a.uid).cmp(&(&b.workload, &b.uid)));
}

/// DaemonSets get the requirement once a node of theirs is marked, and lose it with their last
/// allocation.
fn templates(planner: &mut Planner<'_, '_>, owners: &Owners<'_>, passive: &Names<'_>) {
    let index = planner.index;
    for (workload, object) in &index.world.workloads {
        // What somebody else wrote by hand is theirs to change.
        let foreign = object.injected.is_some() && !object.ours;
        if workload.kind != WorkloadKind::DaemonSet
            || foreign
            || index.world.excluded_namespaces.contains(&workload.namespace)
        {
            continue;
        }
        let claims = owners.get(workload).map(Vec::as_slice).unwrap_or_default();
        let current = object.injected.clone().unwrap_or_default();
        let mut wanted: BTreeSet<String> =
            claims.iter().map(|claim| index.claims[*claim].name.to_owned()).collect();
        wanted.extend(current.iter().filter(|name| passive.contains(name.as_str())).cloned());
        let too_early = object.injected.is_none() && home_nodes(planner, claims).is_empty();
        if wanted != current && !too_early {
            planner.plan.daemon_sets.push(TemplateChange { workload: workload.clone(), names: wanted });
        }
    }
}
