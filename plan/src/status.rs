//! What every allocation's status should say.

use crate::conditions::{are_set, conditions, set_conditions};
use crate::decide::Planner;
use crate::decision::Decision;
use crate::slot::{Slot, State, is_retained};
use crate::tally::Tally;
use crate::{Reason, Time, marks};
use crds::{IpStatus, Move, NetIPAllocationStatus, NodeRefusal, Operation, PlannedAction};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

const HISTORY: usize = 10;

pub fn plan(planner: &mut Planner<'_, '_>) {
    let mut text = String::new();
    for (claim, object) in planner.index.claims.iter().enumerate() {
        let status = status(planner, claim, &planner.slots.of_claim[claim], &mut text);
        planner.plan.statuses.insert(object.name.to_owned(), status);
    }
    for (name, allocation) in &planner.index.world.allocations {
        if let Err(faults) = &allocation.spec {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let mut status = (*allocation.status).clone();
            status.observed_generation = Some(allocation.generation);
            let message = format!("The spec is not valid: {}", faults.join("; "));
            let verdicts = [
                ("Ready", false, Reason::InvalidSpec, message.clone()),
                ("Progressing", false, Reason::InvalidSpec, String::new()),
                ("Degraded", true, Reason::InvalidSpec, message),
            ];
            set_conditions(&mut status.conditions, &verdicts, allocation.generation, planner.index.now);
            planner.plan.statuses.insert(name.clone(), status.into());
        }
    }
}

/// The status of one allocation: the very same as before, if it is right already. There may be thousands that
/// wait, of which nothing is to be said but what was said before; nothing is made for them.
fn status(
    planner: &Planner<'_, '_>,
    claim: usize,
    slots: &[usize],
    text: &mut String,
) -> Arc<NetIPAllocationStatus> {
    let (object, spec) = (planner.index.claims[claim].object, planner.index.claims[claim].spec);
    let before = &object.status;
    let (ips, moves) = ips(planner, claim, slots, text);
    let is_attached = |(position, ip): &&(usize, Cow<'_, IpStatus>)| {
        ip.state == "Attached" && ip.node.is_some() && *position < usize::MAX
    };
    let attached = ips.iter().filter(is_attached).count();
    let reserved = spec.addresses.len();
    let verdicts = conditions(planner, claim, slots, attached);
    let acts = planner.index.claims[claim].enforces();
    let refusals = refusals(planner, slots);
    let plan = if acts { Vec::new() } else { planned(planner, claim, slots) };
    let counts = (count(reserved), count(attached), count(reserved.saturating_sub(attached)));
    let same_ips = ips.len() == before.ips.len()
        && ips
            .iter()
            .zip(&before.ips)
            .all(|((_, ip), old)| matches!(ip, Cow::Borrowed(ip) if std::ptr::eq(*ip, old)));
    let same = same_ips
        && moves.is_empty()
        && (before.reserved, before.attached, before.unattached) == counts
        && before.history.len() <= HISTORY
        && before.observed_generation == Some(object.generation)
        && before.refusals == *refusals
        && before.plan == plan
        && are_set(&before.conditions, &verdicts, object.generation);
    if same {
        return before.clone();
    }
    let mut history = before.history.clone();
    for ended in moves {
        history.insert(0, ended);
    }
    history.truncate(HISTORY);
    let mut status = NetIPAllocationStatus {
        observed_generation: Some(object.generation),
        conditions: before.conditions.clone(),
        reserved: counts.0,
        attached: counts.1,
        unattached: counts.2,
        ips: ips.into_iter().map(|(_, ip)| ip.into_owned()).collect(),
        refusals: refusals.into_owned(),
        history,
        plan,
    };
    set_conditions(&mut status.conditions, &verdicts, object.generation, planner.index.now);
    status.into()
}

type Entries<'p> = Vec<(usize, Cow<'p, IpStatus>)>;

