//! What the controller asks of a cloud.

use crate::{Account, Class, Error};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// One account of a cloud. Reads are batches; writes are conditional, and "already so" is success.
#[async_trait]
pub trait Provider: Send + Sync + Debug {
    /// Reads addresses and instances in as few calls as the cloud has. What could not be read is
    /// `Unknown` with the reason; everything that was asked for has an answer.
    async fn read(&self, ask: &Ask, deadline: Instant) -> Reading;

    /// Whether the instance can take the address: region, tier, interface, quota where it can be known,
    /// and no static address of somebody else's on its interface. Only reads.
    async fn preflight(&self, address: IpAddr, provider_id: &str, deadline: Instant) -> Result<(), Error>;

    /// Attaches a free address. `token` is that of [`AddressState::Free`].
    async fn attach(
        &self,
        address: IpAddr,
        provider_id: &str,
        token: &str,
        call: &Call<'_>,
    ) -> Result<(), Error>;

    /// Detaches an address from the instance, if it is still attached as `token` says
    /// ([`AddressState::Attached`]).
    async fn detach(
        &self,
        address: IpAddr,
        provider_id: &str,
        token: &str,
        call: &Call<'_>,
    ) -> Result<(), Error>;

    /// Gives the instance back the address of its own that it had before ours, if the token of our
    /// attachment says that it had one; without a token, if an attach took it away and came to nothing. To be
    /// called after a detach, and for an instance that an address was not attached to after all, until it succeeds.
    async fn restore(&self, provider_id: &str, token: Option<&str>, call: &Call<'_>) -> Result<(), Error>;
}

/// Opens accounts. Opening does no call: credentials that are missing show in the first reading.
pub trait Connect: Send + Sync {
    /// The accounts that these instances and regions are in. An instance of a cloud that is not known, or
    /// a provider ID that is none, has none.
    fn accounts(&self, cloud: crate::Cloud, provider_ids: &[&str], region: Option<&str>)
    -> BTreeSet<Account>;

    /// The account of an instance.
    fn account_of(&self, provider_id: &str) -> Option<Account>;

    /// The provider for an account.
    fn open(&self, account: &Account) -> Result<Arc<dyn Provider>, Error>;
}

/// What to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Instances by provider ID.
    pub instances: BTreeSet<String>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// A state for each address that was asked for.
    pub addresses: BTreeMap<IpAddr, AddressState>,
    /// A state for each instance that was asked for.
    pub instances: BTreeMap<String, InstanceState>,
}

/// The cloud's word on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// On an instance.
    Attached {
        /// The instance, in the form that its node's `spec.providerID` has.
        provider_id: String,
        /// What fences a detach.
        token: String,
    },
    /// Reserved, and on nothing.
    Free {
        /// What fences an attach.
        token: String,
    },
    /// On something that is no instance: a load balancer, a NAT gateway, a router.
    HeldByOther {
        /// What holds it, in the cloud's words.
        holder: String,
    },
    /// The account has no such address.
    NotFound,
    /// Nothing is known.
    Unknown(Error),
}

/// The cloud's word on an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It runs, or is about to.
    Running {
        /// Why it cannot take an address, if it cannot.
        refuses: Option<Refusal>,
    },
    /// Stopped, suspended or terminated.
    Stopped,
    /// There is no such instance.
    NotFound,
    /// Nothing is known.
    Unknown(Error),
}

/// Why an instance cannot take an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its interface holds a static address that is not in any allocation's list.
    HoldsForeignAddress(IpAddr),
    /// The cloud cannot do it with this kind of instance.
    Unsupported(String),
}

/// What a write has to respect.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// When to give up.
    pub deadline: Instant,
    /// Idempotency key: equal for the same step after a crash, different for the next attempt.
    pub key: &'a str,
    /// Asked right before every mutating request: are we still the leader?
    pub may_write: &'a (dyn Fn() -> bool + Sync),
}

impl Call<'_> {
    /// Nothing may be sent once the lease is in doubt.
    pub fn check(&self) -> Result<(), Error> {
        if (self.may_write)() {
            return Ok(());
        }
        Err(Error::new(Class::Fenced, "the lease is not ours any more; nothing was sent"))
    }
}

/// The word of several accounts on one address: who has it knows; an account that could not be read might
/// have it.
pub fn merge(first: AddressState, second: AddressState) -> AddressState {
    match (first, second) {
        (AddressState::NotFound, other) | (other, AddressState::NotFound) => other,
        (AddressState::Unknown(_), known) if !matches!(known, AddressState::Unknown(_)) => known,
        (known, _) => known,
    }
}
