//! What every allocation's status should say.

use crate::decide::{Decision, Planner};
use crate::leave;
use crate::slot::{Lost, Slot, State, is_retained};
use crate::tally::Tally;
use crate::{Reason, Time, marks};
use crds::{IpStatus, Move, NetIPAllocationStatus, NodeRefusal, Operation, PlannedAction};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::BTreeMap;

const HISTORY: usize = 10;

pub fn plan(planner: &mut Planner<'_, '_>) {
    for (claim, object) in planner.index.claims.iter().enumerate() {
        let status = status(planner, claim, &planner.slots.of_claim[claim]);
        planner.plan.statuses.insert(object.name.to_owned(), status);
    }
    for (name, allocation) in &planner.index.world.allocations {
        if let Err(faults) = &allocation.spec {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let mut status = allocation.status.clone();
            status.observed_generation = Some(allocation.generation);
            let message = format!("The spec is not valid: {}", faults.join("; "));
            let verdicts = [
                ("Ready", false, Reason::InvalidSpec, message.clone()),
                ("Progressing", false, Reason::InvalidSpec, String::new()),
                ("Degraded", true, Reason::InvalidSpec, message),
            ];
            set_conditions(&mut status.conditions, &verdicts, allocation.generation, planner.index.now);
            planner.plan.statuses.insert(name.clone(), status);
        }
    }
}

fn status(planner: &Planner<'_, '_>, claim: usize, slots: &[usize]) -> NetIPAllocationStatus {
    let object = planner.index.claims[claim].object;
    let spec = planner.index.claims[claim].spec;
    let mut history = object.status.history.clone();
    let mut ips: Vec<(usize, IpStatus)> = Vec::with_capacity(slots.len());
    for number in slots {
        let (ip, moved) = ip_status(planner, *number);
        if let Some(moved) = moved {
            history.insert(0, moved);
        }
        ips.extend(ip.map(|ip| (planner.slots.all[*number].position, ip)));
    }
    for lost in planner.slots.lost.iter().filter(|lost| lost.claim == claim) {
        let position = spec.addresses.iter().position(|listed| *listed == lost.address);
        let ip = lost_status(object.status.ips.as_slice(), lost.address, lost.winner, planner.index.now);
        ips.push((position.unwrap_or(usize::MAX), ip));
    }
    history.truncate(HISTORY);
    ips.sort_by_key(|(position, _)| *position);
    let is_attached = |(position, ip): &&(usize, IpStatus)| {
        ip.state == "Attached" && ip.node.is_some() && *position < usize::MAX
    };
    let attached = ips.iter().filter(is_attached).count();
    let ips = ips.into_iter().map(|(_, ip)| ip).collect();
    let reserved = spec.addresses.len();
    let mut status = NetIPAllocationStatus {
        observed_generation: Some(object.generation),
        conditions: object.status.conditions.clone(),
        reserved: count(reserved),
        attached: count(attached),
        unattached: count(reserved.saturating_sub(attached)),
        ips,
        refusals: refusals(planner, slots),
        history,
        plan: if planner.index.claims[claim].enforces() {
            Vec::new()
        } else {
            planned(planner, claim, slots)
        },
    };
    let verdicts = conditions(planner, claim, slots, attached);
    set_conditions(&mut status.conditions, &verdicts, object.generation, planner.index.now);
    status
}

