//! Faults of a world that was written down wrong, and what to do about them.

use super::{AddressSpec, World};
use crate::model::things::Cloud;
use crate::provider_id;
use std::collections::HashSet;
use std::net::IpAddr;

/// Why a world cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WorldError {
    /// The text is no YAML, or not of a world.
    #[error("the state file cannot be read: {0}\nsee docs/simulators.md for its fields")]
    Yaml(String),
    /// A provider ID of an unknown form.
    #[error(
        "{place}: '{id}' is no provider ID of a simulated cloud; write gce://PROJECT/ZONE/NAME, \
         aws:///ZONE/i-ID or azure:///subscriptions/SUB/resourceGroups/GROUP/providers/Microsoft.Compute/\
         virtualMachines/NAME"
    )]
    ProviderId {
        /// Where it stands.
        place: String,
        /// What stands there.
        id: String,
    },
    /// Two instances of one provider ID.
    #[error("{place}: the instance '{id}' is there already; give it another name")]
    SameInstance {
        /// Where the second one stands.
        place: String,
        /// The provider ID.
        id: String,
    },
    /// Two reserved addresses that are the same.
    #[error("{place}: the address {address} is reserved already; reserve each address once")]
    SameAddress {
        /// Where the second one stands.
        place: String,
        /// The address.
        address: IpAddr,
    },
    /// An address is held by an instance that is not there.
    #[error("{place}: {address} is held by '{holder}', but there is no such instance; add it to instances")]
    NoHolder {
        /// Where it stands.
        place: String,
        /// The address.
        address: IpAddr,
        /// Who should hold it.
        holder: String,
    },
    /// An instance holds two addresses on one private address.
    #[error("{place}: '{holder}' has a reserved address already; a private address can have one")]
    TwoOnOne {
        /// Where the second one stands.
        place: String,
        /// The instance.
        holder: String,
    },
    /// An address and its holder are in two clouds.
    #[error("{place}: {address} is of {cloud}, but its holder '{holder}' is not; use an instance of {cloud}")]
    OtherCloud {
        /// Where it stands.
        place: String,
        /// The address.
        address: IpAddr,
        /// Its cloud.
        cloud: Cloud,
        /// Who should hold it.
        holder: String,
    },
    /// An instance without interfaces.
    #[error("{place}: an instance has at least one interface and each has at least one private address")]
    NoInterface {
        /// Where it stands.
        place: String,
    },
}

impl World {
    /// Finds what is wrong before anything is made of it.
    pub(super) fn check(&self) -> Result<(), WorldError> {
        let mut known = HashSet::new();
        for (n, instance) in self.instances.iter().enumerate() {
            let place = format!("instances[{n}]");
            let id = instance.provider_id.clone();
            let Some(parsed) = provider_id::parse(&id) else {
                return Err(WorldError::ProviderId { place, id });
            };
            if instance.interfaces == 0 || instance.private_addresses == 0 {
                return Err(WorldError::NoInterface { place });
            }
            if !known.insert(parsed.key()) {
                return Err(WorldError::SameInstance { place, id });
            }
        }
        let mut reserved = HashSet::new();
        let mut holders = HashSet::new();
        for (n, address) in self.addresses.iter().enumerate() {
            let place = format!("addresses[{n}]");
            if !reserved.insert(address.address) {
                let address = address.address;
                return Err(WorldError::SameAddress { place, address });
            }
            check_holder(place, address, &known, &mut holders)?;
        }
        for (caller, id) in &self.callers {
            if provider_id::parse(id).is_none() {
                let place = format!("callers.{caller}");
                return Err(WorldError::ProviderId { place, id: id.clone() });
            }
        }
        Ok(())
    }
}

fn check_holder(
    place: String,
    spec: &AddressSpec,
    known: &HashSet<String>,
    holders: &mut HashSet<String>,
) -> Result<(), WorldError> {
    let Some(holder) = &spec.held_by else {
        return Ok(());
    };
    let Some(instance) = provider_id::parse(holder) else {
        return Ok(()); // another kind of resource, which needs no further description
    };
    let (address, holder) = (spec.address, holder.clone());
    if instance.cloud() != spec.cloud {
        let cloud = spec.cloud;
        return Err(WorldError::OtherCloud { place, address, cloud, holder });
    }
    if !known.contains(&instance.key()) {
        return Err(WorldError::NoHolder { place, address, holder });
    }
    if !holders.insert(instance.key()) {
        return Err(WorldError::TwoOnOne { place, holder });
    }
    Ok(())
}
