//! Writes addresses, interfaces and instances as the Resource Manager does.

use crate::model::State;
use crate::model::operations::guid;
use crate::model::things::{Address, Cloud, Holder, Instance, InstanceState, Interface, Provisioning, Slot};
use crate::provider_id::fingerprint;
use crate::settings::WhileUpdating;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The `ETag` of a version of a thing.
pub fn etag(key: &str, version: u64) -> String {
    format!("W/\"{}\"", guid(fingerprint(key).wrapping_add(version)))
}

/// The id of an IP configuration.
pub fn config_id(interface: &Interface, slot: &str) -> String {
    format!("{}/ipConfigurations/{slot}", interface.id)
}

/// The network provider of the resource group that an id is in.
fn network_of(id: &str) -> String {
    let group: Vec<&str> = id.split('/').take(5).collect();
    format!("{}/providers/Microsoft.Network", group.join("/"))
}

/// The id of whoever has an address.
pub fn holder_id(state: &State, address: &Address) -> Option<String> {
    match address.holder.as_ref()? {
        Holder::Slot { interface, slot, .. } => {
            let row = state.cloud(Cloud::Azure).interfaces.get(interface)?;
            Some(config_id(row, &row.slots.get(*slot)?.name))
        }
        Holder::Other { resource, .. } => Some(format!("{}/{resource}", network_of(&address.id))),
    }
}

/// A public address. One that a NAT gateway has shows no `ipConfiguration`.
pub fn address(state: &State, key: &str, row: &Address) -> Value {
    let version = match row.ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    let mut properties = json!({
        "provisioningState": if row.busy.is_some() { "Updating" } else { "Succeeded" },
        "resourceGuid": guid(row.uid),
        "ipAddress": row.ip.to_string(),
        "publicIPAddressVersion": version,
        "publicIPAllocationMethod": "Static",
        "idleTimeoutInMinutes": 4,
        "ipTags": [],
        "ddosSettings": { "protectionMode": "VirtualNetworkInherited" },
    });
    if let Some(id) = holder_id(state, row) {
        let member = if id.contains("/natGateways/") { "natGateway" } else { "ipConfiguration" };
        properties[member] = json!({ "id": id });
    }
    let mut body = json!({
        "name": row.name,
        "id": row.id,
        "etag": etag(key, row.version),
        "location": row.region,
        "type": "Microsoft.Network/publicIPAddresses",
        "sku": { "name": row.tier, "tier": "Regional" },
        "properties": properties,
    });
    if !row.tags.is_empty() {
        body["tags"] = json!(row.tags);
    }
    body
}

/// An interface. While it is being written it shows what it was or what it will be.
pub fn interface(state: &State, key: &str, row: &Interface) -> Value {
    let mut shown = row.clone();
    let while_updating = state.settings.azure.while_updating;
    if let Some(draft) = row.draft.clone().filter(|_| while_updating == WhileUpdating::New) {
        shown.slots = draft.slots;
        shown.document = draft.document;
        shown.tags = draft.tags;
    }
    let mut body = json!({
        "name": shown.name,
        "id": shown.id,
        "etag": etag(key, shown.version),
        "location": shown.region,
        "type": "Microsoft.Network/networkInterfaces",
        "properties": interface_properties(state, key, &shown),
    });
    if !shown.tags.is_empty() {
        body["tags"] = json!(shown.tags);
    }
    body
}

fn interface_properties(state: &State, key: &str, row: &Interface) -> Value {
    let provisioning = match row.provisioning {
        Provisioning::Succeeded => "Succeeded",
        Provisioning::Updating => "Updating",
        Provisioning::Failed => "Failed",
    };
    let tag = etag(key, row.version);
    let configs = row.slots.iter();
    let configs: Vec<Value> = configs.map(|slot| config(state, row, slot, provisioning, &tag)).collect();
    let mut properties = json!({
        "provisioningState": provisioning,
        "resourceGuid": guid(fingerprint(key)),
        "ipConfigurations": configs,
        "dnsSettings": { "dnsServers": [], "appliedDnsServers": [] },
        "macAddress": "00-0D-3A-00-00-01",
        "vnetEncryptionSupported": false,
        "disableTcpStateTracking": false,
        "hostedWorkloads": [],
        "tapConfigurations": [],
        "nicType": "Standard",
        "auxiliaryMode": "None",
        "auxiliarySku": "None",
        // What is not set has its default, whatever it was before.
        "enableAcceleratedNetworking": false,
        "enableIPForwarding": false,
    });
    for (name, value) in &row.document {
        properties[name] = value.clone();
    }
    if let Some(instance) = instance_of(state, row) {
        let id = instance.provider_id.trim_start_matches("azure://");
        properties["virtualMachine"] = json!({ "id": id });
        properties["primary"] = Value::from(row.index == 0);
    }
    properties
}

