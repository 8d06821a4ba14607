//! What is called, by whom, and how often.

use super::Found;
use crate::history::{Call, History, Hold, Lease, Outcome, Purpose, What};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// I3. Calls of ours that change things name addresses and instances of ours alone, whether they are refused or
/// not; and no address that no allocation has listed yet.
pub fn only_ours(history: &History) -> Found {
    let addresses = history.scope.addresses();
    let mut found = Vec::new();
    for (at, event, call) in history.our_calls().filter(|(_, _, call)| call.purpose.changes()) {
        if let Some(address) = call.address.filter(|address| !addresses.contains(address)) {
            found.push((event.at, format!("{} calls {:?} on {address}", call.caller, call.purpose)));
        } else if let Some(address) = call.address.filter(|address| !history.was_listed(*address, at)) {
            let what = format!("{} calls {:?} on {address}, which nobody lists", call.caller, call.purpose);
            found.push((event.at, what));
        }
        if let Some(instance) = call.instance.as_ref().filter(|id| !history.scope.instances.contains(*id)) {
            found.push((event.at, format!("{} calls {:?} on {instance}", call.caller, call.purpose)));
        }
    }
    found
}

/// I11. Nothing of ours reserves addresses: it moves those that are listed.
pub fn never_reserved(history: &History) -> Found {
    let calls = history.our_calls().filter(|(_, _, call)| call.purpose == Purpose::Reserve);
    calls.map(|(_, event, call)| (event.at, format!("{} reserves an address", call.caller))).collect()
}

/// I12. What was accepted is not asked for again, unless the first answer got lost, something failed, or the
/// world changed in between by something else than that call.
pub fn never_twice(history: &History) -> Found {
    let mut found = Vec::new();
    let mut last: BTreeMap<String, &Call> = BTreeMap::new();
    for event in &history.events {
        match &event.what {
            What::Hold(hold) => {
                last.retain(|_, call| call.address != Some(hold.address) || is_its_effect(call, hold));
            }
            What::OperationFailed { .. } => last.clear(),
            What::Own(own) => last.retain(|_, call| {
                let effect = call.purpose == if own.has { Purpose::GiveOwn } else { Purpose::TakeOwn };
                call.instance.as_ref() != Some(&own.instance) || effect
            }),
            What::Call(call) if history.scope.is_ours(&call.caller) && call.purpose.changes() => {
                let same = format!("{:?} {:?} {:?}", call.purpose, call.address, call.instance);
                let before = last.insert(same.clone(), call);
                let done = before.is_some_and(|before| before.outcome == Outcome::Accepted);
                if done && call.outcome == Outcome::Accepted {
                    found.push((event.at, format!("{} repeats {same}, which was accepted", call.caller)));
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether an address changed hands as a call wanted it to.
fn is_its_effect(call: &Call, hold: &Hold) -> bool {
    match call.purpose {
        Purpose::Attach => hold.after.is_some() && hold.after == call.instance,
        Purpose::Detach => hold.after.is_none() && hold.before == call.instance,
        _ => false,
    }
}

/// I13. A call of ours that changes things comes while its caller holds a lease that has not run out, and the
/// numbers of the terms go up.
pub fn led(history: &History) -> Found {
    let mut found = Vec::new();
    let mut lease: Option<(&Lease, Timestamp)> = None;
    for event in &history.events {
        match &event.what {
            What::Lease(next) => {
                if let Some((before, _)) = lease
                    && next.transitions < before.transitions
                {
                    let what = format!("term {} after {}", next.transitions, before.transitions);
                    found.push((event.at, what));
                }
                lease = Some((next, event.at));
            }
            What::Call(call) if history.scope.is_ours(&call.caller) && call.purpose.changes() => {
                if let Some(what) = not_led(call, event.at, lease) {
                    found.push((event.at, what));
                }
            }
            _ => {}
        }
    }
    found
}

/// Why a caller may not write now. Histories without any lease have nothing to say about it.
fn not_led(call: &Call, at: Timestamp, lease: Option<(&Lease, Timestamp)>) -> Option<String> {
    let (lease, renewed) = lease?;
    let caller = &call.caller;
    let holder = lease.holder.as_deref().unwrap_or("nobody");
    // An identity is the name of a pod and something that no other process has.
    if holder.split('_').next() != Some(caller) {
        return Some(format!("{caller} calls {:?} while {holder} leads", call.purpose));
    }
    let age = at.duration_since(renewed);
    (age > SignedDuration::from_secs(lease.seconds)).then(|| {
        format!("{caller} calls {:?} {age:#} after it renewed a lease of {} s", call.purpose, lease.seconds)
    })
}

/// I14. A token bucket over the calls of ours that change things.
pub fn bounded(history: &History) -> Found {
    let (burst, per_second) = history.scope.calls;
    let mut buckets: BTreeMap<&str, (f64, Timestamp)> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, event, call) in history.our_calls().filter(|(_, _, call)| call.purpose.changes()) {
        let (tokens, last) = buckets.entry(&call.caller).or_insert((burst, event.at));
        let passed = event.since(*last).as_secs_f64().max(0.0);
        *tokens = (*tokens + passed * per_second).min(burst) - 1.0;
        *last = event.at;
        if *tokens < 0.0 {
            found.push((event.at, format!("{} calls more than {per_second} times a second", call.caller)));
            *tokens = 0.0;
        }
    }
    found
}
