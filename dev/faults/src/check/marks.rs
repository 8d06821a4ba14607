//! Labels and annotation of nodes.

use super::Found;
use crate::history::{Event, History, Marks, Purpose, What};
use jiff::SignedDuration;
use std::net::IpAddr;

fn of_marks(event: &Event) -> Option<&Marks> {
    match &event.what {
        What::Marks(marks) => Some(marks),
        _ => None,
    }
}

/// I4. A node is marked with an address only while its instance has it, or if the last read showed it there a short
/// while ago; and at the end a node is marked if and only if its instance has an address of ours.
pub fn marked_is_attached(history: &History) -> Found {
    let mut found = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        let Some(marks) = of_marks(event).filter(|marks| marks.by == history.scope.user) else { continue };
        let Some(address) = marks.address else { continue };
        let instance = history.instance_of(&marks.node, at).map(|(id, _)| id);
        let holder = history.holder(address, at);
        if instance.is_none() || (holder != instance && shown(history, address, at) != instance) {
            found.push((event.at, format!("{} is marked with {address}, which {holder:?} has", marks.node)));
        }
    }
    found.extend(outlived(history));
    if history.scope.ended {
        found.extend(at_the_end(history));
    }
    found
}

/// Where the last read showed an address, if it is not long ago.
fn shown(history: &History, address: IpAddr, before: usize) -> Option<&str> {
    let read = history.last_fresh_read(address, None, before)?;
    let earliest = history.lag_before(history.events[before].at);
    (history.events[read].at >= earliest).then(|| history.holder(address, read)).flatten()
}

/// Marks that stayed longer than they may after the address was gone.
fn outlived(history: &History) -> Found {
    let lag = SignedDuration::try_from(history.scope.lag).unwrap_or(SignedDuration::MAX);
    let mut found = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        let What::Hold(hold) = &event.what else { continue };
        let Some(node) = hold.before.as_deref().and_then(|id| history.node_of(id, at)) else { continue };
        if history.mark(node, at) != Some(hold.address) {
            continue;
        }
        let ended = history.events[at..].iter().find(|later| ends(later, node, hold.address));
        let until = ended.map_or(history.end(), |later| later.at);
        if until.duration_since(event.at) > lag {
            found.push((event.at, format!("{node} stays marked with {}, which it lost", hold.address)));
        }
    }
    found
}

/// Whether an event makes a mark go, or true again.
fn ends(event: &Event, node: &str, address: IpAddr) -> bool {
    match &event.what {
        What::Marks(marks) => marks.node == node && marks.own && marks.address != Some(address),
        What::NodeGone { name } => name == node,
        What::Hold(hold) => hold.address == address && hold.after.is_some(),
        _ => false,
    }
}

fn at_the_end(history: &History) -> Found {
    let last = history.events.len();
    let mut found = Vec::new();
    for address in history.scope.addresses() {
        let Some(holder) = history.holder(address, last) else { continue };
        // Nobody marks for an allocation that is gone, whose addresses may stay.
        if !history.scope.instances.contains(holder) || history.owners(address, last).next().is_none() {
            continue;
        }
        let Some(node) = history.node_of(holder, last) else { continue };
        let mark = history.mark(node, last);
        if mark != Some(address) {
            found.push((history.end(), format!("{node} has {address} and is marked with {mark:?}")));
        }
    }
    found
}

/// I5. When a detach of ours is sent, the node is not marked any more; when a node is marked, a read that was
/// begun after the attachment has shown it; and no write of ours touches labels and annotations of others.
pub fn order_of_marks(history: &History) -> Found {
    let mut found = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        match &event.what {
            What::Call(call) if history.scope.is_ours(&call.caller) && call.purpose == Purpose::Detach => {
                let node = call.instance.as_deref().and_then(|id| history.node_of(id, at));
                let marked = node.and_then(|node| history.mark(node, at));
                if marked.is_some() && marked == call.address {
                    let what = format!("{marked:?} is to leave {node:?}, which is still marked with it");
                    found.push((event.at, what));
                }
            }
            What::Marks(marks) if marks.by == history.scope.user => {
                if !marks.others.is_empty() {
                    found.push((
                        event.at,
                        format!("{} of {} are not ours", marks.others.join(", "), marks.node),
                    ));
                }
                let unread = marks.address.filter(|address| !was_read(history, *address, at));
                if let Some(address) = unread {
                    let what =
                        format!("{} is marked with {address} before any read showed it there", marks.node);
                    found.push((event.at, what));
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether a read of ours was answered between the attachment and the event of that number. Histories without
/// any read have nothing to say about it.
fn was_read(history: &History, address: IpAddr, before: usize) -> bool {
    let Some(read) = history.last_read(address, None, before) else {
        return history.last_read(address, None, history.events.len()).is_none();
    };
    let attached = history.events[..before].iter().rposition(
        |event| matches!(&event.what, What::Hold(hold) if hold.address == address && hold.after.is_some()),
    );
    attached.is_none_or(|attached| read > attached)
}

/// I15. Marks are written for the node that has the name now, and not for one that had it before.
pub fn same_node(history: &History) -> Found {
    let mut found = Vec::new();
    for (at, event) in history.events.iter().enumerate() {
        let Some(marks) = of_marks(event).filter(|marks| marks.by == history.scope.user) else { continue };
        let Some((_, uid)) = history.instance_of(&marks.node, at) else { continue };
        match &marks.uid {
            Some(written) if written == uid => {}
            Some(written) => {
                found.push((event.at, format!("{} is {uid}, and marked as {written}", marks.node)));
            }
            None => found.push((event.at, format!("marks of {} name no UID", marks.node))),
        }
    }
    found
}
