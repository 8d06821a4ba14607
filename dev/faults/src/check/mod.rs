//! What must never happen. Each invariant is a function of its own, and has a number that stays.

mod calls;
mod drains;
mod end;
mod holds;
mod marks;
mod says;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;

use crate::history::History;
use jiff::Timestamp;
use std::fmt;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number.
    pub invariant: &'static str,
    /// When that showed.
    pub at: Timestamp,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.invariant, self.at, self.what)
    }
}

/// What an invariant's function finds: when, and what.
type Found = Vec<(Timestamp, String)>;

/// An invariant.
#[derive(Clone, Copy)]
pub struct Invariant {
    /// Its number.
    pub name: &'static str,
    /// In one sentence.
    pub says: &'static str,
    check: fn(&History) -> Found,
}

/// Those that can be seen in a history.
pub const INVARIANTS: [Invariant; 18] = [
    Invariant {
        name: "I1",
        says: "an address is on one instance at a time, and none is attached that the last read showed on another",
        check: holds::one_place,
    },
    Invariant {
        name: "I2",
        says: "an instance has one reserved address, and none is attached to one that has another",
        check: holds::one_address,
    },
    Invariant {
        name: "I3",
        says: "nothing is called on addresses and instances that are not ours",
        check: calls::only_ours,
    },
    Invariant {
        name: "I4",
        says: "a node is marked only while, or shortly after, its instance has the address",
        check: marks::marked_is_attached,
    },
    Invariant {
        name: "I5",
        says: "marks are removed before a detach and added after a read showed the attachment; nothing else is touched",
        check: marks::order_of_marks,
    },
    Invariant {
        name: "I6",
        says: "no address leaves a cordoned node whose pods still run",
        check: drains::drained_first,
    },
    Invariant { name: "I7", says: "at the end nothing is written any more", check: end::at_rest },
    Invariant {
        name: "I8",
        says: "at the end as many addresses are attached as there are nodes for",
        check: end::all_attached,
    },
    Invariant { name: "I9", says: "no address moves without cause", check: holds::no_needless_moves },
    Invariant {
        name: "I10",
        says: "a finalizer goes after the addresses have gone, and no address is ever given back to the cloud",
        check: end::released_first,
    },
    Invariant { name: "I11", says: "no address is ever reserved", check: calls::never_reserved },
    Invariant { name: "I12", says: "nothing is done twice that was done", check: calls::never_twice },
    Invariant {
        name: "I13",
        says: "only the holder of a valid lease writes, and terms go up",
        check: calls::led,
    },
    Invariant { name: "I14", says: "calls that change things stay within their rate", check: calls::bounded },
    Invariant {
        name: "I15",
        says: "a node is known by its UID, not by its name alone",
        check: marks::same_node,
    },
    Invariant {
        name: "I18",
        says: "Ready is said only when all addresses are attached, generations go up, reasons are words",
        check: says::truthful,
    },
    Invariant { name: "I19", says: "no secret is written anywhere", check: says::no_secrets },
    Invariant {
        name: "L2",
        says: "an instance that we took its own address from has one in the end, its own or ours",
        check: end::own_address_back,
    },
];

/// Those that cannot, and why.
pub const NOT_FROM_EVENTS: [(&str, &str); 3] = [
    (
        "I16",
        "what the webhook answers is a function of its request alone: property tests of the webhook crate",
    ),
    ("I17", "there is one version of the API: nothing is converted; when there are two, a property test"),
    ("I20", "panics and memory are seen at the process: exit codes and RSS, in the soak run"),
];

/// All violations, in the order of the invariants.
pub fn check(history: &History) -> Vec<Violation> {
    let each = INVARIANTS.iter().flat_map(|invariant| {
        let found = (invariant.check)(history).into_iter();
        found.map(|(at, what)| Violation { invariant: invariant.name, at, what })
    });
    each.collect()
}