fn instance_of<'a>(state: &'a State, row: &Interface) -> Option<&'a Instance> {
    state.cloud(Cloud::Azure).instances.get(row.instance.as_deref()?)
}

fn config(state: &State, interface: &Interface, slot: &Slot, provisioning: &str, tag: &str) -> Value {
    let mut properties = json!({
        "provisioningState": provisioning,
        "privateIPAddress": slot.private_ip.to_string(),
        "primary": slot.primary,
    });
    for (name, value) in &slot.document {
        properties[name] = value.clone();
    }
    let reserved = slot.binding.as_ref().and_then(|binding| binding.reserved.as_ref());
    if let Some(address) = reserved.and_then(|key| state.cloud(Cloud::Azure).addresses.get(key)) {
        properties["publicIPAddress"] = json!({ "id": address.id });
    }
    json!({
        "name": slot.name,
        "id": config_id(interface, &slot.name),
        "etag": tag,
        "type": "Microsoft.Network/networkInterfaces/ipConfigurations",
        "properties": properties,
    })
}

/// An instance.
pub fn instance(state: &State, row: &Instance, expand: bool) -> Value {
    let settings = &state.settings.azure;
    let interfaces = row.interfaces.iter().filter_map(|key| state.cloud(Cloud::Azure).interfaces.get(key));
    let interfaces: Vec<Value> = interfaces
        .map(|interface| {
            let mut reference = json!({ "id": compute_case(state, &interface.id) });
            if settings.primary_flag {
                reference["properties"] = json!({ "primary": interface.index == 0 });
            }
            reference
        })
        .collect();
    let mut properties = json!({
        "vmId": guid(row.uid),
        "hardwareProfile": { "vmSize": "Standard_D2s_v5" },
        "osProfile": { "computerName": row.name },
        "networkProfile": { "networkInterfaces": interfaces },
        "provisioningState": "Succeeded",
        "timeCreated": row.created.to_string(),
    });
    if expand {
        properties["instanceView"] = instance_view(row);
    }
    let mut body = json!({
        "name": row.name,
        "id": compute_case(state, row.provider_id.trim_start_matches("azure://")),
        "type": "Microsoft.Compute/virtualMachines",
        "location": row.region,
        "zones": [row.zone],
        "properties": properties,
    });
    if !row.tags.is_empty() {
        body["tags"] = json!(row.tags);
    }
    body
}

/// Whether an instance runs, and nothing else about it.
pub fn instance_status(state: &State, row: &Instance) -> Value {
    let mut body = instance(state, row, true);
    for name in ["networkProfile", "hardwareProfile", "osProfile"] {
        if let Some(properties) = body["properties"].as_object_mut() {
            properties.remove(name);
        }
    }
    body
}

/// The power state of an instance.
pub fn instance_view(row: &Instance) -> Value {
    let (power, words) = match row.state {
        InstanceState::Pending => ("PowerState/starting", "VM starting"),
        InstanceState::Running => ("PowerState/running", "VM running"),
        InstanceState::Stopped | InstanceState::Terminated => ("PowerState/deallocated", "VM deallocated"),
    };
    let time = row.state_since.to_string();
    json!({ "statuses": [
        { "code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded", "time": time },
        { "code": power, "level": "Info", "displayStatus": words },
    ]})
}

/// The compute API writes resource groups in capitals.
fn compute_case(state: &State, id: &str) -> String {
    if !state.settings.azure.mixed_case_ids {
        return id.to_owned();
    }
    let mut segments: Vec<String> = id.split('/').map(str::to_owned).collect();
    if let Some(group) = segments.get_mut(4) {
        *group = group.to_uppercase();
    }
    segments.join("/")
}
