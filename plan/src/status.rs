//! What every allocation's status should say.

use crate::decide::{Decision, Planner};
use crate::slot::{Slot, State, is_retained};
use crate::{Reason, Time};
use crds::{IpStatus, Move, NetIPAllocationStatus, Operation, PlannedAction};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

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
    let mut ips: Vec<IpStatus> = Vec::new();
    for number in slots {
        let (ip, moved) = ip_status(planner, *number);
        if let Some(moved) = moved {
            history.insert(0, moved);
        }
        ips.extend(ip);
    }
    for lost in planner.slots.lost.iter().filter(|lost| lost.claim == claim) {
        ips.push(lost_status(object.status.ips.as_slice(), lost.address, lost.winner, planner.index.now));
    }
    history.truncate(HISTORY);
    ips.sort_by_key(|ip| position(&spec.addresses, &ip.address));
    let attached = ips
        .iter()
        .filter(|ip| ip.state == "Attached" && ip.node.is_some() && listed(&spec.addresses, &ip.address))
        .count();
    let reserved = spec.addresses.len();
    let mut status = NetIPAllocationStatus {
        observed_generation: Some(object.generation),
        conditions: object.status.conditions.clone(),
        reserved: count(reserved),
        attached: count(attached),
        unattached: count(reserved.saturating_sub(attached)),
        ips,
        history,
        plan: if planner.index.claims[claim].enforces() { Vec::new() } else { planned(planner, slots) },
    };
    let verdicts = conditions(planner, claim, slots, attached);
    set_conditions(&mut status.conditions, &verdicts, object.generation, planner.index.now);
    status
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn listed(addresses: &[std::net::IpAddr], text: &str) -> bool {
    position(addresses, text) < usize::MAX
}

fn position(addresses: &[std::net::IpAddr], text: &str) -> usize {
    let address = text.parse().ok();
    addresses.iter().position(|listed| Some(*listed) == address).unwrap_or(usize::MAX)
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
    let unchanged = slot.recorded.filter(|recorded| recorded.state == state && recorded.node == node);
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
            let gone = || slot.recorded.and_then(|r| r.node.clone());
            ("Attached", node.or_else(gone), Some(provider_id.to_owned()))
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
        message: Some(format!("NetIPAllocation {winner} lists it too, and is the older one.")),
        operation: None,
    }
}

/// The operation that is under way after this plan's steps have begun.
fn operation(planner: &Planner<'_, '_>, number: usize) -> Option<Operation> {
    let (slot, decision) = (&planner.slots.all[number], &planner.decisions[number]);
    let recorded = slot.operation();
    if matches!(slot.state, State::Unknown(_)) {
        return recorded.cloned();
    }
    let cause = decision.moving?;
    let index = planner.index;
    let from_provider_id = recorded
        .map_or_else(|| slot.on_instance().map(str::to_owned), |recorded| recorded.from_provider_id.clone());
    let from = match recorded {
        Some(recorded) => recorded.from.clone(),
        None => slot.on_instance().and(place(planner, slot).1),
    };
    let target = decision.target.map(|node| &index.nodes[node]);
    Some(Operation {
        id: operation_id(planner, number),
        cause: cause.as_str().to_owned(),
        from,
        from_provider_id,
        to: target.map(|entry| entry.name.to_owned()),
        to_provider_id: target.map(|entry| entry.node.provider_id.clone()),
        started_at: recorded.map_or_else(|| index.now.into(), |recorded| recorded.started_at.clone()),
        epoch: recorded.map_or(index.world.epoch, |recorded| recorded.epoch),
    })
}

/// Identity of an operation: what, for whom, since when, and where to. The same after a crash.
pub fn operation_id(planner: &Planner<'_, '_>, number: usize) -> String {
    let slot = &planner.slots.all[number];
    if let Some(recorded) = slot.operation() {
        return recorded.id.clone();
    }
    let claim = &planner.index.claims[slot.claim];
    let text = format!("{}/{}/{}", claim.object.uid, slot.address, planner.index.now.0);
    // FNV-1a, twice with different starts: 128 bits that depend on the text alone.
    let hash =
        |start: u64| text.bytes().fold(start, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4))
}

