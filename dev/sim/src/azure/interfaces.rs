//! Writes of interfaces: a PUT replaces the whole interface, and what it leaves out is reset.

use super::decode::Request;
use super::errors::{error, in_use, not_found};
use super::write;
use crate::http::{ApiError, Reply};
use crate::log::{About, Purpose};
use crate::model::State;
use crate::model::operations::{Effect, Failure, Order, guid};
use crate::model::things::{Binding, Cloud, Draft, Interface, Provisioning, Slot};
use crate::pipeline::Context;
use crate::settings::{Busy, Found};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};

const AZURE: Cloud = Cloud::Azure;

/// Properties that a writer owns. All others are the cloud's, and ignored when written.
const INTERFACE_PROPERTIES: [&str; 8] = [
    "auxiliaryMode",
    "auxiliarySku",
    "disableTcpStateTracking",
    "dnsSettings",
    "enableAcceleratedNetworking",
    "enableIPForwarding",
    "networkSecurityGroup",
    "workloadType",
];
const CONFIG_PROPERTIES: [&str; 9] = [
    "applicationGatewayBackendAddressPools",
    "applicationSecurityGroups",
    "gatewayLoadBalancer",
    "loadBalancerBackendAddressPools",
    "loadBalancerInboundNatRules",
    "privateIPAddressVersion",
    "privateIPAllocationMethod",
    "subnet",
    "virtualNetworkTaps",
];

/// A write as it came.
pub struct Put<'a> {
    /// The id as the caller wrote it.
    pub id: &'a str,
    /// The whole interface.
    pub body: &'a Value,
    /// The `ETag` that it must still have.
    pub if_match: Option<&'a str>,
    /// The version of the API.
    pub api_version: &'a str,
}

