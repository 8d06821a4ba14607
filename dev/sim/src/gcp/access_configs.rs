//! External addresses of interfaces: `addAccessConfig`, `deleteAccessConfig`, `updateNetworkInterface`.

use super::decode::{Request, Target};
use super::errors::{error, invalid, not_found};
use super::links::{fingerprint, project};
use super::operations;
use crate::http::{ApiError, Reply};
use crate::log::{About, Purpose};
use crate::model::State;
use crate::model::operations::{Effect, Failure, Order};
use crate::model::things::{Address, Binding, Cloud, Instance};
use crate::pipeline::Context;
use crate::settings::Found;
use serde_json::Value;
use std::net::IpAddr;

const GCP: Cloud = Cloud::Gcp;

/// An access config that was asked for.
#[derive(Clone)]
struct Wanted {
    name: String,
    /// None: an address of the cloud's choice.
    ip: Option<IpAddr>,
    tier: String,
}

/// What a request is meant to do. A name that nothing has is about no address.
pub fn about(request: &Request, state: &State) -> About {
    match request {
        Request::AddAccessConfig { target, config } => {
            let ip = config["natIP"].as_str().and_then(|text| text.parse().ok());
            let purpose = if ip.is_some() { Purpose::Attach } else { Purpose::GiveOwn };
            About::new(purpose, ip, provider_id(&target.instance))
        }
        Request::DeleteAccessConfig { target, config } => {
            let slot = state.slot(GCP, &format!("{}/{}", target.instance, target.interface), 0);
            let binding = slot.and_then(|slot| slot.binding.as_ref()).filter(|found| found.id == *config);
            let own = binding.is_some_and(|binding| binding.reserved.is_none());
            let reserved = binding.filter(|_| !own).and_then(|binding| binding.ip);
            let purpose = if own { Purpose::TakeOwn } else { Purpose::Detach };
            About::new(purpose, reserved, provider_id(&target.instance))
        }
        _ => About::new(Purpose::Other, None, None),
    }
}

/// The provider ID of an instance by its key, whether it is there or not.
fn provider_id(key: &str) -> Option<String> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        ["projects", project, "zones", zone, "instances", name] => {
            Some(format!("gce://{project}/{zone}/{name}"))
        }
        _ => None,
    }
}

/// Gives an interface an external address.
pub fn add(context: &mut Context, target: &Target, config: &Value) -> Result<Reply, ApiError> {
    if let Some(reply) = operations::replay(context, target) {
        return Ok(reply);
    }
    let (instance, interface) = ready(context.state, target)?;
    let state = &*context.state;
    let wanted = read(state, config)?;
    if state.slot(GCP, &interface, 0).is_some_and(|slot| slot.binding.is_some()) {
        return Err(error("badRequest", "At most one access config currently supported."));
    }
    let mut discovered = None;
    match wanted.ip {
        Some(ip) => {
            let (_, address) = reserved(state, &target.instance, &instance, ip)?;
            check_tier(address, &wanted)?;
            if address.holder.is_some() {
                match state.settings.gcp.in_use_found {
                    Found::AtOnce => return Err(in_use(ip)),
                    Found::Late => discovered = Some(in_use_late(ip)),
                }
            }
        }
        None => check_quota(state, &instance)?,
    }
    if state.settings.gcp.external_ip_forbidden {
        return Err(forbidden_by_organisation(&target.instance));
    }
    let order = order(context, target, &instance, discovered);
    let uid = instance.uid;
    let key = target.instance.clone();
    let effect: Effect = Box::new(move |state| attach(state, &key, uid, &interface, &wanted));
    Ok(operations::start(context, order, effect))
}

