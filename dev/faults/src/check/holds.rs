//! Who has which address.

use super::Found;
use crate::history::{Call, History, Outcome, Purpose, What};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// I1. An address that changes hands comes from nowhere, or leaves whoever had it; and nobody of ours asks for
/// an address to be attached that was on another instance when he last read.
pub fn one_place(history: &History) -> Found {
    let mut found = Vec::new();
    let ours = history.scope.addresses();
    for (at, event) in history.events.iter().enumerate() {
        let What::Hold(hold) = &event.what else { continue };
        if !ours.contains(&hold.address) {
            continue;
        }
        if let (Some(before), Some(after), Some(by)) = (&hold.before, &hold.after, &hold.by) {
            found.push((event.at, format!("{by} took {} from {before} for {after}", hold.address)));
        }
        let known = history.holder(hold.address, at);
        if let (Some(known), Some(after)) = (known, &hold.after)
            && hold.before.as_deref() != Some(known)
            && known != after
        {
            found.push((event.at, format!("{} came to {after} while it was on {known}", hold.address)));
        }
    }
    for (at, event, call) in history.our_calls() {
        let (Purpose::Attach, Some(address), Some(to)) = (call.purpose, call.address, &call.instance) else {
            continue;
        };
        let Some(read) = last_read(history, call, at) else { continue };
        if let Some(shown) = history.holder(address, read)
            && shown != to
        {
            let what =
                format!("{} attaches {address} to {to}, which its last read showed on {shown}", call.caller);
            found.push((event.at, what));
        }
    }
    found
}

/// The caller's last read of addresses that was answered, if what it showed was not old.
fn last_read(history: &History, call: &Call, before: usize) -> Option<usize> {
    let read = history.events[..before].iter().rposition(|event| match &event.what {
        What::Call(other) => {
            other.caller == call.caller
                && matches!(other.purpose, Purpose::Read { .. })
                && other.outcome == Outcome::Accepted
        }
        _ => false,
    })?;
    let fresh = matches!(&history.events[read].what, What::Call(read) if read.purpose == Purpose::Read { lags: false });
    fresh.then_some(read)
}

/// I2. No instance of ours has two reserved addresses at once.
pub fn one_address(history: &History) -> Found {
    let mut found = Vec::new();
    let mut having: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
    for event in &history.events {
        let What::Hold(hold) = &event.what else { continue };
        if let Some(before) = &hold.before {
            having.entry(before).or_default().retain(|address| *address != hold.address);
        }
        let Some(after) = &hold.after else { continue };
        let all = having.entry(after).or_default();
        all.push(hold.address);
        let by_us = hold.by.as_deref().is_some_and(|by| history.scope.is_ours(by));
        if all.len() > 1 && by_us {
            found.push((event.at, format!("{after} has {all:?}")));
        }
    }
    found
}

/// I6. No detach of ours is accepted from a cordoned node on which pods of the workload run, unless the time for
/// the drain is over.
pub fn drained_first(history: &History) -> Found {
    let mut found = Vec::new();
    let mut cordoned: BTreeMap<&str, bool> = BTreeMap::new();
    let mut running: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut over: BTreeMap<&str, bool> = BTreeMap::new();
    for (at, event) in history.events.iter().enumerate() {
        match &event.what {
            What::Cordon { node, cordoned: now } => {
                cordoned.insert(node, *now);
                over.insert(node, false);
            }
            What::DrainOver { node } => drop(over.insert(node, true)),
            What::Pods { node, allocation, running: now } => drop(running.insert((node, allocation), *now)),
            What::Call(call) if is_our_detach(history, call) => {
                let Some(node) = call.instance.as_deref().and_then(|id| history.node_of(id, at)) else {
                    continue;
                };
                let of = |name: &&String| {
                    let addresses = &history.scope.allocations[*name].addresses;
                    call.address.is_some_and(|address| addresses.contains(&address))
                };
                let pods: usize = history
                    .scope
                    .allocations
                    .keys()
                    .filter(of)
                    .map(|name| running.get(&(node, name.as_str())).copied().unwrap_or(0))
                    .sum();
                let is = |of: &BTreeMap<&str, bool>| of.get(node).copied().unwrap_or(false);
                if pods > 0 && is(&cordoned) && !is(&over) {
                    found
                        .push((event.at, format!("{:?} leaves {node}, where {pods} pods run", call.address)));
                }
            }
            _ => {}
        }
    }
    found
}

fn is_our_detach(history: &History, call: &Call) -> bool {
    history.scope.is_ours(&call.caller)
        && call.purpose == Purpose::Detach
        && !matches!(call.outcome, Outcome::Refused(_))
}

/// I9. No address leaves an instance by a call of ours more often than there was cause.
pub fn no_needless_moves(history: &History) -> Found {
    let Some(allowed) = &history.scope.moves else { return Vec::new() };
    let mut moves: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for event in &history.events {
        let What::Hold(hold) = &event.what else { continue };
        let by_us = hold.by.as_deref().is_some_and(|by| history.scope.is_ours(by));
        if hold.before.is_none() || !by_us || !history.scope.addresses().contains(&hold.address) {
            continue;
        }
        let count = moves.entry(hold.address).or_default();
        *count += 1;
        let allowed = allowed.get(&hold.address).copied().unwrap_or(0);
        if *count > allowed {
            let what =
                format!("{} left {:?}: {count} times, with cause for {allowed}", hold.address, hold.before);
            found.push((event.at, what));
        }
    }
    found
}