/// Why nodes cannot take an address, as far as one waits for a node.
fn refusals(planner: &Planner<'_, '_>, slots: &[usize]) -> Vec<NodeRefusal> {
    let tally = slots.iter().find_map(|number| planner.decisions[*number].tally.as_ref());
    tally.map(Tally::refusals).unwrap_or_default()
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The entry of an address, and the move that has just ended, if one has. A released address that is
/// free has no entry any more.
fn ip_status(planner: &Planner<'_, '_>, number: usize) -> (Option<IpStatus>, Option<Move>) {
    let (slot, decision) = (&planner.slots.all[number], &planner.decisions[number]);
    let index = planner.index;
    let enforces = index.claims[slot.claim].enforces();
    let moved = finished_move(planner, slot, decision);
    let gone = matches!(slot.state, State::Free { .. } | State::NotFound | State::Foreign(_))
        && !slot.busy
        && !slot.stale;
    let forgotten = slot.position == usize::MAX && (gone || is_retained(index, slot));
    if forgotten {
        return (None, moved);
    }
    let (state, node, provider_id) = place(planner, slot);
    // A cloud that does not answer for a while moves nothing.
    let unchanged = slot.recorded.filter(|recorded| {
        recorded.provider_id == provider_id && (provider_id.is_some() || recorded.state == state)
    });
    let operation = if enforces { operation(planner, number) } else { None };
    let ip = IpStatus {
        address: slot.address.to_string(),
        state: state.to_owned(),
        node,
        provider_id,
        since: unchanged.and_then(|recorded| recorded.since.clone()).or_else(|| Some(index.now.into())),
        reason: Some(decision.reason.as_str().to_owned()),
        message: Some(sentence(planner, slot, decision)),
        operation,
    };
    (Some(ip), moved)
}

/// State word, node and provider ID. Where nothing is known the last word stays.
fn place(planner: &Planner<'_, '_>, slot: &Slot<'_>) -> (&'static str, Option<String>, Option<String>) {
    match slot.state {
        State::Unknown(_) => {
            let recorded = slot.recorded;
            ("Unknown", recorded.and_then(|r| r.node.clone()), recorded.and_then(|r| r.provider_id.clone()))
        }
        State::NotFound => ("NotFound", None, None),
        State::Foreign(_) => ("HeldByOther", None, None),
        State::Free { .. } => ("Free", None, None),
        State::On { node, provider_id, .. } => {
            let node = node.map(|node| planner.index.nodes[node].name.to_owned());
            ("Attached", node, Some(provider_id.to_owned()))
        }
    }
}

fn lost_status(recorded: &[IpStatus], address: std::net::IpAddr, winner: &str, now: Time) -> IpStatus {
    let text = address.to_string();
    let before = recorded.iter().find(|ip| ip.address == text && ip.state == "HeldByOther");
    IpStatus {
        address: text,
        state: "HeldByOther".into(),
        node: None,
        provider_id: None,
        since: before.and_then(|ip| ip.since.clone()).or_else(|| Some(now.into())),
        reason: Some(Reason::HeldByAllocation.as_str().into()),
        message: Some(format!("NetIPAllocation {winner} lists it too, and comes first.")),
        operation: None,
    }
}

/// The operation that is under way after this plan's steps have begun.
fn operation(planner: &Planner<'_, '_>, number: usize) -> Option<Operation> {
    let (slot, decision) = (&planner.slots.all[number], &planner.decisions[number]);
    let recorded = slot.operation();
    // What is on the wire stays on record until it is read back, whatever became of its node meanwhile; and
    // nothing begins before that.
    if slot.busy || slot.stale || matches!(slot.state, State::Unknown(_)) {
        return recorded.cloned();
    }
    let paused = planner.index.claims[slot.claim].spec.paused;
    if paused && decision.reason == Reason::Paused && finished_move(planner, slot, decision).is_none() {
        return recorded.cloned();
    }
    // A move that waits half-way, for a pause to end or a node to come, is still the same move.
    if decision.moving.is_none() && matches!(slot.state, State::Free { .. }) && !slot.released {
        return recorded.cloned();
    }
    let cause = decision.moving?;
    let index = planner.index;
    let from_provider_id = recorded
        .map_or_else(|| slot.on_instance().map(str::to_owned), |recorded| recorded.from_provider_id.clone());
    let from = match recorded {
        Some(recorded) => recorded.from.clone(),
        None => slot.on_instance().and(place(planner, slot).1.or_else(|| slot.recorded?.node.clone())),
    };
    let target = decision.target.map(|node| &index.nodes[node]);
    Some(Operation {
        id: operation_id(planner, number),
        cause: cause.as_str().to_owned(),
        from,
        from_provider_id,
        token: token(slot, recorded),
        to: target.map(|entry| entry.name.to_owned()),
        to_provider_id: target.map(|entry| entry.node.provider_id.clone()),
        started_at: recorded.map_or_else(|| index.now.into(), |recorded| recorded.started_at.clone()),
        epoch: recorded.map_or(index.world.epoch, |recorded| recorded.epoch),
    })
}

/// The attachment that the operation ends, as it was read last: an operation that has brought the address
/// elsewhere is over.
fn token(slot: &Slot<'_>, recorded: Option<&Operation>) -> Option<String> {
    match slot.state {
        State::On { token, .. } => Some(token.to_owned()),
        _ => recorded?.token.clone(),
    }
}

/// Identity of an operation: which address, for whom, since when. It is in the status before the first
/// call, so it is the same after a crash.
pub fn operation_id(planner: &Planner<'_, '_>, number: usize) -> String {
    let slot = &planner.slots.all[number];
    if let Some(recorded) = slot.operation() {
        return recorded.id.clone();
    }
    let claim = &planner.index.claims[slot.claim];
    let text = format!("{}/{}/{}", claim.object.uid, slot.address, planner.index.now.0);
    digest(&text)
}

/// 128 bits that depend on the text alone: FNV-1a, twice with different starts.
pub fn digest(text: &str) -> String {
    let hash =
        |start: u64| text.bytes().fold(start, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4))
}

