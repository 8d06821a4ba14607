//! Instances: `instances.get`, `list` and `aggregatedList`.

use super::aggregated::Aggregated;
use super::decode::{Page, page_token};
use super::errors::not_found;
use super::filter::Values;
use super::links::{fingerprint, link, project, time};
use crate::http::{ApiError, Reply};
use crate::model::State;
use crate::model::table::Seen;
use crate::model::things::{Cloud, Instance, InstanceState, Interface, Slot};
use crate::pipeline::Context;
use serde_json::{Value, json};

/// One instance.
pub fn get(context: &Context, key: &str) -> Result<Reply, ApiError> {
    let instances = &context.state.cloud(Cloud::Gcp).instances;
    let instance = instances.seen(key, context.seen).ok_or_else(|| not_found(key))?;
    Ok(Reply::json(200, &write(context.state, key, instance, context.seen)))
}

/// The instances of a zone.
pub fn list(context: &Context, scope: &str, page: &Page) -> Reply {
    let (items, next) = select(context, &format!("{scope}/"), page);
    let mut body = json!({
        "kind": "compute#instanceList",
        "id": scope,
        "selfLink": link(context.state, scope),
    });
    if !items.is_empty() {
        body["items"] = items.into_iter().map(|(_, item)| item).collect();
    }
    if let Some(next) = next {
        body["nextPageToken"] = Value::from(next);
    }
    Reply::json(200, &body)
}

/// The instances of all zones, by zone.
pub fn list_all(context: &Context, project: &str, page: &Page) -> Reply {
    let prefix = format!("projects/{project}/zones/");
    let (found, next) = select(context, &prefix, page);
    let mut list = Aggregated::new("instances");
    for (_, instance) in context.state.cloud(Cloud::Gcp).instances.after(context.seen, &prefix, None) {
        list.scope(context, project, &format!("zones/{}", instance.zone));
    }
    for (zone, item) in found {
        list.push(format!("zones/{zone}"), item);
    }
    list.reply(context, project, "compute#instanceAggregatedList", next)
}

/// The items of one page with their zones, and the token of the next.
fn select(context: &Context, prefix: &str, page: &Page) -> (Vec<(String, Value)>, Option<String>) {
    let state = &*context.state;
    let instances = &state.cloud(Cloud::Gcp).instances;
    let mut found: Vec<(String, Value)> = Vec::new();
    let mut last = None;
    for (key, instance) in instances.after(context.seen, prefix, page.after.as_deref()) {
        if context.leaves_out(&[key]) {
            continue;
        }
        let written = match &page.filter {
            None => None,
            Some(filter) => {
                let written = write(state, key, instance, context.seen);
                if !filter.passes(&|field| values(&written, field)) {
                    continue;
                }
                Some(written)
            }
        };
        if found.len() == page.limit {
            return (found, last.map(page_token));
        }
        let written = written.unwrap_or_else(|| write(state, key, instance, context.seen));
        found.push((instance.zone.clone(), written));
        last = Some(key);
    }
    (found, None)
}

/// The values at a dotted path; lists on the way stand for all their items.
fn values(value: &Value, path: &str) -> Values<'static> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let below = &value[first];
    let all: Vec<&Value> = below.as_array().map_or_else(|| vec![below], |list| list.iter().collect());
    let mut found = Values::new();
    for value in all {
        match value {
            Value::Null => {}
            value if !rest.is_empty() => found.extend(values(value, rest)),
            Value::String(text) => found.push(text.clone().into()),
            other => found.push(other.to_string().into()),
        }
    }
    found
}

fn write(state: &State, key: &str, instance: &Instance, seen: Seen) -> Value {
    let zone = format!("projects/{}/zones/{}", project(key), instance.zone);
    let interfaces = instance.interfaces.iter();
    let interfaces: Vec<Value> = interfaces
        .filter_map(|interface| state.cloud(Cloud::Gcp).interfaces.seen(interface, seen))
        .map(|interface| write_interface(state, project(key), instance, interface))
        .collect();
    let mut body = json!({
        "kind": "compute#instance",
        "id": instance.uid.to_string(),
        "creationTimestamp": time(instance.created),
        "name": instance.name,
        "description": "",
        "tags": { "fingerprint": fingerprint(0) },
        "machineType": link(state, &format!("{zone}/machineTypes/e2-standard-4")),
        "status": status(instance),
        "zone": link(state, &zone),
        "canIpForward": false,
        "networkInterfaces": interfaces,
        "selfLink": link(state, key),
        "labelFingerprint": fingerprint(instance.uid),
        "fingerprint": fingerprint(instance.uid + 1),
        "lastStartTimestamp": time(instance.created),
    });
    if !instance.tags.is_empty() {
        body["labels"] = json!(instance.tags);
    }
    body
}

fn status(instance: &Instance) -> &'static str {
    match instance.state {
        InstanceState::Pending => "PROVISIONING",
        InstanceState::Running => "RUNNING",
        InstanceState::Stopped => "TERMINATED",
        InstanceState::Terminated => "STOPPING",
    }
}

fn write_interface(state: &State, project: &str, instance: &Instance, interface: &Interface) -> Value {
    let network = format!("projects/{project}/global/networks/default");
    let subnet = format!("projects/{project}/regions/{}/subnetworks/default", instance.region);
    let slot = interface.slots.first();
    let mut body = json!({
        "kind": "compute#networkInterface",
        "name": interface.name,
        "network": link(state, &network),
        "subnetwork": link(state, &subnet),
        "fingerprint": fingerprint(interface.version),
        "stackType": "IPV4_ONLY",
    });
    if let Some(slot) = slot {
        body["networkIP"] = Value::from(slot.private_ip.to_string());
    }
    if let Some(config) = slot.and_then(write_access_config) {
        body["accessConfigs"] = json!([config]);
    }
    for (name, value) in &interface.document {
        body[name] = value.clone();
    }
    body
}

fn write_access_config(slot: &Slot) -> Option<Value> {
    let binding = slot.binding.as_ref()?;
    let mut body = json!({
        "kind": "compute#accessConfig",
        "type": "ONE_TO_ONE_NAT",
        "name": binding.id,
        "networkTier": binding.tier,
    });
    if let Some(ip) = binding.ip {
        body["natIP"] = Value::from(ip.to_string());
    }
    Some(body)
}