/// The entries of an allocation's addresses with their positions in the spec, in order; and moves that have just
/// ended, in order.
fn ips<'p>(
    planner: &'p Planner<'_, '_>,
    claim: usize,
    slots: &[usize],
    text: &mut String,
) -> (Entries<'p>, Vec<Move>) {
    let (object, spec) = (planner.index.claims[claim].object, planner.index.claims[claim].spec);
    let mut ips: Entries<'p> = Vec::with_capacity(slots.len());
    let mut moves = Vec::new();
    for number in slots {
        let (ip, ended) = ip_status(planner, *number, text);
        moves.extend(ended);
        ips.extend(ip.map(|ip| (planner.slots.all[*number].position, ip)));
    }
    for lost in planner.slots.lost_by(claim) {
        let position = spec.addresses.iter().position(|listed| *listed == lost.address);
        let ip = lost_status(object.status.ips.as_slice(), lost.address, lost.winner, planner.index.now);
        ips.push((position.unwrap_or(usize::MAX), ip));
    }
    ips.sort_by_key(|(position, _)| *position);
    (ips, moves)
}

/// Why nodes cannot take an address, as far as one waits for a node.
fn refusals<'p>(planner: &'p Planner<'_, '_>, slots: &[usize]) -> Cow<'p, [NodeRefusal]> {
    let tally = slots.iter().find_map(|number| planner.decisions[*number].tally.as_ref());
    tally.map(Tally::refusals).unwrap_or_default()
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The entry of an address (the one on record, if it is right), and the move that has just ended, if one has.
/// A released address that is free has no entry any more.
fn ip_status<'p>(
    planner: &'p Planner<'_, '_>,
    number: usize,
    text: &mut String,
) -> (Option<Cow<'p, IpStatus>>, Option<Move>) {
    let (slot, decision) = (&planner.slots.all[number], &planner.decisions[number]);
    let index = planner.index;
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
        recorded.provider_id.as_deref() == provider_id && (provider_id.is_some() || recorded.state == state)
    });
    let since = unchanged.and_then(|recorded| recorded.since.as_ref());
    let enforces = index.claims[slot.claim].enforces();
    let operation = if enforces { operation(planner, number) } else { None };
    let reason = decision.reason.as_str();
    write_sentence(text, planner, slot, decision);
    let is_right = |recorded: &&IpStatus| {
        since.is_some()
            && recorded.state == state
            && recorded.node.as_deref() == node
            && recorded.reason.as_deref() == Some(reason)
            && recorded.message.as_deref() == Some(text)
            && recorded.operation.as_ref() == operation.as_deref()
            && is_written(slot.address, &recorded.address)
    };
    if let Some(right) = unchanged.filter(is_right) {
        return (Some(Cow::Borrowed(right)), moved);
    }
    let ip = IpStatus {
        address: slot.address.to_string(),
        state: state.to_owned(),
        node: node.map(str::to_owned),
        provider_id: provider_id.map(str::to_owned),
        since: since.cloned().or_else(|| Some(index.now.into())),
        reason: Some(reason.to_owned()),
        message: Some(text.clone()),
        operation: operation.map(Cow::into_owned),
    };
    (Some(Cow::Owned(ip)), moved)
}

/// Whether a text is an address as we write it.
fn is_written(address: IpAddr, text: &str) -> bool {
    let mut left = text;
    let mut rest = Rest(&mut left);
    write!(rest, "{address}").is_ok() && left.is_empty()
}

/// What is left of a text that something is compared with as it is written.
struct Rest<'r, 't>(&'r mut &'t str);

impl std::fmt::Write for Rest<'_, '_> {
    fn write_str(&mut self, written: &str) -> std::fmt::Result {
        *self.0 = self.0.strip_prefix(written).ok_or(std::fmt::Error)?;
        Ok(())
    }
}

/// State word, node and provider ID. Where nothing is known the last word stays.
fn place<'p>(
    planner: &'p Planner<'_, '_>,
    slot: &'p Slot<'_>,
) -> (&'static str, Option<&'p str>, Option<&'p str>) {
    match slot.state {
        State::Unknown(_) => {
            let recorded = slot.recorded;
            let node = recorded.and_then(|recorded| recorded.node.as_deref());
            ("Unknown", node, recorded.and_then(|recorded| recorded.provider_id.as_deref()))
        }
        State::NotFound => ("NotFound", None, None),
        State::Foreign(_) => ("HeldByOther", None, None),
        State::Free { .. } => ("Free", None, None),
        State::On { node, provider_id, .. } => {
            ("Attached", node.map(|node| planner.index.nodes[node].name), Some(provider_id))
        }
    }
}

