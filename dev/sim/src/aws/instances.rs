//! Instances and their interfaces: `DescribeInstances`, `DescribeNetworkInterfaces`.

use super::errors::{INSTANCE, INTERFACE, no_such};
use super::params::{page_token, passes};
use super::xml::Xml;
use super::{Call, success, write_tags};
use crate::clock::plus;
use crate::http::{ApiError, Reply};
use crate::model::State;
use crate::model::things::{Binding, Cloud, Instance, InstanceState, Interface, Slot};
use crate::pipeline::Context;
use crate::provider_id::fingerprint;
use std::time::Duration;

const AWS: Cloud = Cloud::Aws;
/// The network that all instances are in.
pub const VPC: &str = "vpc-0a1b2c3d4e5f60718";
const SUBNET: &str = "subnet-0a1b2c3d4e5f60718";
/// How long an instance that is gone is still described.
const REMEMBERED: Duration = Duration::from_hours(1);

const INSTANCE_FILTERS: [&str; 10] = [
    "availability-zone",
    "instance-id",
    "instance-state-code",
    "instance-state-name",
    "ip-address",
    "network-interface.addresses.association.public-ip",
    "network-interface.network-interface-id",
    "private-ip-address",
    "tag-key",
    "vpc-id",
];
const INTERFACE_FILTERS: [&str; 9] = [
    "addresses.private-ip-address",
    "association.allocation-id",
    "association.association-id",
    "association.public-ip",
    "attachment.instance-id",
    "availability-zone",
    "network-interface-id",
    "tag-key",
    "vpc-id",
];

/// Code and name of a state.
pub fn state_of(state: InstanceState) -> (u8, &'static str) {
    match state {
        InstanceState::Pending => (0, "pending"),
        InstanceState::Running => (16, "running"),
        InstanceState::Terminated => (48, "terminated"),
        InstanceState::Stopped => (80, "stopped"),
    }
}

/// An instance, the interfaces that a reader sees on it, and how they are turned.
struct Seen<'a> {
    key: &'a str,
    instance: &'a Instance,
    interfaces: Vec<(&'a str, &'a Interface)>,
}

impl Seen<'_> {
    fn bindings(&self) -> impl Iterator<Item = &Binding> {
        let slots = self.interfaces.iter().flat_map(|(_, interface)| &interface.slots);
        slots.filter_map(|slot| slot.binding.as_ref())
    }

    fn public_ip(&self) -> Option<String> {
        self.bindings().find_map(|binding| binding.ip).map(|ip| ip.to_string())
    }

    fn private_ip(&self) -> Option<String> {
        Some(self.interfaces.first()?.1.slots.first()?.private_ip.to_string())
    }
}

/// `DescribeInstances`.
pub fn describe(context: &mut Context, call: &Call) -> Result<Reply, ApiError> {
    // Nobody may rely on the order of interfaces: each reply turns it.
    let turn = usize::try_from(context.state.random(64)).unwrap_or(0);
    let context = &*context;
    let ids = call.params.list("InstanceId");
    let page = call.params.page("InstanceId")?;
    let filters = call.params.filters(&INSTANCE_FILTERS)?;
    let instances = &context.state.cloud(AWS).instances;
    for id in &ids {
        let known = instances.seen(id, context.seen).filter(|instance| described(context.state, instance));
        known.ok_or_else(|| no_such(&INSTANCE, id))?;
    }
    let rows = instances.after(context.seen, "", page.after.as_deref());
    let rows = rows.filter(|(key, instance)| {
        (ids.is_empty() || ids.contains(key))
            && call.sees(&instance.region)
            && described(context.state, instance)
            && !context.leaves_out(&[key])
    });
    let mut found = rows
        .map(|(key, instance)| with_interfaces(context, key, instance))
        .filter(|seen| passes(&filters, &seen.instance.tags, |field| values(seen, field)));
    let items: Vec<Seen> = found.by_ref().take(page.limit).collect();
    let next = if found.next().is_some() { items.last().map(|last| page_token(last.key)) } else { None };
    let account = &context.state.settings.aws.account;
    Ok(success("DescribeInstances", context.state.log.last(), |xml| {
        xml.list("reservationSet", items, |xml, seen| {
            write_reservation(xml, &[seen], account, turn);
        });
        xml.optional("nextToken", next);
    }))
}

/// Instances that were launched by one call, as that call answers.
pub fn write_launched(context: &Context, ids: &[String]) -> Reply {
    let instances = &context.state.cloud(AWS).instances;
    let launched = ids.iter().filter_map(|id| Some((id.as_str(), instances.get(id)?)));
    let seen: Vec<Seen> = launched.map(|(key, instance)| with_interfaces(context, key, instance)).collect();
    let account = &context.state.settings.aws.account;
    success("RunInstances", context.state.log.last(), |xml| {
        write_reservation(xml, &seen, account, 0);
    })
}

fn described(state: &State, instance: &Instance) -> bool {
    instance.state != InstanceState::Terminated || plus(instance.state_since, REMEMBERED) > state.now()
}