/// What a request is meant to do: the references that a write adds or takes away tell it.
pub fn about(request: &Request, state: &State) -> About {
    let Request::PutInterface { id, body, .. } = request else {
        return About::new(Purpose::Other, None, None);
    };
    let key = id.to_lowercase();
    let configs = body["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    let wanted: HashSet<String> = configs
        .filter_map(|config| config["properties"]["publicIPAddress"]["id"].as_str())
        .map(str::to_lowercase)
        .collect();
    let slots = state.cloud(AZURE).interfaces.get(&key).map_or(&[][..], |row| row.slots.as_slice());
    let held: HashSet<String> =
        slots.iter().filter_map(|slot| slot.binding.as_ref()?.reserved.clone()).collect();
    let ip = |key: &String| state.cloud(AZURE).addresses.get(key).map(|address| address.ip);
    let instance = state.provider_id_of(AZURE, &key);
    match (wanted.difference(&held).next(), held.difference(&wanted).next()) {
        (Some(added), _) => About::new(Purpose::Attach, ip(added), instance),
        (None, Some(gone)) => About::new(Purpose::Detach, ip(gone), instance),
        (None, None) => About::new(Purpose::Other, None, instance),
    }
}

/// Writes an interface, or makes it if there is none.
pub fn put(context: &mut Context, put: &Put) -> Result<Reply, ApiError> {
    let key = put.id.to_lowercase();
    let existing = context.state.cloud(AZURE).interfaces.get(&key).cloned();
    check_condition(&key, existing.as_ref(), put.if_match)?;
    if context.state.settings.azure.deny_writes {
        return Err(denied(context, put.id));
    }
    let draft = read(context.state, put, existing.as_ref())?;
    let mut fails_with = check_references(context.state, &key, put.id, existing.as_ref(), &draft)?;
    let locks = locks(existing.as_ref(), &draft);
    let mut superseded = None;
    if let Some(other) = busy_with(context.state, existing.as_ref(), &locks) {
        match context.state.settings.azure.busy {
            Busy::Refuse => return Err(preempted(&other)),
            Busy::FailLate => fails_with = Some(another_in_progress(&other)),
            Busy::Supersede => superseded = Some(other),
        }
    }
    let created = existing.is_none();
    if created {
        create(context.state, &key, put, &draft);
    }
    if let Some(other) = superseded {
        let message = format!("Operation {other} was canceled and superseded by a more recent operation.");
        context.state.cancel(&other, Failure::new("CanceledAndSupersededDueToAnotherOperation", message));
    }
    let owns_lock = fails_with.as_ref().is_none_or(|failure| failure.code != "AnotherOperationInProgress");
    let accepted = Accepted { key, draft, locks, fails_with, owns_lock, created };
    Ok(start(context, put, accepted))
}

/// A write that nothing speaks against.
struct Accepted {
    key: String,
    draft: Draft,
    /// Keys of the addresses that it touches.
    locks: Vec<String>,
    fails_with: Option<Failure>,
    /// It is the one that may change the interface now.
    owns_lock: bool,
    /// There was no such interface.
    created: bool,
}

fn start(context: &mut Context, put: &Put, accepted: Accepted) -> Reply {
    let location = put.body["location"].as_str().unwrap_or_default().to_owned();
    let order = Order {
        cloud: AZURE,
        action: context.call.action.clone(),
        caller: context.call.caller.clone(),
        target: accepted.key.clone(),
        target_uid: 0,
        locks: accepted.locks.clone(),
        place: location.clone(),
        request_id: None,
        pace: context.pace.unwrap_or(context.state.settings.azure.operation),
        fails_with: context.fails_with.clone().or(accepted.fails_with),
    };
    let (target, wanted) = (accepted.key.clone(), accepted.draft.clone());
    let effect: Effect = Box::new(move |state| apply(state, &target, wanted));
    let name = context.state.accept(order, effect);
    if accepted.owns_lock {
        lock(context.state, &accepted.key, &accepted.locks, &name, accepted.draft);
    }
    let written = context.state.cloud(AZURE).interfaces.get(&accepted.key);
    let body = written.map(|row| write::interface(context.state, &accepted.key, row));
    context.state.settle();
    let segments: Vec<&str> = put.id.split('/').collect();
    let subscription = segments.get(2).copied().unwrap_or_default();
    let poll = format!(
        "{}/subscriptions/{subscription}/providers/Microsoft.Network/locations/{location}/operations/{name}\
         ?api-version={}",
        context.base_url, put.api_version
    );
    let status = if accepted.created { 201 } else { 200 };
    Reply::json(status, &body.unwrap_or_default())
        .header("azure-asyncoperation", poll)
        .header("retry-after", context.state.settings.azure.retry_after.to_string())
        .header("x-ms-request-id", name)
}

/// `If-Match` must name the version that is there. A header called `ETag` means nothing.
fn check_condition(key: &str, existing: Option<&Interface>, if_match: Option<&str>) -> Result<(), ApiError> {
    let Some(wanted) = if_match else {
        return Ok(());
    };
    let there = existing.map(|row| write::etag(key, row.version));
    let same = |tag: &String| tag.trim_start_matches("W/") == wanted.trim_start_matches("W/");
    if there.as_ref().is_some_and(|tag| wanted == "*" || same(tag)) {
        return Ok(());
    }
    let there = there.unwrap_or_else(|| "none".to_owned());
    let message = format!(
        "Precondition failed. Etag provided in if-match header {wanted} does not match etag {there} of resource."
    );
    Err(error("PreconditionFailed", message))
}

fn denied(context: &Context, id: &str) -> ApiError {
    let caller = &context.call.caller;
    let message = format!(
        "The client '{caller}' with object id '{caller}' has permission to perform action \
         'Microsoft.Network/networkInterfaces/write' on scope '{id}'; however, the access is denied because of the \
         deny assignment with name 'Deny assignment created by AKS' and Id '{}' at scope '{id}'.",
        guid(1)
    );
    error("DenyAssignmentAuthorizationFailed", message)
}

/// What the writer wants the interface to be.
fn read(state: &mut State, put: &Put, existing: Option<&Interface>) -> Result<Draft, ApiError> {
    let location = put.body["location"].as_str().unwrap_or_default();
    if location.is_empty() {
        return Err(error("LocationRequired", "The location property is required for this definition."));
    }
    if let Some(row) = existing.filter(|row| !row.region.eq_ignore_ascii_case(location)) {
        let message = format!(
            "The resource '{}' already exists in location '{}'. A resource with the same name cannot be created \
             in location '{location}'.",
            row.name, row.region
        );
        return Err(error("InvalidResourceLocation", message));
    }
    let properties = &put.body["properties"];
    let Some(configs) = properties["ipConfigurations"].as_array().filter(|list| !list.is_empty()) else {
        let message = format!("Network interface {} must have one or more IP configurations.", put.id);
        return Err(error("NetworkInterfaceMustHaveAtLeastOneIpConfiguration", message));
    };
    let mut slots = Vec::new();
    for (n, config) in configs.iter().enumerate() {
        slots.push(read_config(state, put.id, config, n, existing)?);
    }
    let tags: BTreeMap<String, String> = serde_json::from_value(put.body["tags"].clone()).unwrap_or_default();
    Ok(Draft { slots, document: pick(properties, &INTERFACE_PROPERTIES), tags })
}

fn read_config(
    state: &mut State,
    id: &str,
    config: &Value,
    n: usize,
    existing: Option<&Interface>,
) -> Result<Slot, ApiError> {
    let properties = &config["properties"];
    let name = config["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() || properties["subnet"]["id"].as_str().is_none() {
        let message = format!("IP configuration {n} of {id} must have a name and a subnet.");
        return Err(error("InvalidRequestFormat", message));
    }
    let before = existing.and_then(|row| row.slots.iter().find(|slot| slot.name == name));
    let private_ip = match before {
        Some(slot) => slot.private_ip,
        None => state.private_ip(),
    };
    let binding = match properties["publicIPAddress"]["id"].as_str() {
        None => None,
        Some(address) => Some(reference(state, id, address)?),
    };
    Ok(Slot {
        name,
        private_ip,
        primary: properties["primary"].as_bool().unwrap_or(n == 0),
        binding,
        document: pick(properties, &CONFIG_PROPERTIES),
    })
}

/// The public address that an id names. It must be of the same subscription.
fn reference(state: &State, interface: &str, address: &str) -> Result<Binding, ApiError> {
    let key = address.to_lowercase();
    let subscription = |id: &str| id.split('/').nth(2).map(str::to_lowercase);
    let found = state.cloud(AZURE).addresses.get(&key);
    let Some(row) = found.filter(|_| subscription(address) == subscription(interface)) else {
        return Err(no_such_reference(interface, address));
    };
    Ok(Binding { id: String::new(), ip: Some(row.ip), reserved: Some(key), tier: row.tier.clone() })
}

fn pick(properties: &Value, names: &[&str]) -> Map<String, Value> {
    let picked = names.iter().filter_map(|&name| {
        let value = properties.get(name).filter(|value| !value.is_null())?;
        Some((name.to_owned(), value.clone()))
    });
    picked.collect()
}

/// Refuses references that cannot be; an address in use may be found out late.
fn check_references(
    state: &State,
    key: &str,
    id: &str,
    existing: Option<&Interface>,
    draft: &Draft,
) -> Result<Option<Failure>, ApiError> {
    let mut seen = HashSet::new();
    let mut late = None;
    for slot in &draft.slots {
        let reserved = slot.binding.as_ref().and_then(|binding| binding.reserved.as_ref());
        let Some(address_key) = reserved else { continue };
        let Some(address) = state.cloud(AZURE).addresses.get(address_key) else {
            return Err(not_found(address_key));
        };
        if !seen.insert(address_key) {
            let what = &address.id;
            let message = format!("Public IP address {what} is referenced by multiple IP configurations.");
            return Err(error("PublicIPReferencedByMultipleIPConfigs", message));
        }
        if existing.is_some_and(|row| row.region != address.region) {
            return Err(no_such_reference(id, &address.id));
        }
        check_sku(state, id, slot, &address.tier)?;
        let own = format!("{key}/ipconfigurations/");
        let holder = write::holder_id(state, address);
        if let Some(holder) = holder.filter(|holder| !holder.to_lowercase().starts_with(&own)) {
            let refused = in_use(&format!("{id}/ipConfigurations/{}", slot.name), &address.id, &holder);
            match state.settings.azure.in_use_found {
                Found::AtOnce => return Err(refused),
                Found::Late => late = Some(Failure::new(&refused.code, refused.message)),
            }
        }
    }
    Ok(late)
}

/// What is in another region or subscription cannot be told from what is not there.
fn no_such_reference(interface: &str, address: &str) -> ApiError {
    let message = format!(
        "Resource {address} referenced by resource {interface} was not found. Please make sure that the \
         referenced resource exists, and that both resources are in the same region."
    );
    error("InvalidResourceReference", message)
}

/// An interface behind a load balancer takes only public addresses of the load balancer's SKU.
fn check_sku(state: &State, id: &str, slot: &Slot, sku: &str) -> Result<(), ApiError> {
    let balanced = slot.document.get("loadBalancerBackendAddressPools").and_then(Value::as_array);
    let behind = balanced.is_some_and(|pools| !pools.is_empty());
    if !behind || state.settings.azure.load_balancer_sku == sku {
        return Ok(());
    }
    let message = format!(
        "Different basic sku and standard sku load balancer and public IP address resources are referenced by {id}."
    );
    Err(error("DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed", message))
}

/// The addresses that a write touches: those that come and those that go.
fn locks(existing: Option<&Interface>, draft: &Draft) -> Vec<String> {
    let old = existing.map(|row| row.slots.as_slice()).unwrap_or_default();
    let of = |slot: &Slot| slot.binding.as_ref().and_then(|binding| binding.reserved.clone());
    let mut keys: Vec<String> = old.iter().chain(&draft.slots).filter_map(of).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The operation that has one of the things locked.
fn busy_with(state: &State, existing: Option<&Interface>, locks: &[String]) -> Option<String> {
    let addresses = &state.cloud(AZURE).addresses;
    let of_addresses = locks.iter().find_map(|key| addresses.get(key)?.busy.clone());
    existing.and_then(|row| row.busy.clone()).or(of_addresses)
}

fn preempted(other: &str) -> ApiError {
    let message = format!(
        "Operation is preempted by a more recent operation. Another operation {other} is in progress."
    );
    error("RetryableErrorDueToAnotherOperation", message).header("retry-after", "1")
}

fn another_in_progress(other: &str) -> Failure {
    let message = format!(
        "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: {other}"
    );
    Failure::new("AnotherOperationInProgress", message)
}

fn lock(state: &mut State, key: &str, locks: &[String], operation: &str, draft: Draft) {
    let now = state.now();
    let inventory = state.cloud_mut(AZURE);
    inventory.interfaces.edit(key, now, |row| {
        row.busy = Some(operation.to_owned());
        row.draft = Some(draft);
        row.provisioning = Provisioning::Updating;
        row.version += 1;
    });
    for address in locks {
        inventory.addresses.edit(address, now, |row| row.busy = Some(operation.to_owned()));
    }
}

/// A PUT on an id that nothing has makes an interface that belongs to no instance.
fn create(state: &mut State, key: &str, put: &Put, draft: &Draft) {
    let now = state.now();
    let mut slots = draft.slots.clone();
    for slot in &mut slots {
        slot.binding = None;
    }
    let interface = Interface {
        id: put.id.to_owned(),
        instance: None,
        name: put.id.rsplit('/').next().unwrap_or_default().to_owned(),
        index: 0,
        region: put.body["location"].as_str().unwrap_or_default().to_owned(),
        border_group: String::new(),
        slots,
        version: 0,
        provisioning: Provisioning::Updating,
        busy: None,
        draft: None,
        no_gateway: false,
        document: draft.document.clone(),
        tags: draft.tags.clone(),
    };
    state.cloud_mut(AZURE).interfaces.put(key, interface, now);
}

/// The effect of a write. What was true when it was accepted may not be true any more.
fn apply(state: &mut State, key: &str, draft: Draft) -> Result<(), Failure> {
    let Some(old) = state.cloud(AZURE).interfaces.get(key).cloned() else {
        return Err(Failure::new("NotFound", format!("Resource {key} not found.")));
    };
    let reserved = |slot: Option<&Slot>| slot.and_then(|slot| slot.binding.clone()?.reserved);
    let changed = |n: usize| reserved(old.slots.get(n)) != reserved(draft.slots.get(n));
    for (n, slot) in draft.slots.iter().enumerate().filter(|(n, _)| changed(*n)) {
        let address = reserved(Some(slot)).and_then(|key| state.cloud(AZURE).addresses.get(&key));
        let holder = address.and_then(|row| Some((row, write::holder_id(state, row)?)));
        if let Some((row, holder)) = holder
            && !holder.to_lowercase().starts_with(&format!("{key}/ipconfigurations/"))
        {
            let refused = in_use(&write::config_id(&old, &draft.slots[n].name), &row.id, &holder);
            return Err(Failure::new(&refused.code, refused.message));
        }
    }
    let affected: Vec<usize> = (0..old.slots.len().max(draft.slots.len())).filter(|n| changed(*n)).collect();
    for n in &affected {
        state.unbind(AZURE, key, *n);
    }
    let now = state.now();
    let wanted = draft.slots.clone();
    state.cloud_mut(AZURE).interfaces.edit(key, now, |row| {
        row.slots = draft.slots;
        row.document = draft.document;
        row.tags = draft.tags;
    });
    for n in affected {
        if let Some(binding) = wanted.get(n).and_then(|slot| slot.binding.clone()) {
            state.bind(AZURE, key, n, binding);
        }
    }
    Ok(())
}

/// Changes the tags of an interface. Whatever else is in the body is ignored.
pub fn tag(context: &mut Context, id: &str, body: &Value) -> Result<Reply, ApiError> {
    let key = id.to_lowercase();
    let tags: BTreeMap<String, String> = serde_json::from_value(body["tags"].clone()).unwrap_or_default();
    let now = context.state.now();
    let known = context.state.cloud_mut(AZURE).interfaces.edit(&key, now, |row| {
        row.tags = tags;
        row.version += 1;
    });
    let row = context.state.cloud(AZURE).interfaces.get(&key).filter(|_| known);
    let row = row.ok_or_else(|| not_found(id))?;
    Ok(Reply::json(200, &write::interface(context.state, &key, row)))
}
