//! Attaches and detaches addresses: one conditional write of one interface each.

use super::client::Put;
use super::edit::with_public_address;
use super::model::{self, Interface};
use super::{Azure, NETWORK, operations, read};
use crate::{Call, Class, Error, ProviderId};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// An interface as it was read, and what is wanted of it.
struct Target {
    interface: Interface,
    document: String,
    /// The number of the IP configuration.
    config: usize,
}

pub async fn preflight(
    azure: &Azure,
    address: IpAddr,
    provider_id: &str,
    deadline: Instant,
) -> Result<(), Error> {
    let target = target(azure, address, provider_id, deadline).await?;
    let all = read::addresses(azure, deadline).await?;
    let known = read::by_ip(&all);
    let wrong = |message: String| Err(Error::new(Class::Permanent, message));
    let Some(found) = known.get(&address) else {
        return wrong(format!("the subscription has no public IP address {address}"));
    };
    let (here, there) = (&found.location, &target.interface.location);
    if !here.eq_ignore_ascii_case(there) {
        return wrong(format!(
            "{address} is in {here}, the machine in {there}: both have to be in one region"
        ));
    }
    let held = target.interface.public_address(target.config);
    if let Some(held) = held.filter(|held| !held.eq_ignore_ascii_case(&found.id)) {
        return wrong(format!("the machine's interface holds another public address, {held}"));
    }
    let config = &target.interface.properties.ip_configurations[target.config].properties;
    let balanced = config.load_balancer_backend_address_pools.as_ref().is_some_and(|pools| !pools.is_empty());
    let basic = found.sku.as_ref().is_some_and(|sku| sku.name.eq_ignore_ascii_case("Basic"));
    if balanced && basic {
        return wrong(format!(
            "{address} is of the Basic SKU and the machine behind a load balancer: upgrade it"
        ));
    }
    Ok(())
}

/// Refers to an address. `id` is that of its resource, which was free.
pub async fn attach(
    azure: &Azure,
    address: IpAddr,
    provider_id: &str,
    id: &str,
    call: &Call<'_>,
) -> Result<(), Error> {
    let target = target(azure, address, provider_id, call.deadline).await?;
    let held = target.interface.public_address(target.config);
    let ours = held.is_some_and(|held| held.eq_ignore_ascii_case(id));
    if let Some(held) = held.filter(|_| !ours) {
        let message = format!("the machine's interface has another public address by now: {held}");
        return Err(Error::new(Class::Conflict, message));
    }
    // A write that failed left the reference there; writing it again repairs it.
    if ours && settled(&target.interface)? {
        return Ok(());
    }
    let etag = target.interface.etag.clone();
    put(azure, &target, Some(id), &etag, call).await
}

/// Takes the reference away, if the interface is still the one that was read: its `ETag` is the token.
pub async fn detach(
    azure: &Azure,
    address: IpAddr,
    provider_id: &str,
    etag: &str,
    call: &Call<'_>,
) -> Result<(), Error> {
    let target = match target(azure, address, provider_id, call.deadline).await {
        Err(error) if error.class == Class::Conflict => return Ok(()), // there is no such machine
        target => target?,
    };
    let Some(held) = target.interface.public_address(target.config) else {
        return if settled(&target.interface)? {
            Ok(())
        } else {
            put(azure, &target, None, etag, call).await
        };
    };
    if target.interface.etag == etag {
        return put(azure, &target, None, etag, call).await;
    }
    // Written since: by somebody else, or it is another attachment by now.
    let all = read::addresses(azure, call.deadline).await?;
    let ours = read::by_ip(&all).get(&address).is_some_and(|ours| ours.id.eq_ignore_ascii_case(held));
    if !ours {
        return Ok(());
    }
    let message = format!("the interface of {address} was written since it was read; nothing was sent");
    Err(Error::new(Class::Conflict, message))
}

/// Whether what an interface shows is so. While it is being written it shows what it was or will be.
fn settled(interface: &Interface) -> Result<bool, Error> {
    match interface.properties.provisioning_state.as_str() {
        "Updating" => {
            let message = "the interface is being written; what will become of it is not known yet";
            let retry_after = Some(Duration::from_secs(2));
            Err(Error { retry_after, ..Error::new(Class::Conflict, message) })
        }
        state => Ok(state != "Failed"),
    }
}

/// The primary interface of a machine.
async fn target(
    azure: &Azure,
    address: IpAddr,
    provider_id: &str,
    deadline: Instant,
) -> Result<Target, Error> {
    let Some(id @ ProviderId::Azure { .. }) = ProviderId::parse(provider_id) else {
        let message = format!("{provider_id} has no interface that an address could be attached to");
        return Err(Error::new(Class::Unsupported, message));
    };
    let machine = read::machine_of(azure, &id, false, deadline).await?;
    let gone = || Error::new(Class::Conflict, format!("there is no machine {provider_id}"));
    let machine = machine.ok_or_else(gone)?;
    let no_interface = || Error::new(Class::Unsupported, format!("{provider_id} has no network interface"));
    let url = azure.arm.url(machine.primary_interface().ok_or_else(no_interface)?, NETWORK);
    let answer = azure.gate.read("networkInterfaces.get", deadline, azure.arm.get(&url)).await?;
    let interface: Interface = model::read(&answer.body)?;
    let Some(config) = interface.config_for(address) else {
        let message = format!("the machine's interface has no IP configuration that {address} fits");
        return Err(Error::new(Class::Unsupported, message));
    };
    Ok(Target { interface, document: answer.body, config })
}

async fn put(
    azure: &Azure,
    target: &Target,
    id: Option<&str>,
    etag: &str,
    call: &Call<'_>,
) -> Result<(), Error> {
    if etag.is_empty() {
        let message = "the interface has no ETag, so it cannot be written safely";
        return Err(Error::new(Class::Permanent, message));
    }
    let body = with_public_address(&target.document, target.config, id)
        .map_err(|error| Error::new(Class::Permanent, error.to_string()))?;
    let url = azure.arm.url(&target.interface.id, NETWORK);
    let request = azure.arm.put(&url, Put { body, if_match: etag });
    let accepted = azure.gate.write("networkInterfaces.createOrUpdate", call, request).await?;
    if operations::wait(azure, &accepted, call.deadline).await? {
        return Ok(());
    }
    check(azure, &url, target.config, id, call.deadline).await
}

/// The operation is forgotten: the interface itself says what became of it.
async fn check(
    azure: &Azure,
    url: &str,
    config: usize,
    id: Option<&str>,
    deadline: Instant,
) -> Result<(), Error> {
    let answer = azure.gate.read("networkInterfaces.get", deadline, azure.arm.get(url)).await?;
    let interface: Interface = model::read(&answer.body)?;
    let same = match (interface.public_address(config), id) {
        (Some(held), Some(id)) => held.eq_ignore_ascii_case(id),
        (held, id) => held.is_none() && id.is_none(),
    };
    if settled(&interface)? && same {
        return Ok(());
    }
    Err(Error::new(Class::Transient, "the write was accepted, but the interface does not show it"))
}
