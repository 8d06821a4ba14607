//! One address of one allocation: where it is, and whether we may have a say.

use crate::index::Index;
use crate::{AddressView, Time, WriteKind};
use crds::{IpStatus, Operation, ReleasePolicy};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// How long a reading that contradicts a successful write is put down to the cloud's lag.
const SETTLE_SECONDS: i64 = 10;

/// An address that an allocation has a say in.
pub struct Slot<'w> {
    /// Index of its allocation in [`Index::claims`].
    pub claim: usize,
    /// Place in the list; addresses that are not listed any more come last.
    pub position: usize,
    pub address: IpAddr,
    /// What our status says of it.
    pub recorded: Option<&'w IpStatus>,
    pub state: State<'w>,
    /// The reading is older than the last write, or contradicts it: read again before anything else.
    pub stale: bool,
    /// It is to be given up: not listed any more, or its allocation is being deleted.
    pub released: bool,
    /// A step for it is under way.
    pub busy: bool,
}

/// Where an address is.
#[derive(Clone, Copy, Debug)]
pub enum State<'w> {
    Unknown(&'w str),
    NotFound,
    /// On something that is not ours to touch.
    Foreign(&'w str),
    Free {
        token: &'w str,
    },
    /// On an instance that is a node, or was one when we attached it.
    On {
        node: Option<usize>,
        provider_id: &'w str,
        token: &'w str,
    },
}

impl<'w> Slot<'w> {
    /// The operation that is under way. One that has brought the address to another instance is over,
    /// also when the address has to leave that one at once: that is another operation.
    pub fn operation(&self) -> Option<&'w Operation> {
        let operation = self.recorded?.operation.as_ref()?;
        let on_the_wire = self.busy || self.stale;
        let here = self.on_instance();
        let arrived = !on_the_wire && here.is_some() && here != operation.from_provider_id.as_deref();
        (!arrived).then_some(operation)
    }

    pub fn on_node(&self) -> Option<usize> {
        match self.state {
            State::On { node, .. } => node,
            _ => None,
        }
    }

    pub fn on_instance(&self) -> Option<&'w str> {
        match self.state {
            State::On { provider_id, .. } => Some(provider_id),
            _ => None,
        }
    }

    /// Since when it has been where it is, by our own record.
    pub fn since(&self) -> Option<Time> {
        self.recorded.and_then(|recorded| recorded.since.as_ref()).map(|time| Time::from(time.0))
    }
}

/// An address that an allocation lists and another one has.
pub struct Lost<'w> {
    pub claim: usize,
    pub address: IpAddr,
    pub winner: &'w str,
}

/// Who has a say in what.
pub struct Slots<'w> {
    pub all: Vec<Slot<'w>>,
    /// The slots of each claim, by their numbers.
    pub of_claim: Vec<Vec<usize>>,
    pub lost: Vec<Lost<'w>>,
}

impl<'w> Slots<'w> {
    /// Claims are in order of seniority, so the first that lists an address has it.
    pub fn new(index: &Index<'w>) -> Self {
        let mut owner: FxHashMap<IpAddr, usize> = FxHashMap::default();
        let mut slots = Self { all: Vec::new(), of_claim: Vec::new(), lost: Vec::new() };
        let busy: FxHashSet<IpAddr> = index.world.in_flight.iter().map(|step| step.address).collect();
        let records: Vec<_> =
            index.claims.iter().map(|claim| Records::new(&claim.object.status.ips)).collect();
        for (i, claim) in index.claims.iter().enumerate() {
            let recorded = &records[i];
            for (position, address) in claim.spec.addresses.iter().enumerate() {
                let winner = *owner.entry(*address).or_insert(i);
                if winner == i {
                    let record = recorded.of(*address, position);
                    slots.all.push(slot(index, i, position, *address, record, claim.object.deleting, &busy));
                } else {
                    slots.lost.push(Lost { claim: i, address: *address, winner: index.claims[winner].name });
                }
            }
        }
        for (i, recorded) in records.into_iter().enumerate() {
            let mut left: Vec<_> =
                recorded.0.into_iter().filter(|(_, record)| record.instances().next().is_some()).collect();
            left.sort_by_key(|(address, _)| *address);
            for (address, record) in left {
                if let Entry::Vacant(unowned) = owner.entry(address) {
                    unowned.insert(i);
                    slots.all.push(slot(index, i, usize::MAX, address, Some(record), true, &busy));
                }
            }
        }
        slots.of_claim = vec![Vec::new(); index.claims.len()];
        for (number, slot) in slots.all.iter().enumerate() {
            slots.of_claim[slot.claim].push(number);
        }
        slots
    }

