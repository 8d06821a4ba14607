//! Attaches and detaches addresses: one call that changes things each.

use super::model::{self, Place, filled};
use super::{Aws, errors, read};
use crate::{Call, Class, Error};
use std::net::IpAddr;
use tokio::time::Instant;

pub async fn preflight(
    aws: &Aws,
    address: IpAddr,
    provider_id: &str,
    deadline: Instant,
) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::new(Class::Permanent, message));
    let Some(found) = read::address(aws, address, deadline).await? else {
        return wrong(format!("the account has no elastic IP address {address} in this region"));
    };
    let Some(instance) = read::instance(aws, provider_id, deadline).await? else {
        return Err(Error::new(Class::Conflict, format!("there is no instance {provider_id}")));
    };
    let place = place_of(&instance, provider_id)?;
    if let Some(held) = place.holds.filter(|held| *held != address) {
        return wrong(format!("the instance's primary interface holds another elastic IP address, {held}"));
    }
    let expected = model::zone(&instance).and_then(model::border_group);
    let group = filled(found.network_border_group());
    if let (Some(expected), Some(group)) = (expected, group)
        && expected != group
    {
        return wrong(format!("{address} is advertised from {group}, the instance is in {expected}"));
    }
    Ok(())
}

fn place_of(instance: &aws_sdk_ec2::types::Instance, provider_id: &str) -> Result<Place, Error> {
    let none = || Error::new(Class::Conflict, format!("{provider_id} has no interface with index 0"));
    model::place(instance).ok_or_else(none)
}

/// Attaches an address that was free; never takes it from anybody.
pub async fn attach(
    aws: &Aws,
    address: IpAddr,
    provider_id: &str,
    allocation: &str,
    call: &Call<'_>,
) -> Result<(), Error> {
    read::check_version(address)?;
    let Some(instance) = read::instance(aws, provider_id, call.deadline).await? else {
        return Err(Error::new(Class::Conflict, format!("there is no instance {provider_id}")));
    };
    let place = place_of(&instance, provider_id)?;
    match place.holds {
        Some(held) if held == address => return Ok(()),
        Some(held) => {
            let message = format!("the instance's primary interface has another address by now: {held}");
            return Err(Error::new(Class::Conflict, message));
        }
        None => {}
    }
    let mut taken = false;
    let request = async {
        let request = aws.client().await.associate_address();
        let request = request.allocation_id(allocation).network_interface_id(&place.interface);
        let request = request.private_ip_address(&place.private_ip).allow_reassociation(false);
        request.send().await.map_err(|error| {
            taken = errors::code(&error) == Some("Resource.AlreadyAssociated");
            errors::of("ec2:AssociateAddress", &error)
        })
    };
    let answer = aws.gate.write("AssociateAddress", call, request).await;
    match answer {
        Ok(_) => Ok(()),
        // An earlier call of ours may have got there without our hearing of it.
        Err(error) if taken => {
            let found = read::address(aws, address, call.deadline).await?;
            let holder = found.as_ref().and_then(|found| filled(found.network_interface_id()));
            if holder == Some(place.interface.as_str()) { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// Ends one association. A later one of the same address has another id.
pub async fn detach(aws: &Aws, address: IpAddr, association: &str, call: &Call<'_>) -> Result<(), Error> {
    let mut gone = false;
    let request = async {
        let request = aws.client().await.disassociate_address().association_id(association);
        request.send().await.map_err(|error| {
            gone = errors::code(&error).is_some_and(|code| code.starts_with("InvalidAssociationID"));
            errors::of("ec2:DisassociateAddress", &error)
        })
    };
    match aws.gate.write("DisassociateAddress", call, request).await {
        Ok(_) => Ok(()),
        Err(error) if gone => ended(aws, address, association, error, call.deadline).await,
        Err(error) => Err(error),
    }
}

/// The association is gone. If the address has another one by now, whoever read the old one has to look again.
async fn ended(
    aws: &Aws,
    address: IpAddr,
    association: &str,
    error: Error,
    deadline: Instant,
) -> Result<(), Error> {
    let found = read::address(aws, address, deadline).await?;
    match found.as_ref().and_then(|found| filled(found.association_id())) {
        Some(other) if other != association => Err(error),
        _ => Ok(()),
    }
}