fn finished_move(planner: &Planner<'_, '_>, slot: &Slot<'_>, decision: &Decision) -> Option<Move> {
    if slot.busy || slot.stale || decision.moving.is_some() {
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
        (Some(operation), State::Free { .. }) if slot.released => {
            Some(history_entry(slot, operation, None, now))
        }
        (None, State::On { provider_id, .. })
            if recorded.provider_id.as_deref().is_some_and(|before| before != provider_id) =>
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

fn planned(planner: &Planner<'_, '_>, slots: &[usize]) -> Vec<PlannedAction> {
    slots
        .iter()
        .filter_map(|number| {
            let (slot, decision) = (&planner.slots.all[*number], &planner.decisions[*number]);
            let cause = decision.moving?;
            let from = place(planner, slot).1;
            let to = decision.target.map(|node| planner.index.nodes[node].name.to_owned());
            let action = match (&from, &to) {
                (None, _) => "Attach",
                (Some(_), Some(_)) => "Move",
                (Some(_), None) => "Detach",
            };
            Some(PlannedAction {
                address: Some(slot.address.to_string()),
                action: action.to_owned(),
                from,
                to,
                cause: cause.as_str().to_owned(),
            })
        })
        .collect()
}

type Verdict = (&'static str, bool, Reason, String);

fn conditions(planner: &Planner<'_, '_>, claim: usize, slots: &[usize], attached: usize) -> Vec<Verdict> {
    let spec = planner.index.claims[claim].spec;
    let reserved = spec.addresses.len();
    let decisions = || slots.iter().map(|number| (&planner.slots.all[*number], &planner.decisions[*number]));
    let lost: Vec<_> = planner.slots.lost.iter().filter(|lost| lost.claim == claim).collect();
    let acting = planner.index.claims[claim].enforces();
    let moving = decisions().filter(|(_, decision)| acting && decision.moving.is_some()).count();
    let waiting = decisions().filter(|(_, decision)| decision.reason == Reason::WaitingForNode).count();
    let troubled = decisions().find(|(_, decision)| decision.degraded);
    let note = planner.plan_notes.iter().find(|(of, _)| *of == claim).map(|(_, reason)| *reason);

    let summary = format!("{attached} of {reserved} addresses are attached.");
    let settled = moving == 0 && troubled.is_none() && lost.is_empty();
    let ready = if !acting {
        (false, Reason::PlanOnly)
    } else if attached == reserved && settled {
        (true, note.filter(|reason| *reason == Reason::MorePodsThanAddresses).unwrap_or(Reason::AllAttached))
    } else if settled && attached > 0 && attached + waiting == reserved && !spec.paused {
        (true, Reason::MoreAddressesThanNodes)
    } else if moving > 0 {
        (false, Reason::Moving)
    } else if let Some((_, decision)) = troubled {
        (false, decision.reason)
    } else if !lost.is_empty() {
        (false, Reason::HeldByAllocation)
    } else if spec.paused {
        (false, Reason::Paused)
    } else {
        (false, Reason::NoEligibleNode)
    };
    let degraded = match (troubled, note) {
        (Some((slot, decision)), _) => {
            (true, decision.reason, format!("{}: {}", slot.address, sentence(planner, slot, decision)))
        }
        (None, Some(Reason::EvictionStopped)) => {
            (true, Reason::EvictionStopped, Reason::EvictionStopped.meaning().to_owned())
        }
        _ => (false, Reason::AllAttached, String::new()),
    };
    let conflict = lost.first().map(|first| {
        let names: Vec<String> = lost.iter().map(|lost| lost.address.to_string()).collect();
        format!("{} belong to NetIPAllocation {}, the older one.", names.join(", "), first.winner)
    });
    vec![
        ("Ready", ready.0, ready.1, summary),
        (
            "Progressing",
            moving > 0,
            if moving > 0 { Reason::Moving } else { Reason::AllAttached },
            format!("{moving} addresses are on the move."),
        ),
        ("Degraded", degraded.0, degraded.1, degraded.2),
        (
            "Conflict",
            conflict.is_some(),
            if conflict.is_some() { Reason::HeldByAllocation } else { Reason::AllAttached },
            conflict.unwrap_or_default(),
        ),
    ]
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
