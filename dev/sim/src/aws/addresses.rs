//! Elastic IP addresses: `DescribeAddresses`, `AllocateAddress`, `ReleaseAddress`.

use super::errors::{ALLOCATION, error, no_such};
use super::params::{Filter, Params, passes};
use super::xml::Xml;
use super::{Call, success};
use crate::http::{ApiError, Reply};
use crate::model::State;
use crate::model::things::{Address, Cloud, Holder};
use crate::pipeline::Context;
use crate::provider_id::fingerprint;
use crate::settings::Unassociated;
use crate::world::{AddressSpec, World};
use std::net::{IpAddr, Ipv4Addr};

const AWS: Cloud = Cloud::Aws;
const FILTERS: [&str; 10] = [
    "allocation-id",
    "association-id",
    "domain",
    "instance-id",
    "network-border-group",
    "network-interface-id",
    "network-interface-owner-id",
    "private-ip-address",
    "public-ip",
    "tag-key",
];

/// Who has an address, in the words of the API.
#[derive(Default)]
struct Association {
    id: Option<String>,
    instance: Option<String>,
    interface: Option<String>,
    interface_owner: Option<String>,
    private_ip: Option<String>,
    service: Option<&'static str>,
}

/// `DescribeAddresses`. There are no pages.
pub fn describe(context: &Context, call: &Call) -> Result<Reply, ApiError> {
    let state = &*context.state;
    let params = &call.params;
    let filters = params.filters(&FILTERS)?;
    let inventory = state.cloud(AWS);
    for id in params.list("AllocationId") {
        if inventory.addresses.seen(id, context.seen).is_none() {
            return Err(no_such(&ALLOCATION, id));
        }
    }
    let public_ips = params.list("PublicIp");
    for ip in &public_ips {
        find_by_ip(state, ip)?; // one unknown address fails the whole call
    }
    let allocations = params.list("AllocationId");
    let wanted = |key: &str, address: &Address| {
        call.sees(&address.region)
            && (allocations.is_empty() || allocations.contains(&key))
            && (public_ips.is_empty() || public_ips.contains(&address.ip.to_string().as_str()))
            && !(context.leaves_any_out() && context.leaves_out(&[key, &address.ip.to_string()]))
            && passes(&filters, &address.tags, |field| values(context, address, field))
    };
    let candidates = candidates(context, &filters);
    let found: Vec<&Address> = candidates
        .into_iter()
        .filter(|(key, address)| wanted(key, address))
        .map(|(_, address)| address)
        .collect();
    let empty = state.settings.aws.unassociated == Unassociated::Empty;
    Ok(success("DescribeAddresses", context.state.log.last(), |xml| {
        xml.list("addressesSet", found, |xml, address| {
            write(xml, address, &association(context, address), empty);
        });
    }))
}

/// The addresses that can pass: those that a filter names if it names them plainly, or else all.
fn candidates<'a>(context: &'a Context, filters: &[Filter]) -> Vec<(&'a str, &'a Address)> {
    let addresses = &context.state.cloud(AWS).addresses;
    // What a reader who is behind sees is in no index.
    let named = filters.iter().find_map(|filter| filter.plain_values("public-ip"));
    let Some(named) = named.filter(|_| context.seen.is_none()) else {
        return addresses.all(context.seen).collect();
    };
    let keys = named.iter().filter_map(|text| context.state.address_key(AWS, text.parse().ok()?));
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    keys.into_iter().filter_map(|key| Some((key, addresses.get(key)?))).collect()
}

fn values(context: &Context, address: &Address, field: &str) -> Vec<String> {
    // Most look-ups are by address: who has it is found out only for filters that ask.
    let of_association = || {
        let association = association(context, address);
        match field {
            "association-id" => association.id,
            "instance-id" => association.instance,
            "network-interface-id" => association.interface,
            "network-interface-owner-id" => association.interface_owner,
            _ => association.private_ip,
        }
    };
    match field {
        "public-ip" => vec![address.ip.to_string()],
        "allocation-id" => vec![address.name.clone()],
        "domain" => vec!["vpc".to_owned()],
        "network-border-group" => vec![address.border_group.clone()],
        _ => of_association().into_iter().collect(),
    }
}

fn association(context: &Context, address: &Address) -> Association {
    let state = &*context.state;
    let account = || Some(state.settings.aws.account.clone());
    match &address.holder {
        None => Association::default(),
        Some(Holder::Slot { interface, slot, binding }) => {
            let row = state.cloud(AWS).interfaces.seen(interface, context.seen);
            Association {
                id: Some(binding.clone()),
                instance: row.and_then(|row| row.instance.clone()),
                interface: Some(interface.clone()),
                interface_owner: account(),
                private_ip: row.and_then(|row| Some(row.slots.get(*slot)?.private_ip.to_string())),
                service: None,
            }
        }
        // An interface of a service: it has no instance.
        Some(Holder::Other { resource, binding }) => Association {
            id: Some(binding.clone()),
            instance: None,
            interface: Some(format!("eni-{:017x}", fingerprint(resource) >> 4)),
            interface_owner: account(),
            private_ip: Some("10.255.0.9".to_owned()),
            service: resource.starts_with("loadBalancers/").then_some("alb"),
        },
    }
}