    /// The addresses that a claim lists and others have. They were found in the order of claims.
    pub fn lost_by(&self, claim: usize) -> &[Lost<'w>] {
        let first = self.lost.partition_point(|lost| lost.claim < claim);
        let end = self.lost.partition_point(|lost| lost.claim <= claim);
        &self.lost[first..end]
    }

    pub fn of(&self, claim: usize) -> impl Iterator<Item = &Slot<'w>> {
        self.of_claim[claim].iter().map(|number| &self.all[*number])
    }
}

/// What the status of one allocation says of addresses.
struct Records<'w>(Vec<(IpAddr, &'w IpStatus)>);

impl<'w> Records<'w> {
    fn new(ips: &'w [IpStatus]) -> Self {
        Self(ips.iter().filter_map(|ip| Some((ip.address.parse().ok()?, ip))).collect())
    }

    /// What it says of an address that the spec lists at a position: mostly the status lists it there, too.
    fn of(&self, address: IpAddr, position: usize) -> Option<&'w IpStatus> {
        let here = self.0.get(position).filter(|(recorded, _)| *recorded == address);
        let found = here.or_else(|| self.0.iter().find(|(recorded, _)| *recorded == address));
        found.map(|(_, record)| *record)
    }
}

fn slot<'w>(
    index: &Index<'w>,
    claim: usize,
    position: usize,
    address: IpAddr,
    recorded: Option<&'w IpStatus>,
    released: bool,
    busy: &FxHashSet<IpAddr>,
) -> Slot<'w> {
    let state = state(index, address);
    let outdated = is_stale(index, address, &state);
    Slot {
        claim,
        position,
        address,
        recorded,
        state,
        stale: outdated,
        released,
        busy: busy.contains(&address),
    }
}

fn state<'w>(index: &Index<'w>, address: IpAddr) -> State<'w> {
    match index.world.addresses.get(&address).map(|seen| &seen.view) {
        None => State::Unknown("it has not been read yet"),
        Some(AddressView::Unknown { message }) => State::Unknown(message),
        Some(AddressView::NotFound) => State::NotFound,
        Some(AddressView::HeldByOther { holder }) => State::Foreign(holder),
        Some(AddressView::Free { token }) => State::Free { token },
        Some(AddressView::Attached { provider_id, token }) => {
            let node = index.node_of_instance(provider_id);
            if node.is_some() || is_our_doing(index, address, provider_id) {
                State::On { node, provider_id, token }
            } else {
                State::Foreign(provider_id)
            }
        }
    }
}

/// Whether we attached the address to this instance, or tried to: by the status, or by the memory of what
/// was called, since a call that failed may land after all.
fn is_our_doing(index: &Index<'_>, address: IpAddr, provider_id: &str) -> bool {
    let world = index.world;
    index.recorded(address).any(|recorded| recorded.instances().any(|named| named == provider_id))
        || world.last_write.get(&address).is_some_and(|write| write.provider_id == provider_id)
        || world.failures.contains_key(&(address, provider_id.to_owned()))
}

fn is_stale(index: &Index<'_>, address: IpAddr, state: &State<'_>) -> bool {
    let Some(write) = index.world.last_write.get(&address) else { return false };
    let Some(seen) = index.world.addresses.get(&address) else { return false };
    if matches!(state, State::Unknown(_)) {
        return false;
    }
    let lagging = write.succeeded
        && index.now < write.at.plus_seconds(SETTLE_SECONDS)
        && match (write.kind, state) {
            (WriteKind::Attach, State::Free { .. }) => true,
            (WriteKind::Detach, State::On { provider_id, .. }) => *provider_id == write.provider_id,
            _ => false,
        };
    seen.at <= write.at || lagging
}

/// Whether a released address is left where it is.
pub fn is_retained(index: &Index<'_>, slot: &Slot<'_>) -> bool {
    let claim = &index.claims[slot.claim];
    slot.released && (claim.spec.release == ReleasePolicy::Retain || !claim.enforces())
}