/// Takes the external address of an interface away. A name that nothing has is no error.
pub fn delete(context: &mut Context, target: &Target, config: &str) -> Result<Reply, ApiError> {
    if let Some(reply) = operations::replay(context, target) {
        return Ok(reply);
    }
    let (instance, interface) = ready(context.state, target)?;
    let order = order(context, target, &instance, None);
    let name = config.to_owned();
    let effect: Effect = Box::new(move |state| {
        let named = state
            .slot(GCP, &interface, 0)
            .and_then(|slot| slot.binding.as_ref())
            .is_some_and(|binding| binding.id == name);
        if named {
            state.unbind(GCP, &interface, 0);
        }
        Ok(())
    });
    Ok(operations::start(context, order, effect))
}

/// Changes an interface; its fingerprint must be the one just read.
pub fn update_interface(context: &mut Context, target: &Target, patch: &Value) -> Result<Reply, ApiError> {
    if let Some(reply) = operations::replay(context, target) {
        return Ok(reply);
    }
    let (instance, interface) = ready(context.state, target)?;
    let Some(given) = patch["fingerprint"].as_str() else {
        return Err(invalid("resource.fingerprint", "", "Fingerprint must be specified."));
    };
    if patch.get("accessConfigs").is_some() {
        let why = "Updating this field is not supported; use addAccessConfig and deleteAccessConfig.";
        return Err(invalid("resource.accessConfigs", "", why));
    }
    let row = context.state.cloud(GCP).interfaces.get(&interface);
    if row.is_none_or(|row| fingerprint(row.version) != given) {
        return Err(error("conditionNotMet", "Supplied fingerprint does not match current fingerprint."));
    }
    let order = order(context, target, &instance, None);
    let patch = patch.clone();
    let effect: Effect = Box::new(move |state| {
        let now = state.now();
        state.cloud_mut(GCP).interfaces.edit(&interface, now, |row| {
            row.version += 1;
            for name in ["stackType", "ipv6AccessConfigs", "aliasIpRanges"] {
                if let Some(value) = patch.get(name) {
                    row.document.insert(name.to_owned(), value.clone());
                }
            }
        });
        Ok(())
    });
    Ok(operations::start(context, order, effect))
}

/// The instance and the key of the interface, if both are there and nothing else is being done to them.
fn ready(state: &State, target: &Target) -> Result<(Instance, String), ApiError> {
    let instances = &state.cloud(GCP).instances;
    let instance = instances.get(&target.instance).ok_or_else(|| not_found(&target.instance))?;
    let interface = format!("{}/{}", target.instance, target.interface);
    if state.cloud(GCP).interfaces.get(&interface).is_none() {
        let why = "The referenced network interface does not exist.";
        return Err(invalid("networkInterface", &target.interface, why));
    }
    if state.operations.active_on(GCP, &target.instance).is_some() {
        return Err(error("resourceNotReady", format!("The resource '{}' is not ready", target.instance)));
    }
    Ok((instance.clone(), interface))
}

fn read(state: &State, config: &Value) -> Result<Wanted, ApiError> {
    if let Some(kind) = config["type"].as_str().filter(|kind| *kind != "ONE_TO_ONE_NAT") {
        return Err(invalid("resource.type", kind, "Must be ONE_TO_ONE_NAT."));
    }
    let ip = match config["natIP"].as_str().filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => {
            let wrong = |_| invalid("resource.natIP", text, "Must be a valid IPV4 address.");
            Some(text.parse::<IpAddr>().map_err(wrong)?)
        }
    };
    Ok(Wanted {
        name: config["name"].as_str().unwrap_or("External NAT").to_owned(),
        ip,
        tier: config["networkTier"].as_str().unwrap_or(&state.settings.gcp.default_tier).to_owned(),
    })
}

/// The reserved address in the project and the region of the instance.
fn reserved<'a>(
    state: &'a State,
    instance_key: &str,
    instance: &Instance,
    ip: IpAddr,
) -> Result<(String, &'a Address), ApiError> {
    let region = &instance.region;
    let prefix = format!("projects/{}/regions/{region}/", project(instance_key));
    let (cloud, key) = state.find_address(ip).unwrap_or((GCP, String::new()));
    let found = (cloud == GCP && key.starts_with(&prefix)).then(|| state.cloud(GCP).addresses.get(&key));
    let Some(address) = found.flatten() else {
        let why = format!("The specified external IP address '{ip}' was not found in region '{region}'.");
        return Err(invalid("resource.natIP", &ip.to_string(), &why));
    };
    Ok((key, address))
}