fn with_interfaces<'a>(context: &'a Context, key: &'a str, instance: &'a Instance) -> Seen<'a> {
    let interfaces = &context.state.cloud(AWS).interfaces;
    let seen = |id: &'a String| Some((id.as_str(), interfaces.seen(id, context.seen)?));
    let interfaces = match instance.state {
        InstanceState::Terminated => Vec::new(),
        _ => instance.interfaces.iter().filter_map(seen).collect(),
    };
    Seen { key, instance, interfaces }
}

fn values(seen: &Seen, field: &str) -> Vec<String> {
    let (code, name) = state_of(seen.instance.state);
    match field {
        "instance-id" => vec![seen.key.to_owned()],
        "instance-state-name" => vec![name.to_owned()],
        "instance-state-code" => vec![code.to_string()],
        "availability-zone" => vec![seen.instance.zone.clone()],
        "vpc-id" => vec![VPC.to_owned()],
        "ip-address" => seen.public_ip().into_iter().collect(),
        "private-ip-address" => seen.private_ip().into_iter().collect(),
        "network-interface.network-interface-id" => seen.instance.interfaces.clone(),
        _ => seen.bindings().filter_map(|binding| binding.ip).map(|ip| ip.to_string()).collect(),
    }
}

fn write_reservation(xml: &mut Xml, seen: &[Seen], account: &str, turn: usize) {
    let first = seen.first().map_or("", |seen| seen.key);
    xml.leaf("reservationId", format!("r-{:017x}", fingerprint(first) >> 4))
        .leaf("ownerId", account)
        .node("groupSet", |_| {});
    xml.list("instancesSet", seen, |xml, seen| {
        write_instance(xml, seen, account, turn);
    });
}

fn write_instance(xml: &mut Xml, seen: &Seen, account: &str, turn: usize) {
    let instance = seen.instance;
    let (code, name) = state_of(instance.state);
    let private = seen.private_ip();
    xml.leaf("instanceId", seen.key)
        .leaf("imageId", "ami-12c6146b")
        .node("instanceState", |xml| {
            xml.leaf("code", code).leaf("name", name);
        })
        .leaf("privateDnsName", dns_name("ip", private.as_deref(), "internal"))
        .leaf("dnsName", dns_name("ec2", seen.public_ip().as_deref(), "amazonaws.com"))
        .leaf("reason", "")
        .leaf("amiLaunchIndex", 0)
        .node("productCodes", |_| {})
        .leaf("instanceType", "m5.large")
        .leaf("launchTime", time(instance.created))
        .node("placement", |xml| {
            xml.leaf("availabilityZone", &instance.zone).leaf("groupName", "").leaf("tenancy", "default");
        })
        .node("monitoring", |xml| {
            xml.leaf("state", "disabled");
        });
    if instance.state != InstanceState::Terminated {
        xml.leaf("subnetId", SUBNET).leaf("vpcId", VPC);
    }
    xml.optional("privateIpAddress", private)
        .optional("ipAddress", seen.public_ip())
        .leaf("sourceDestCheck", true)
        .node("groupSet", |_| {})
        .leaf("architecture", "x86_64")
        .leaf("rootDeviceType", "ebs")
        .leaf("rootDeviceName", "/dev/xvda")
        .node("blockDeviceMapping", |_| {})
        .leaf("virtualizationType", "hvm")
        .leaf("clientToken", instance.client_token.as_deref().unwrap_or_default());
    write_tags(xml, &instance.tags);
    let mut interfaces: Vec<&(&str, &Interface)> = seen.interfaces.iter().collect();
    if !interfaces.is_empty() {
        let by = turn % interfaces.len();
        interfaces.rotate_left(by);
    }
    xml.leaf("hypervisor", "xen");
    xml.list("networkInterfaceSet", interfaces, |xml, (key, interface)| {
        write_interface(xml, key, interface, account, instance);
    });
    xml.leaf("ebsOptimized", false);
}

fn write_interface(xml: &mut Xml, key: &str, interface: &Interface, account: &str, instance: &Instance) {
    let first = interface.slots.first();
    xml.leaf("networkInterfaceId", key)
        .leaf("subnetId", SUBNET)
        .leaf("vpcId", VPC)
        .leaf("description", "")
        .leaf("ownerId", account)
        .leaf("status", "in-use")
        .leaf("macAddress", mac(key))
        .optional("privateIpAddress", first.map(|slot| slot.private_ip))
        .leaf("sourceDestCheck", true)
        .node("groupSet", |_| {})
        .node("attachment", |xml| {
            xml.leaf("attachmentId", format!("eni-attach-{:017x}", fingerprint(key) >> 4))
                .leaf("deviceIndex", interface.index)
                .leaf("status", "attached")
                .leaf("attachTime", time(instance.created))
                .leaf("deleteOnTermination", true)
                .leaf("networkCardIndex", 0);
        });
    write_association(xml, first, account, false);
    xml.list("privateIpAddressesSet", &interface.slots, |xml, slot| {
        xml.leaf("privateIpAddress", slot.private_ip).leaf("primary", slot.primary);
        write_association(xml, Some(slot), account, false);
    });
    xml.leaf("interfaceType", "interface");
}

