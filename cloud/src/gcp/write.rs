//! Attaches, detaches, and gives instances an address of their own back.

use super::model::{self, Place};
use super::names::{self, Token};
use super::read::{self, IPV4_ONLY};
use super::room::Permit;
use super::{Gcp, grants};
use crate::{Call, Class, Error};
use google_cloud_compute_v1::model::{AccessConfig, Instance, access_config};
use std::net::IpAddr;
use tokio::time::Instant;

/// The name that instances' own access configs have.
const OWN: &str = "external-nat";

pub async fn preflight(
    gcp: &Gcp,
    address: IpAddr,
    provider_id: &str,
    deadline: Instant,
) -> Result<(), Error> {
    let place = place_of(address, provider_id)?;
    let instance = existing(gcp, &place, deadline).await?;
    let shown = model::access_config(&instance).and_then(model::nat_ip);
    let ips: Vec<String> = shown.into_iter().chain([address]).map(|ip| ip.to_string()).collect();
    let addresses = gcp.addresses(&ips, deadline).await?;
    let wrong = |message: String| Err(Error::new(Class::Permanent, message));
    let Some(found) = read::find(&addresses, address) else {
        return wrong(format!("project {} has no static external address {address}", gcp.project()));
    };
    match model::region(found) {
        Some(region) if region == place.region() => {}
        Some(region) => {
            return wrong(format!("{address} is in {region}, the instance in {}", place.region()));
        }
        None => return wrong(format!("{address} is a global address, which no instance can have")),
    }
    match shown.filter(|shown| *shown != address && read::find(&addresses, *shown).is_some()) {
        Some(held) => wrong(format!("the instance holds another static address, {held}")),
        // What would be refused when it comes to it must be known before an address leaves where it works.
        None if shown.is_some_and(|shown| shown != address) => gcp.room.would_permit(&place, address),
        None => Ok(()),
    }
}

/// Attaches an address that was free. `token` says its region and its network tier, which must be the same
/// in the access config.
pub async fn attach(
    gcp: &Gcp,
    address: IpAddr,
    provider_id: &str,
    token: &str,
    call: &Call<'_>,
) -> Result<(), Error> {
    let place = place_of(address, provider_id)?;
    let Some((region, tier)) = token.split_once('/') else {
        return Err(Error::new(Class::Conflict, format!("'{token}' is no token of a free address of GCP")));
    };
    if region != place.region() {
        let message = format!("{address} is in {region}, the instance in {}", place.region());
        return Err(Error::new(Class::Permanent, message));
    }
    let instance = existing(gcp, &place, call.deadline).await?;
    if model::holding(&instance, address).is_some() {
        return Ok(());
    }
    let step = step(call, &place, &address.to_string());
    let id = instance.id.unwrap_or_default();
    let permit = match model::access_config(&instance) {
        Some(config) => Some(make_room(gcp, &place, &instance, config, address, &step, call).await?),
        None => None,
    };
    // Somebody may have begun this and not got any further.
    let had_own = permit.is_some() || gcp.had_own_address(&place, id, call.deadline).await?;
    let name = names::access_config(address, had_own, &step);
    let config = nat().set_name(name).set_nat_ip(address.to_string());
    let config = config.set_network_tier(access_config::NetworkTier::from(tier));
    let error = match gcp.add(&place, config, names::request_id(&step, "attach"), call).await {
        Ok(()) => {
            gcp.room.attached(&place, address);
            return Ok(());
        }
        Err(error) => error,
    };
    gcp.room.failed(&place, address, &error, permit.as_ref().is_some_and(|permit| permit.asked));
    // Where it is certain that nothing was attached, the instance is not left without an address.
    if had_own && !matches!(error.class, Class::Transient | Class::Fenced) {
        let request_id = names::request_id(&step, "give back");
        if let Err(failed) = give_back(gcp, &place, request_id, call).await {
            return Err(left_bare(error, provider_id, &failed));
        }
    }
    Err(error)
}

/// The attach failed, and so did what was to mend it: whoever reads this has to know.
fn left_bare(error: Error, provider_id: &str, failed: &Error) -> Error {
    let message = format!(
        "{}; {provider_id} has no address of its own now, giving it one back failed: {}",
        error.message, failed.message
    );
    tracing::warn!("{message}");
    Error { message, ..error }
}