fn finished_move(planner: &Planner<'_, '_>, slot: &Slot<'_>, decision: &Decision) -> Option<Move> {
    if slot.busy || slot.stale {
        return None;
    }
    let recorded = slot.recorded?;
    let now = planner.index.now;
    let here = slot.on_node().map(|node| planner.index.nodes[node].name.to_owned());
    match (&recorded.operation, slot.state) {
        (Some(operation), State::On { provider_id, .. })
            if operation.from_provider_id.as_deref() != Some(provider_id) =>
        {
            Some(history_entry(slot, operation, here, now))
        }
        (Some(operation), State::Free { .. }) if slot.released && decision.moving.is_none() => {
            Some(history_entry(slot, operation, None, now))
        }
        (None, State::On { provider_id, .. })
            if decision.moving.is_none()
                && recorded.provider_id.as_deref().is_some_and(|before| before != provider_id) =>
        {
            Some(Move {
                address: recorded.address.clone(),
                when: now.into(),
                from: recorded.node.clone(),
                to: here,
                cause: Reason::Adopted.as_str().to_owned(),
                duration: "0s".to_owned(),
            })
        }
        _ => None,
    }
}

fn history_entry(slot: &Slot<'_>, operation: &Operation, to: Option<String>, now: Time) -> Move {
    let millis = now.millis_since(Time::from(operation.started_at.0));
    Move {
        address: slot.address.to_string(),
        when: now.into(),
        from: operation.from.clone(),
        to,
        cause: operation.cause.clone(),
        duration: format!("{}.{}s", millis / 1000, millis % 1000 / 100),
    }
}

/// A sentence for a person.
fn sentence(planner: &Planner<'_, '_>, slot: &Slot<'_>, decision: &Decision) -> String {
    let node = place(planner, slot).1.map_or_else(String::new, |node| format!("On {node}. "));
    let target = decision.target.map(|target| format!(" Goes to {}.", planner.index.nodes[target].name));
    let detail = if decision.detail.is_empty() { String::new() } else { format!(" ({})", decision.detail) };
    format!("{node}{}{detail}{}", decision.reason.meaning(), target.unwrap_or_default())
}

/// What mode Plan would do: moves, labels and evictions.
fn planned(planner: &Planner<'_, '_>, claim: usize, slots: &[usize]) -> Vec<PlannedAction> {
    let moves = slots.iter().filter_map(|number| planned_move(planner, *number));
    let evictions =
        planner.would_evict.iter().filter(|(of, _)| *of == claim).map(|(_, node)| PlannedAction {
            address: None,
            action: "Evict".to_owned(),
            from: node.clone(),
            to: None,
            cause: Reason::Misplaced.as_str().to_owned(),
        });
    moves.chain(evictions).collect()
}