fn write(xml: &mut Xml, address: &Address, association: &Association, empty: bool) {
    let field = |xml: &mut Xml, name: &str, value: &Option<String>| {
        let absent = empty.then(String::new);
        xml.optional(name, value.as_ref().or(absent.as_ref()));
    };
    xml.leaf("publicIp", address.ip).leaf("allocationId", &address.name).leaf("domain", "vpc");
    field(xml, "instanceId", &association.instance);
    field(xml, "associationId", &association.id);
    field(xml, "networkInterfaceId", &association.interface);
    field(xml, "networkInterfaceOwnerId", &association.interface_owner);
    field(xml, "privateIpAddress", &association.private_ip);
    xml.optional("serviceManaged", association.service);
    super::write_tags(xml, &address.tags);
    xml.leaf("publicIpv4Pool", &address.tier).leaf("networkBorderGroup", &address.border_group);
}

/// The address that a public IP belongs to.
pub fn find_by_ip<'a>(state: &'a State, text: &str) -> Result<(String, &'a Address), ApiError> {
    let Ok(ip) = text.parse::<IpAddr>() else {
        return Err(error("InvalidAddress.Malformed", format!("Invalid address: \"{text}\"")));
    };
    let not_found = || error("InvalidAddress.NotFound", format!("Address '{text}' not found."));
    let (cloud, key) = state.find_address(ip).ok_or_else(not_found)?;
    if cloud != AWS {
        return Err(not_found());
    }
    let address = state.cloud(AWS).addresses.get(&key).ok_or_else(not_found)?;
    Ok((key, address))
}

/// `AllocateAddress`.
pub fn allocate(context: &mut Context, call: &Call) -> Result<Reply, ApiError> {
    let state = &mut *context.state;
    let region = call.region_or_default();
    let addresses = state.cloud(AWS).addresses.all(None);
    let owned = addresses.filter(|(_, address)| address.region == region).count();
    if owned >= state.settings.aws.address_quota {
        return Err(error("AddressLimitExceeded", "The maximum number of addresses has been reached."));
    }
    let address = match call.params.get("Address") {
        None => unused_address(state),
        Some(text) => {
            let wrong = |_| error("InvalidParameterValue", format!("Invalid value '{text}' for Address."));
            text.parse::<IpAddr>().map_err(wrong)?
        }
    };
    let mut spec = AddressSpec::free(AWS, address);
    spec.region = Some(region.clone());
    spec.name = Some(format!("eipalloc-{:017x}", state.next_uid()));
    spec.border_group = call.params.get("NetworkBorderGroup").map(str::to_owned);
    spec.tags = call.params.tags();
    World::add_address(state, &spec).map_err(|_| {
        error("InvalidAddress.NotFound", format!("Address '{address}' is not available to be allocated."))
    })?;
    Ok(success("AllocateAddress", state.log.last(), |xml| {
        xml.leaf("publicIp", address)
            .leaf("domain", "vpc")
            .optional("allocationId", spec.name.as_ref())
            .leaf("publicIpv4Pool", "amazon")
            .leaf("networkBorderGroup", spec.border_group.as_ref().unwrap_or(&region));
    }))
}

/// An address of the documentation range that is not reserved yet.
fn unused_address(state: &State) -> IpAddr {
    let candidates = (1..=254).map(|last| IpAddr::V4(Ipv4Addr::new(203, 0, 113, last)));
    let mut unused = candidates.filter(|ip| state.find_address(*ip).is_none());
    unused.next().unwrap_or(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 255)))
}

/// `ReleaseAddress`. One that is in use must be disassociated first.
pub fn release(context: &mut Context, call: &Call) -> Result<Reply, ApiError> {
    let state = &mut *context.state;
    let id = call.params.required("AllocationId")?;
    let address = state.cloud(AWS).addresses.get(id).ok_or_else(|| no_such(&ALLOCATION, id))?;
    if address.holder.is_some() {
        return Err(error("InvalidIPAddress.InUse", format!("Address {} is in use.", address.ip)));
    }
    state.remove_address(AWS, id);
    Ok(success("ReleaseAddress", state.log.last(), |xml| {
        xml.leaf("return", true);
    }))
}

/// The address that a call names by its allocation id or, as in old times, by itself.
pub fn named<'a>(state: &'a State, params: &Params) -> Result<(String, &'a Address), ApiError> {
    match (params.get("AllocationId"), params.get("PublicIp")) {
        (Some(id), _) => {
            let found = state.cloud(AWS).addresses.get(id).ok_or_else(|| no_such(&ALLOCATION, id))?;
            Ok((id.to_owned(), found))
        }
        (None, Some(ip)) => find_by_ip(state, ip),
        (None, None) => Err(super::errors::missing("AllocationId")),
    }
}