/// Takes the instance's own address away, if nothing speaks against that ours can take its place.
async fn make_room(
    gcp: &Gcp,
    place: &Place,
    instance: &Instance,
    config: &AccessConfig,
    address: IpAddr,
    step: &str,
    call: &Call<'_>,
) -> Result<Permit, Error> {
    let shown = model::nat_ip(config);
    let ips: Vec<String> = shown.into_iter().chain([address]).map(|ip| ip.to_string()).collect();
    let addresses = gcp.addresses(&ips, call.deadline).await?;
    let unsure = !addresses.unreachable.is_empty();
    let conflict = |message: String| Err(Error::new(Class::Conflict, message));
    if let Some(shown) = shown.filter(|shown| unsure || read::find(&addresses, *shown).is_some()) {
        return conflict(format!("the instance has another address by now, {shown}, that is somebody's"));
    }
    let Some(ours) = read::find(&addresses, address) else {
        return conflict(format!("project {} has no address {address} any more", gcp.project()));
    };
    // An attach whose reply got lost may have landed elsewhere since it was read as free.
    if let Some(holder) = ours.users.first() {
        return conflict(format!("{address} is on {holder} by now; nothing was sent"));
    }
    let ask = grants::ask(gcp, place, instance, ours, call.deadline);
    let permit = gcp.room.permit(place, address, &grants::subnet(instance), call.deadline, ask).await?;
    let interface = model::interface(instance).and_then(|interface| interface.name.clone());
    let interface = interface.unwrap_or_else(|| model::INTERFACE.to_owned());
    let name = config.name.as_deref().unwrap_or(OWN);
    let delete = || gcp.delete(place, &interface, name, names::marked_request_id(step, "make room"), call);
    // No answer: without another word the node would be left bare and the next one tried. The same request id
    // does it once, whichever of the two arrived.
    if let Err(error) = delete().await {
        let unanswered = error.class == Class::Transient;
        if !unanswered || delete().await.is_err() {
            return Err(error);
        }
    }
    Ok(permit)
}

/// Detaches an address, if it is still attached by the access config that the token names.
pub async fn detach(
    gcp: &Gcp,
    address: IpAddr,
    provider_id: &str,
    token: &str,
    call: &Call<'_>,
) -> Result<(), Error> {
    let place = place_of(address, provider_id)?;
    let Some(token) = Token::read(token) else {
        return Err(Error::new(Class::Conflict, format!("'{token}' is no token of an attachment of GCP")));
    };
    let Some(instance) = gcp.instance(&place, call.deadline).await? else {
        return Ok(());
    };
    match model::holding(&instance, address) {
        None => Ok(()),
        Some((interface, name)) if is_same(&instance, &token) && name == token.name => {
            let step = step(call, &place, &name);
            let had_own = names::had_own(&name);
            let request_id = if had_own {
                names::marked_request_id(&step, "detach")
            } else {
                names::request_id(&step, "detach")
            };
            gcp.delete(&place, &interface, &name, request_id, call).await
        }
        Some((_, name)) => {
            let message = format!("{address} is attached anew, as '{name}'; nothing was sent");
            Err(Error::new(Class::Conflict, message))
        }
    }
}

/// Whether it is still the instance that the token means, and not a new one of the same name.
fn is_same(instance: &Instance, token: &Token) -> bool {
    instance.id == Some(token.instance)
}

/// Gives the instance an address of its own back, if the name of the attachment that ended says that it had
/// one, and if it is the same instance and has none. Without a token: if an attach took it and came to nothing.
pub async fn restore(
    gcp: &Gcp,
    provider_id: &str,
    token: Option<&str>,
    call: &Call<'_>,
) -> Result<(), Error> {
    let Some(place) = Place::of(provider_id) else { return Ok(()) };
    let ended = token.map(Token::read);
    if ended.as_ref().is_some_and(|token| token.as_ref().is_none_or(|token| !names::had_own(&token.name))) {
        return Ok(());
    }
    let Some(instance) = gcp.instance(&place, call.deadline).await? else { return Ok(()) };
    if model::access_config(&instance).is_some() {
        return Ok(());
    }
    let (is_to, about) = if let Some(token) = ended.flatten() {
        (is_same(&instance, &token), token.name)
    } else {
        let id = instance.id.unwrap_or_default();
        (gcp.had_own_address(&place, id, call.deadline).await?, String::new())
    };
    if !is_to {
        return Ok(());
    }
    give_back(gcp, &place, names::request_id(&step(call, &place, &about), "restore"), call).await
}

/// An address of the cloud's choice, in the project's default tier.
async fn give_back(gcp: &Gcp, place: &Place, request_id: String, call: &Call<'_>) -> Result<(), Error> {
    gcp.add(place, nat().set_name(OWN), request_id, call).await
}

/// What request ids are made of: the caller's key, and what it is about, lest one key for two things make the
/// cloud take the second for the first.
fn step(call: &Call<'_>, place: &Place, about: &str) -> String {
    format!("{}/{}/{about}", call.key, place.provider_id())
}

fn nat() -> AccessConfig {
    AccessConfig::new().set_type(access_config::Type::OneToOneNat)
}

fn place_of(address: IpAddr, provider_id: &str) -> Result<Place, Error> {
    if address.is_ipv6() {
        return Err(Error::new(Class::Unsupported, IPV4_ONLY));
    }
    let none = || Error::new(Class::Unsupported, format!("{provider_id} is no instance of GCP"));
    Place::of(provider_id).ok_or_else(none)
}

async fn existing(gcp: &Gcp, place: &Place, deadline: Instant) -> Result<Instance, Error> {
    let gone = || Error::new(Class::Conflict, format!("there is no instance {}", place.provider_id()));
    gcp.instance(place, deadline).await?.ok_or_else(gone)
}