/// Owner `amazon` says that the address is of the cloud's choice.
fn write_association(xml: &mut Xml, slot: Option<&Slot>, account: &str, with_ids: bool) {
    let Some(binding) = slot.and_then(|slot| slot.binding.as_ref()) else {
        return;
    };
    let Some(ip) = binding.ip else { return };
    xml.node("association", |xml| {
        xml.leaf("publicIp", ip)
            .leaf("publicDnsName", dns_name("ec2", Some(&ip.to_string()), "amazonaws.com"))
            .leaf("ipOwnerId", if binding.reserved.is_some() { account } else { "amazon" });
        if let Some(allocation) = binding.reserved.as_ref().filter(|_| with_ids) {
            xml.leaf("allocationId", allocation).leaf("associationId", &binding.id);
        }
    });
}

/// `DescribeNetworkInterfaces`.
pub fn describe_interfaces(context: &Context, call: &Call) -> Result<Reply, ApiError> {
    let ids = call.params.list("NetworkInterfaceId");
    let page = call.params.page("NetworkInterfaceId")?;
    let filters = call.params.filters(&INTERFACE_FILTERS)?;
    let inventory = context.state.cloud(AWS);
    for id in &ids {
        inventory.interfaces.seen(id, context.seen).ok_or_else(|| no_such(&INTERFACE, id))?;
    }
    let rows = inventory.interfaces.after(context.seen, "", page.after.as_deref());
    let mut found = rows.filter(|(key, interface)| {
        (ids.is_empty() || ids.contains(key))
            && call.sees(&interface.region)
            && !context.leaves_out(&[key])
            && passes(&filters, &interface.tags, |field| interface_values(context, key, interface, field))
    });
    let items: Vec<(&str, &Interface)> = found.by_ref().take(page.limit).collect();
    let next = if found.next().is_some() { items.last().map(|(key, _)| page_token(key)) } else { None };
    Ok(success("DescribeNetworkInterfaces", context.state.log.last(), |xml| {
        xml.list("networkInterfaceSet", items, |xml, (key, interface)| {
            write_own_interface(xml, context.state, key, interface);
        });
        xml.optional("nextToken", next);
    }))
}

fn interface_values(context: &Context, key: &str, interface: &Interface, field: &str) -> Vec<String> {
    let bindings = interface.slots.iter().filter_map(|slot| slot.binding.as_ref());
    match field {
        "network-interface-id" => vec![key.to_owned()],
        "attachment.instance-id" => interface.instance.iter().cloned().collect(),
        "vpc-id" => vec![VPC.to_owned()],
        "addresses.private-ip-address" => {
            interface.slots.iter().map(|slot| slot.private_ip.to_string()).collect()
        }
        "association.allocation-id" => bindings.filter_map(|binding| binding.reserved.clone()).collect(),
        "association.association-id" => bindings.map(|binding| binding.id.clone()).collect(),
        "association.public-ip" => bindings.filter_map(|binding| Some(binding.ip?.to_string())).collect(),
        _ => zone_of(context.state, interface).into_iter().collect(),
    }
}

fn zone_of(state: &State, interface: &Interface) -> Option<String> {
    let instance = state.cloud(AWS).instances.get(interface.instance.as_deref()?)?;
    Some(instance.zone.clone())
}

fn write_own_interface(xml: &mut Xml, state: &State, key: &str, interface: &Interface) {
    let account = &state.settings.aws.account;
    let first = interface.slots.first();
    xml.leaf("networkInterfaceId", key)
        .leaf("subnetId", SUBNET)
        .leaf("vpcId", VPC)
        .optional("availabilityZone", zone_of(state, interface))
        .leaf("description", "")
        .leaf("ownerId", account)
        .leaf("requesterManaged", false)
        .leaf("status", "in-use")
        .leaf("macAddress", mac(key))
        .optional("privateIpAddress", first.map(|slot| slot.private_ip))
        .leaf("sourceDestCheck", true)
        .node("groupSet", |_| {})
        .node("attachment", |xml| {
            xml.leaf("attachmentId", format!("eni-attach-{:017x}", fingerprint(key) >> 4))
                .optional("instanceId", interface.instance.as_ref())
                .leaf("instanceOwnerId", account)
                .leaf("deviceIndex", interface.index)
                .leaf("status", "attached")
                .leaf("deleteOnTermination", true)
                .leaf("networkCardIndex", 0);
        });
    write_association(xml, first, account, true);
    write_tags(xml, &interface.tags);
    xml.list("privateIpAddressesSet", &interface.slots, |xml, slot| {
        xml.leaf("privateIpAddress", slot.private_ip).leaf("primary", slot.primary);
        write_association(xml, Some(slot), account, true);
    });
    xml.leaf("interfaceType", "interface");
}

fn dns_name(prefix: &str, ip: Option<&str>, domain: &str) -> String {
    ip.map(|ip| format!("{prefix}-{}.compute.{domain}", ip.replace('.', "-"))).unwrap_or_default()
}

fn mac(key: &str) -> String {
    let [a, b, c, d, ..] = fingerprint(key).to_be_bytes();
    format!("06:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// A time as the API writes it.
pub fn time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}
