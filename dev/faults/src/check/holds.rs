//! Who has which address.

use super::Found;
use crate::history::{History, Purpose, What};
use std::collections::{BTreeMap, BTreeSet};
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
        let Some(read) = history.last_fresh_read(address, Some(&call.caller), at) else { continue };
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

/// I2. No instance of ours has two reserved addresses at once, and nobody of ours asks for an address to be attached
/// to an instance that had another when he last read.
pub fn one_address(history: &History) -> Found {
    let mut found = Vec::new();
    let mut having: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for (at, event) in history.events.iter().enumerate() {
        match &event.what {
            What::Hold(hold) => {
                if let Some(before) = &hold.before {
                    having.entry(before).or_default().remove(&hold.address);
                }
                let Some(after) = &hold.after else { continue };
                let all = having.entry(after).or_default();
                all.insert(hold.address);
                let by_us = hold.by.as_deref().is_some_and(|by| history.scope.is_ours(by));
                if all.len() > 1 && by_us {
                    found.push((event.at, format!("{after} has {all:?}")));
                }
            }
            What::Call(call) if history.scope.is_ours(&call.caller) && call.purpose == Purpose::Attach => {
                let (Some(address), Some(to)) = (call.address, call.instance.as_deref()) else { continue };
                let others = having.get(to).into_iter().flatten().filter(|other| **other != address);
                let known = |other: &&IpAddr| {
                    let read = history.last_fresh_read(**other, Some(&call.caller), at);
                    read.is_some_and(|read| history.holder(**other, read) == Some(to))
                };
                if let Some(other) = others.into_iter().find(known) {
                    let what = format!("{} attaches {address} to {to}, which has {other}", call.caller);
                    found.push((event.at, what));
                }
            }
            _ => {}
        }
    }
    found
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