fn planned_move(planner: &Planner<'_, '_>, number: usize) -> Option<PlannedAction> {
    let (slot, decision) = (&planner.slots.all[number], &planner.decisions[number]);
    let here = place(planner, slot).1;
    let name = planner.index.claims[slot.claim].name;
    let unmarked = slot.on_node().filter(|node| !marks::is_home(planner.index.nodes[*node].node, name));
    let to = decision.target.map(|node| planner.index.nodes[node].name.to_owned());
    let (action, from, to, cause) = match (decision.moving, here, to) {
        (Some(cause), None, to) => ("Attach", None, to, cause),
        (Some(cause), here, None) => ("Detach", here, None, cause),
        (Some(cause), here, to) => ("Move", here, to, cause),
        (None, here, _) if decision.marked && unmarked.is_some() => ("Label", None, here, decision.reason),
        (None, ..) => return None,
    };
    Some(PlannedAction {
        address: Some(slot.address.to_string()),
        action: action.to_owned(),
        from,
        to,
        cause: cause.as_str().to_owned(),
    })
}

type Verdict = (&'static str, bool, Reason, String);

/// What the conditions of one allocation are made from.
struct Summary<'p, 'w> {
    slots: Vec<(&'p Slot<'w>, &'p Decision)>,
    lost: Vec<&'p Lost<'w>>,
    notes: BTreeMap<Reason, &'p str>,
    acting: bool,
    paused: bool,
    reserved: usize,
    attached: usize,
    moving: usize,
}

impl Summary<'_, '_> {
    fn ready(&self) -> (bool, Reason) {
        let troubled = self.slots.iter().find(|(_, decision)| decision.degraded);
        if !self.acting {
            (false, Reason::PlanOnly)
        } else if let Some((_, decision)) = troubled {
            (false, decision.reason)
        } else if self.moving > 0 {
            (false, Reason::Moving)
        } else if !self.lost.is_empty() {
            (false, Reason::HeldByAllocation)
        } else if self.slots.iter().any(|(_, decision)| is_on_lost_node(decision)) {
            (false, Reason::WaitingForTarget)
        } else if self.attached == self.reserved {
            let worth_a_look = [Reason::WorkloadNotFound, Reason::MorePodsThanAddresses];
            let note = worth_a_look.into_iter().find(|note| self.notes.contains_key(note));
            (true, note.unwrap_or(Reason::AllAttached))
        } else if self.paused {
            (false, Reason::Paused)
        } else if self.attached > 0 {
            (false, Reason::MoreAddressesThanNodes)
        } else {
            (false, Reason::NoEligibleNode)
        }
    }

    /// What is the matter, if anything is.
    fn trouble(&self, planner: &Planner<'_, '_>) -> Option<(Reason, String)> {
        let of_an_address =
            self.slots.iter().find(|(_, decision)| decision.degraded).map(|(slot, decision)| {
                (decision.reason, format!("{}: {}", slot.address, sentence(planner, slot, decision)))
            });
        of_an_address.or_else(|| {
            let troubles = [Reason::WorkloadUnknown, Reason::EvictionStopped, Reason::EvictionRefused];
            let found = troubles.into_iter().find_map(|reason| Some((reason, self.notes.get(&reason)?)))?;
            Some((found.0, format!("{} ({}).", found.0.meaning(), found.1)))
        })
    }

    /// How far it has come, and what is worth knowing besides.
    fn progress(&self) -> String {
        let tally = self.slots.iter().find_map(|(_, decision)| decision.tally.as_ref());
        let tally = tally.map(|tally| format!(" {}.", tally.sentence())).unwrap_or_default();
        let notes: Vec<String> = self.notes.values().map(|note| format!(" {note}.")).collect();
        let notes = notes.concat();
        format!("{} of {} addresses are attached.{tally}{notes}", self.attached, self.reserved)
    }

    /// The addresses that other allocations have, and which ones.
    fn conflict(&self) -> Option<String> {
        let mut by_winner: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for lost in &self.lost {
            by_winner.entry(lost.winner).or_default().push(lost.address.to_string());
        }
        let of_one = |(winner, addresses): (&str, Vec<String>)| {
            format!("NetIPAllocation {winner}, which comes first, has {}", addresses.join(", "))
        };
        let all: Vec<String> = by_winner.into_iter().map(of_one).collect();
        (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
    }
}

fn conditions(planner: &Planner<'_, '_>, claim: usize, slots: &[usize], attached: usize) -> Vec<Verdict> {
    let spec = planner.index.claims[claim].spec;
    let acting = planner.index.claims[claim].enforces();
    let slots: Vec<_> = slots.iter().map(|n| (&planner.slots.all[*n], &planner.decisions[*n])).collect();
    let summary = Summary {
        moving: slots.iter().filter(|(_, decision)| acting && decision.moving.is_some()).count(),
        slots,
        lost: planner.slots.lost.iter().filter(|lost| lost.claim == claim).collect(),
        notes: planner
            .notes
            .range((claim, Reason::AllAttached)..(claim + 1, Reason::AllAttached))
            .map(|((_, reason), message)| (*reason, message.as_str()))
            .collect(),
        acting,
        paused: spec.paused,
        reserved: spec.addresses.len(),
        attached,
    };
    let (ready, why) = summary.ready();
    let hanging = planner.hanging.get(&claim).map(|pods| hanging_pods(pods)).unwrap_or_default();
    let ready_message = format!("{}{hanging}", summary.progress());
    let degraded = match summary.trouble(planner) {
        Some((reason, message)) => (true, reason, message),
        None => (false, Reason::AllAttached, String::new()),
    };
    let conflict = summary.conflict();
    let or_fine = |so: bool, reason| if so { reason } else { Reason::AllAttached };
    let on_the_move = format!("{} addresses are on the move.", summary.moving);
    vec![
        ("Ready", ready, why, ready_message),
        ("Progressing", summary.moving > 0, or_fine(summary.moving > 0, Reason::Moving), on_the_move),
        ("Degraded", degraded.0, degraded.1, degraded.2),
        (
            "Conflict",
            conflict.is_some(),
            or_fine(conflict.is_some(), Reason::HeldByAllocation),
            conflict.unwrap_or_default(),
        ),
    ]
}

/// It has to leave a node that does not work, and cannot.
fn is_on_lost_node(decision: &Decision) -> bool {
    decision.reason == Reason::WaitingForTarget
        && matches!(decision.verdict, leave::Verdict::Leave { forced: true, .. })
}

/// Kubernetes makes no second pod of a StatefulSet while it cannot be sure that the first is gone, and
/// neither do we.
fn hanging_pods(pods: &[String]) -> String {
    format!(
        " Pods {} hang on lost nodes, and their StatefulSet waits for them: once the machines are surely \
         down, end them with `kubectl delete pod --force`, or put the taint \
         node.kubernetes.io/out-of-service on the nodes.",
        pods.join(", ")
    )
}

/// Keeps the transition time of a condition whose status does not change.
fn set_conditions(conditions: &mut Vec<Condition>, verdicts: &[Verdict], generation: i64, now: Time) {
    for (type_, status, reason, message) in verdicts {
        let status = if *status { "True" } else { "False" };
        let before = conditions.iter().position(|condition| condition.type_ == *type_);
        let since = before
            .map(|i| &conditions[i])
            .filter(|c| c.status == status)
            .map(|c| c.last_transition_time.clone());
        let condition = Condition {
            type_: (*type_).to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            observed_generation: Some(generation),
            last_transition_time: since.unwrap_or_else(|| now.into()),
        };
        match before {
            Some(i) => conditions[i] = condition,
            None => conditions.push(condition),
        }
    }
}