fn check_tier(address: &Address, wanted: &Wanted) -> Result<(), ApiError> {
    if address.tier == wanted.tier {
        return Ok(());
    }
    let message = format!(
        "External IP address: {} has a different network tier {} from the network tier in instance access \
         config {}.",
        address.ip, address.tier, wanted.tier
    );
    Err(invalid("resource.networkTier", &wanted.tier, &message))
}

/// Addresses of the cloud's choice are counted against the quota of a region.
fn check_quota(state: &State, instance: &Instance) -> Result<(), ApiError> {
    let Some(quota) = state.settings.gcp.in_use_quota else {
        return Ok(());
    };
    let region = &instance.region;
    let interfaces = state.cloud(GCP).interfaces.all(None);
    let of_region = interfaces.filter(|(_, interface)| interface.region == *region);
    let in_use = of_region
        .flat_map(|(_, interface)| &interface.slots)
        .filter(|slot| slot.binding.as_ref().is_some_and(|binding| binding.ip.is_some()))
        .count();
    if in_use < quota {
        return Ok(());
    }
    let message = format!("Quota 'IN_USE_ADDRESSES' exceeded.  Limit: {quota}.0 in region {region}.");
    Err(error("quotaExceeded", message))
}

fn in_use(ip: IpAddr) -> ApiError {
    let why = format!("External IP address: {ip} is already in-use.");
    invalid("resource.natIP", &ip.to_string(), &why)
}

fn in_use_late(ip: IpAddr) -> Failure {
    let message = format!("IP '{ip}' is already being used by another resource.");
    Failure::new("IP_IN_USE_BY_ANOTHER_RESOURCE", message)
}

fn forbidden_by_organisation(instance: &str) -> ApiError {
    let message = format!(
        "Constraint constraints/compute.vmExternalIpAccess violated for project {}. Add instance {instance} \
         to the constraint to use external IP with it.",
        project(instance)
    );
    error("conditionNotMet", message)
}

fn order(context: &Context, target: &Target, instance: &Instance, discovered: Option<Failure>) -> Order {
    Order {
        cloud: GCP,
        action: context.call.action.clone(),
        caller: context.call.caller.clone(),
        target: target.instance.clone(),
        target_uid: instance.uid,
        locks: Vec::new(),
        place: target.zone.clone(),
        request_id: target.request_id.clone(),
        pace: context.pace.unwrap_or(context.state.settings.gcp.operation),
        fails_with: context.fails_with.clone().or(discovered),
    }
}

/// The effect of `addAccessConfig`. What was true when it was accepted may not be true any more.
fn attach(state: &mut State, key: &str, uid: u64, interface: &str, wanted: &Wanted) -> Result<(), Failure> {
    let instance = state.cloud(GCP).instances.get(key).filter(|row| row.uid == uid).cloned();
    let Some(instance) = instance else {
        let message = format!("The resource '{key}' was not found");
        return Err(Failure::new("RESOURCE_NOT_FOUND", message));
    };
    let mut binding =
        Binding { id: wanted.name.clone(), ip: wanted.ip, reserved: None, tier: wanted.tier.clone() };
    match wanted.ip {
        None => binding.ip = Some(state.ephemeral_ip(GCP)),
        Some(ip) => match reserved(state, key, &instance, ip) {
            Ok((_, address)) if address.holder.is_some() => return Err(in_use_late(ip)),
            Ok((address, _)) => binding.reserved = Some(address),
            Err(error) => return Err(Failure::new("INVALID_FIELD_VALUE", error.message)),
        },
    }
    state.bind(GCP, interface, 0, binding);
    Ok(())
}
