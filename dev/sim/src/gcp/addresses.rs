//! Reserved addresses: `addresses.get`, `list` and `aggregatedList`.

use super::aggregated::Aggregated;
use super::decode::{Page, page_token};
use super::errors::not_found;
use super::filter::Values;
use super::links::{fingerprint, link, project, time};
use crate::http::{ApiError, Reply};
use crate::model::State;
use crate::model::things::{Address, Cloud, Holder};
use crate::pipeline::Context;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// One address.
pub fn get(context: &Context, key: &str) -> Result<Reply, ApiError> {
    let addresses = &context.state.cloud(Cloud::Gcp).addresses;
    let address = addresses.seen(key, context.seen).ok_or_else(|| not_found(key))?;
    Ok(Reply::json(200, &write(context.state, key, address)))
}

/// The addresses of a region.
pub fn list(context: &Context, scope: &str, page: &Page) -> Reply {
    let prefix = format!("{scope}/");
    let (found, next) = select(context, &prefix, page);
    let state = &*context.state;
    let items: Vec<Value> = found.into_iter().map(|(key, address)| write(state, key, address)).collect();
    let mut body = json!({
        "kind": "compute#addressList",
        "id": scope,
        "selfLink": link(state, scope),
    });
    if !items.is_empty() {
        body["items"] = Value::Array(items);
    }
    if let Some(next) = next {
        body["nextPageToken"] = Value::from(next);
    }
    Reply::json(200, &body)
}

/// The addresses of all regions, by region.
pub fn list_all(context: &Context, project: &str, page: &Page) -> Reply {
    let state = &*context.state;
    let prefix = format!("projects/{project}/");
    let (found, next) = select(context, &prefix, page);
    let mut list = Aggregated::new("addresses");
    for scope in scopes(state, project) {
        list.scope(context, project, &scope);
    }
    for (key, address) in found {
        list.push(scope_of(key), write(state, key, address));
    }
    list.reply(context, project, "compute#addressAggregatedList", next)
}

/// The items of one page, and the token of the next.
fn select<'a>(
    context: &'a Context,
    prefix: &'a str,
    page: &'a Page,
) -> (Vec<(&'a str, &'a Address)>, Option<String>) {
    let state = &*context.state;
    let addresses = &state.cloud(Cloud::Gcp).addresses;
    let rows = addresses.after(context.seen, prefix, page.after.as_deref());
    let mut rows = rows
        .filter(|(key, address)| {
            !(context.leaves_any_out() && context.leaves_out(&[key, &address.ip.to_string()]))
        })
        .filter(|(_, address)| match &page.filter {
            Some(filter) => filter.passes(&|field| values(state, address, field)),
            None => true,
        });
    let found: Vec<_> = rows.by_ref().take(page.limit).collect();
    let more = rows.next().is_some();
    let next = found.last().filter(|_| more).map(|(key, _)| page_token(key));
    (found, next)
}

/// The values of a field for filters, without writing the whole address first.
fn values<'a>(state: &State, address: &'a Address, field: &str) -> Values<'a> {
    match field {
        "address" => vec![address.ip.to_string().into()],
        "name" => vec![address.name.as_str().into()],
        "status" => vec![status(address).into()],
        "addressType" => vec!["EXTERNAL".into()],
        "networkTier" => vec![address.tier.as_str().into()],
        "ipVersion" => vec![version(address).into()],
        "region" if address.region != "global" => {
            vec![link(state, &format!("projects/{}/regions/{}", project(&address.id), address.region)).into()]
        }
        "users" => user(state, address).map(Into::into).into_iter().collect(),
        label => {
            let value = label.strip_prefix("labels.").and_then(|label| address.tags.get(label));
            value.map(|value| value.as_str().into()).into_iter().collect()
        }
    }
}

fn status(address: &Address) -> &'static str {
    if address.holder.is_some() { "IN_USE" } else { "RESERVED" }
}

fn version(address: &Address) -> &'static str {
    match address.ip {
        IpAddr::V4(_) => "IPV4",
        IpAddr::V6(_) => "IPV6",
    }
}

/// The link of whoever has an address.
fn user(state: &State, address: &Address) -> Option<String> {
    match address.holder.as_ref()? {
        Holder::Slot { interface, .. } => {
            // The key of an interface is that of its instance and its name.
            let (instance, _) = interface.rsplit_once('/')?;
            Some(link(state, instance))
        }
        Holder::Other { resource, .. } => {
            let scope = scope_of(&address.id);
            Some(link(state, &format!("projects/{}/{scope}/{resource}", project(&address.id))))
        }
    }
}

/// `regions/r` or `global` of a key.
fn scope_of(key: &str) -> String {
    let parts: Vec<&str> = key.split('/').skip(2).collect();
    match parts.as_slice() {
        ["regions", region, ..] => format!("regions/{region}"),
        _ => "global".to_owned(),
    }
}

fn scopes(state: &State, project: &str) -> BTreeSet<String> {
    let prefix = format!("projects/{project}/");
    let inventory = state.cloud(Cloud::Gcp);
    let of_addresses = inventory.addresses.after(None, &prefix, None).map(|(key, _)| scope_of(key));
    let of_instances = inventory.instances.after(None, &prefix, None);
    let of_instances = of_instances.map(|(_, instance)| format!("regions/{}", instance.region));
    of_addresses.chain(of_instances).chain(["global".to_owned()]).collect()
}

fn write(state: &State, key: &str, address: &Address) -> Value {
    let mut body = json!({
        "kind": "compute#address",
        "id": address.uid.to_string(),
        "creationTimestamp": time(address.created),
        "name": address.name,
        "description": "",
        "address": address.ip.to_string(),
        "status": status(address),
        "selfLink": link(state, key),
        "networkTier": address.tier,
        "addressType": "EXTERNAL",
        "ipVersion": version(address),
        "labelFingerprint": fingerprint(address.uid),
    });
    if address.region != "global" {
        let region = format!("projects/{}/regions/{}", project(key), address.region);
        body["region"] = Value::from(link(state, &region));
    }
    if !address.tags.is_empty() {
        body["labels"] = json!(address.tags);
    }
    if matches!(&address.holder, Some(Holder::Other { resource, .. }) if resource.starts_with("routers/")) {
        body["purpose"] = Value::from("NAT_AUTO");
    }
    if let Some(user) = user(state, address) {
        body["users"] = json!([user]);
    }
    body
}
