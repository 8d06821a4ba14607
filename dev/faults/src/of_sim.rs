//! What happened in the simulated clouds.

use crate::history::{Call, Event, Hold, Outcome, Own, Purpose, What};
use sim::Kind;

/// The events of a simulator, with calls that were refused and repeated. What everybody started with comes first.
pub fn of_sim(start: &sim::Snapshot, events: &[sim::Event]) -> Vec<Event> {
    let first = events.first().map_or(jiff::Timestamp::UNIX_EPOCH, |event| event.at);
    let held = start.holds.values().map(|hold| {
        let what = Hold { address: hold.ip, before: None, after: Some(hold.holder.clone()), by: None };
        Event { at: first, what: What::Hold(what) }
    });
    held.chain(events.iter().flat_map(of_event)).collect()
}

fn of_event(event: &sim::Event) -> Vec<Event> {
    let mut what = Vec::new();
    if event.kind == Kind::Call
        && let Some(call) = call(event)
    {
        // What changes things is judged by when it was sent, what it read by when it was answered.
        let at = if call.purpose.changes() { event.received } else { event.at };
        what.push(Event { at, what: What::Call(call) });
    }
    let then = |what: What| Event { at: event.at, what };
    if let (Kind::Operation, Some(code)) = (event.kind, &event.code) {
        what.push(then(What::OperationFailed { code: code.clone() }));
    }
    let by = matches!(event.kind, Kind::Call | Kind::Operation).then(|| event.caller.clone());
    for change in &event.changes {
        let holder = |hold: &Option<sim::Hold>| hold.as_ref().map(|hold| hold.holder.clone());
        let (before, after) = (holder(&change.before), holder(&change.after));
        what.push(then(What::Hold(Hold { address: change.ip, before, after, by: by.clone() })));
    }
    for own in &event.own {
        let (instance, has) = (own.instance.clone(), own.after.is_some());
        what.push(then(What::Own(Own { instance, has, by: by.clone() })));
    }
    what
}

/// A call, if it changes things or reads addresses.
fn call(event: &sim::Event) -> Option<Call> {
    let outcome = match (event.status, &event.code) {
        (None, _) => Outcome::Unanswered,
        (Some(_), Some(code)) => Outcome::Refused(code.clone()),
        (Some(_), None) => Outcome::Accepted,
    };
    let about = event.about.as_ref();
    let purpose = match about.map(|about| about.purpose) {
        Some(sim::Purpose::Attach) => Purpose::Attach,
        Some(sim::Purpose::Detach) => Purpose::Detach,
        Some(sim::Purpose::GiveOwn) => Purpose::GiveOwn,
        Some(sim::Purpose::TakeOwn) => Purpose::TakeOwn,
        Some(sim::Purpose::Reserve) => Purpose::Reserve,
        Some(sim::Purpose::Release) => Purpose::Release,
        Some(sim::Purpose::Other) => Purpose::Other,
        None if event.mutating => Purpose::Other,
        None if reads_addresses(&event.action) => {
            Purpose::Read { lags: event.faults.iter().any(|fault| fault == "lag" || fault == "partial_list") }
        }
        None => return None,
    };
    Some(Call {
        caller: event.caller.clone(),
        purpose,
        address: about.and_then(|about| about.address),
        instance: about.and_then(|about| about.instance.clone()),
        outcome,
    })
}

fn reads_addresses(action: &str) -> bool {
    matches!(
        action,
        "addresses.aggregatedList"
            | "addresses.list"
            | "addresses.get"
            | "DescribeAddresses"
            | "publicIPAddresses.list"
            | "publicIPAddresses.get"
    )
}