fn lost_status<'p>(recorded: &'p [IpStatus], address: IpAddr, winner: &str, now: Time) -> Cow<'p, IpStatus> {
    let text = address.to_string();
    let before = recorded.iter().find(|ip| ip.address == text && ip.state == "HeldByOther");
    let ip = IpStatus {
        address: text,
        state: "HeldByOther".into(),
        node: None,
        provider_id: None,
        since: before.and_then(|ip| ip.since.clone()).or_else(|| Some(now.into())),
        reason: Some(Reason::HeldByAllocation.as_str().into()),
        message: Some(format!("NetIPAllocation {winner} lists it too, and comes first.")),
        operation: None,
    };
    before.filter(|before| **before == ip).map_or(Cow::Owned(ip), Cow::Borrowed)
}

/// The operation that is under way after this plan's steps have begun.
fn operation<'p>(planner: &'p Planner<'_, '_>, number: usize) -> Option<Cow<'p, Operation>> {
    let (slot, decision) = (&planner.slots.all[number], &planner.decisions[number]);
    let recorded = slot.operation();
    // What is on the wire stays on record until it is read back, whatever became of its node meanwhile; and
    // nothing begins before that.
    if slot.busy || slot.stale || matches!(slot.state, State::Unknown(_)) {
        return recorded.map(Cow::Borrowed);
    }
    let paused = planner.index.claims[slot.claim].spec.paused;
    if paused && decision.reason == Reason::Paused && finished_move(planner, slot, decision).is_none() {
        return recorded.map(Cow::Borrowed);
    }
    // A move that waits half-way, for a pause to end or a node to come, is still the same move.
    if decision.moving.is_none() && matches!(slot.state, State::Free { .. }) && !slot.released {
        return recorded.map(Cow::Borrowed);
    }
    let cause = decision.moving?;
    let index = planner.index;
    let from_provider_id = recorded
        .map_or_else(|| slot.on_instance().map(str::to_owned), |recorded| recorded.from_provider_id.clone());
    let from = match recorded {
        Some(recorded) => recorded.from.clone(),
        None => slot
            .on_instance()
            .and(place(planner, slot).1.or_else(|| slot.recorded?.node.as_deref()))
            .map(str::to_owned),
    };
    let target = decision.target.map(|node| &index.nodes[node]);
    let operation = Operation {
        id: operation_id(planner, number),
        cause: cause.as_str().to_owned(),
        from,
        from_provider_id,
        token: token(slot, recorded),
        to: target.map(|entry| entry.name.to_owned()),
        to_provider_id: target.map(|entry| entry.node.provider_id.clone()),
        started_at: recorded.map_or_else(|| index.now.into(), |recorded| recorded.started_at.clone()),
        epoch: recorded.map_or(index.world.epoch, |recorded| recorded.epoch),
    };
    Some(Cow::Owned(operation))
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

fn finished_move(planner: &Planner<'_, '_>, slot: &Slot<'_>, decision: &Decision<'_>) -> Option<Move> {
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
pub fn sentence(planner: &Planner<'_, '_>, slot: &Slot<'_>, decision: &Decision<'_>) -> String {
    let mut text = String::new();
    write_sentence(&mut text, planner, slot, decision);
    text
}

/// The same in place of what was there.
fn write_sentence(text: &mut String, planner: &Planner<'_, '_>, slot: &Slot<'_>, decision: &Decision<'_>) {
    text.clear();
    // Writing to a string never fails.
    if let Some(node) = place(planner, slot).1 {
        let _ = write!(text, "On {node}. ");
    }
    text.push_str(decision.reason.meaning());
    if !decision.detail().is_empty() {
        let _ = write!(text, " ({})", decision.detail());
    }
    if let Some(target) = decision.target {
        let _ = write!(text, " Goes to {}.", planner.index.nodes[target].name);
    }
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
    let here = place(planner, slot).1.map(str::to_owned);
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
