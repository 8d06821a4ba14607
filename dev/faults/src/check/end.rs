//! How it ends.

use super::Found;
use crate::history::{History, Purpose, What};
use jiff::SignedDuration;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// I7. At the end no call of ours has changed anything for a while, nor has any while nothing was to happen.
pub fn at_rest(history: &History) -> Found {
    let quiet = SignedDuration::try_from(history.scope.quiet).unwrap_or(SignedDuration::MAX);
    let end = history.end();
    let mut found = Vec::new();
    for (_, event, call) in history.our_calls().filter(|(_, _, call)| call.purpose.changes()) {
        if end.duration_since(event.at) < quiet {
            found.push((event.at, format!("{} still calls {:?}", call.caller, call.purpose)));
        }
        // An instance gets its own address back beside everything else.
        let still = history.scope.still.iter().any(|(from, to)| (*from..*to).contains(&event.at));
        if still && call.purpose != Purpose::GiveOwn {
            let what = format!("{} calls {:?} while nothing is to happen", call.caller, call.purpose);
            found.push((event.at, what));
        }
    }
    found
}

/// I8. At the end there are as many addresses on eligible instances as there are addresses or instances,
/// whichever are fewer.
pub fn all_attached(history: &History) -> Found {
    let Some(eligible) = &history.scope.eligible else { return Vec::new() };
    let addresses = history.scope.addresses();
    let last = history.events.len();
    let attached = addresses
        .iter()
        .filter(|address| history.holder(**address, last).is_some_and(|holder| eligible.contains(holder)))
        .count();
    let wanted = addresses.len().min(eligible.len());
    if attached == wanted {
        return Vec::new();
    }
    vec![(history.end(), format!("{attached} addresses are attached, and {wanted} could be"))]
}

/// I10. Our finalizer goes when no address of the allocation is on an instance of ours any more (unless it is to
/// stay, or another allocation lists it), and no call of ours ever gives an address back to the cloud.
pub fn released_first(history: &History) -> Found {
    let mut found = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        match &event.what {
            What::Call(call) if history.scope.is_ours(&call.caller) && call.purpose == Purpose::Release => {
                found.push((event.at, format!("{} gives {:?} back to the cloud", call.caller, call.address)));
            }
            What::FinalizerGone { by, allocation } if *by == history.scope.user => {
                let retain = history.spec(allocation, None, at).map(|spec| spec.retain);
                let of = history.scope.allocations.get(allocation);
                if of.is_none() || retain.unwrap_or_else(|| of.is_some_and(|of| of.retain)) {
                    continue;
                }
                for address in &history.listed(allocation, None, at) {
                    // Another allocation that lists it has it from now on.
                    if history.owners(*address, at).any(|owner| owner != allocation) {
                        continue;
                    }
                    let holder = history.holder(*address, at);
                    if let Some(holder) = holder.filter(|holder| history.scope.instances.contains(*holder)) {
                        let what = format!("{allocation} is let go while {holder} has {address}");
                        found.push((event.at, what));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// L2. An instance that a call of ours took its own address from has one in the end, its own or a reserved one, if
/// there is a node of it.
pub fn own_address_back(history: &History) -> Found {
    if !history.scope.ended {
        return Vec::new();
    }
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for event in &history.events {
        let What::Own(own) = &event.what else { continue };
        let by_us = own.by.as_deref().is_some_and(|by| history.scope.is_ours(by));
        if own.has {
            taken.remove(own.instance.as_str());
        } else if by_us {
            taken.insert(&own.instance);
        }
    }
    let last = history.events.len();
    let addresses: BTreeSet<IpAddr> = history
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::Hold(hold) => Some(hold.address),
            _ => None,
        })
        .collect();
    let holds = |instance: &str| addresses.iter().any(|ip| history.holder(*ip, last) == Some(instance));
    let nodes = history.events.iter().any(|event| matches!(event.what, What::Node { .. }));
    let lives = |instance: &str| !nodes || history.node_of(instance, last).is_some();
    let bare = taken.iter().filter(|instance| !holds(instance) && lives(instance));
    bare.map(|instance| (history.end(), format!("{instance} has no address of its own any more"))).collect()
}
