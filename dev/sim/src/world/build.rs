//! Makes the things of the model from what was written down.

use super::{AddressSpec, InstanceSpec, WorldError};
use crate::model::State;
use crate::model::things::{Address, Cloud, Holder, Instance, InstanceState, Interface, Provisioning, Slot};
use crate::provider_id::{self, ProviderId, fingerprint};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Names that the rest of the kit gives to the places of its nodes.
const PROJECT: &str = "dev-project";
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";
const GROUP: &str = "dev-nodes";

pub fn instance(state: &mut State, spec: &InstanceSpec) -> Result<(), WorldError> {
    let place = "instances".to_owned();
    let id = spec.provider_id.clone();
    let Some(parsed) = provider_id::parse(&id) else {
        return Err(WorldError::ProviderId { place, id });
    };
    let (cloud, key) = (parsed.cloud(), parsed.key());
    if state.cloud(cloud).instances.get(&key).is_some() {
        return Err(WorldError::SameInstance { place, id });
    }
    let region = spec.region.clone().unwrap_or_else(|| parsed.region());
    let border_group = spec.border_group.clone().unwrap_or_else(|| region.clone());
    let interfaces: Vec<(String, Interface)> =
        (0..spec.interfaces).map(|n| interface(state, &parsed, spec, n, &region, &border_group)).collect();
    let now = state.now();
    let instance = Instance {
        provider_id: id,
        name: parsed.name().to_owned(),
        zone: parsed.zone().unwrap_or("1").to_owned(),
        region,
        border_group,
        uid: state.next_uid(),
        created: now,
        state: spec.state,
        state_since: now,
        interfaces: interfaces.iter().map(|(key, _)| key.clone()).collect(),
        wants_ephemeral: spec.ephemeral,
        private_egress: spec.private_egress,
        tags: spec.tags.clone(),
        client_token: None,
    };
    state.add_instance(cloud, &key, instance, interfaces);
    if spec.state == InstanceState::Stopped {
        state.stop_instance(cloud, &key);
    }
    Ok(())
}

/// One more interface for an instance, such as a network plugin attaches.
pub fn interface(
    state: &mut State,
    instance: &ProviderId,
    spec: &InstanceSpec,
    n: usize,
    region: &str,
    border_group: &str,
) -> (String, Interface) {
    let (id, name) = interface_id(instance, n);
    let key = if instance.cloud() == Cloud::Azure { id.to_lowercase() } else { id.clone() };
    let slots = (0..spec.private_addresses).map(|slot| new_slot(state, instance, slot)).collect();
    let interface = Interface {
        id,
        instance: Some(instance.key()),
        name,
        index: n,
        region: region.to_owned(),
        border_group: border_group.to_owned(),
        slots,
        version: 1,
        provisioning: Provisioning::Succeeded,
        busy: None,
        draft: None,
        no_gateway: spec.no_gateway,
        document: interface_document(instance),
        tags: BTreeMap::new(),
    };
    (key, interface)
}

/// The id of the n-th interface of an instance, and its name.
fn interface_id(instance: &ProviderId, n: usize) -> (String, String) {
    match instance {
        ProviderId::Gcp { .. } => (format!("{}/nic{n}", instance.key()), format!("nic{n}")),
        ProviderId::Aws { id, .. } => {
            let id = format!("eni-{:017x}", fingerprint(&format!("{id}/{n}")) >> 4);
            (id.clone(), id)
        }
        ProviderId::Azure { subscription, group, scale_set, name } => {
            let nic = if n == 0 { format!("{name}-nic") } else { format!("{name}-nic-{}", n + 1) };
            let network =
                format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network");
            let id = match scale_set {
                Some(_) => format!("{}/networkInterfaces/{nic}", instance.arm_id()),
                None => format!("{network}/networkInterfaces/{nic}"),
            };
            (id, nic)
        }
    }
}

fn new_slot(state: &mut State, instance: &ProviderId, n: usize) -> Slot {
    Slot {
        name: format!("ipconfig{}", n + 1),
        private_ip: state.private_ip(),
        primary: n == 0,
        binding: None,
        document: slot_document(instance),
    }
}

/// What Azure's interfaces of cluster nodes usually have, and what a careless write loses.
fn interface_document(instance: &ProviderId) -> Map<String, Value> {
    let ProviderId::Azure { subscription, group, .. } = instance else {
        return Map::new();
    };
    let network = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network");
    object(json!({
        "enableAcceleratedNetworking": true,
        "enableIPForwarding": true,
        "networkSecurityGroup": { "id": format!("{network}/networkSecurityGroups/nodes") },
    }))
}

fn slot_document(instance: &ProviderId) -> Map<String, Value> {
    let ProviderId::Azure { subscription, group, .. } = instance else {
        return Map::new();
    };
    let network = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network");
    object(json!({
        "privateIPAllocationMethod": "Dynamic",
        "privateIPAddressVersion": "IPv4",
        "subnet": { "id": format!("{network}/virtualNetworks/nodes/subnets/nodes") },
        "loadBalancerBackendAddressPools": [
            { "id": format!("{network}/loadBalancers/kubernetes/backendAddressPools/kubernetes") },
        ],
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

pub fn address(state: &mut State, spec: &AddressSpec) -> Result<(), WorldError> {
    let place = "addresses".to_owned();
    if state.find_address(spec.address).is_some() {
        let address = spec.address;
        return Err(WorldError::SameAddress { place, address });
    }
    let (key, address) = new_address(state, spec);
    state.add_address(spec.cloud, &key, address);
    let Some(holder) = &spec.held_by else {
        return Ok(());
    };
    let Some(instance) = provider_id::parse(holder) else {
        let binding = association_id(state.next_uid());
        let resource = holder.clone();
        state.set_holder(spec.cloud, &key, Some(Holder::Other { resource, binding }));
        return Ok(());
    };
    let missing = WorldError::NoHolder { place, address: spec.address, holder: holder.clone() };
    let name = spec.access_config.as_deref();
    state.put_on_instance(spec.cloud, &key, &instance.key(), name).ok_or(missing)
}

fn new_address(state: &mut State, spec: &AddressSpec) -> (String, Address) {
    let region = spec.region.clone().unwrap_or_else(|| default_region(spec.cloud).to_owned());
    let written = spec.address.to_string().replace(['.', ':'], "-");
    let name = spec.name.clone().unwrap_or_else(|| match spec.cloud {
        Cloud::Gcp => format!("ip-{written}"),
        Cloud::Aws => format!("eipalloc-{:017x}", fingerprint(&written) >> 4),
        Cloud::Azure => format!("pip-{written}"),
    });
    let id = address_id(spec, &region, &name);
    let key = if spec.cloud == Cloud::Azure { id.to_lowercase() } else { id.clone() };
    let tier = spec.tier.clone().unwrap_or_else(|| match spec.cloud {
        Cloud::Gcp => state.settings.gcp.default_tier.clone(),
        Cloud::Aws => "amazon".to_owned(),
        Cloud::Azure => "Standard".to_owned(),
    });
    let address = Address {
        id,
        name,
        ip: spec.address,
        border_group: spec.border_group.clone().unwrap_or_else(|| region.clone()),
        region,
        tier,
        uid: state.next_uid(),
        created: state.now(),
        version: 1,
        holder: None,
        busy: None,
        tags: spec.tags.clone(),
    };
    (key, address)
}

fn default_region(cloud: Cloud) -> &'static str {
    match cloud {
        Cloud::Gcp => "us-central1",
        Cloud::Aws => "eu-west-1",
        Cloud::Azure => "westeurope",
    }
}

fn address_id(spec: &AddressSpec, region: &str, name: &str) -> String {
    match spec.cloud {
        Cloud::Gcp => {
            let project = spec.owner.as_deref().unwrap_or(PROJECT);
            match region {
                "global" => format!("projects/{project}/global/addresses/{name}"),
                region => format!("projects/{project}/regions/{region}/addresses/{name}"),
            }
        }
        Cloud::Aws => name.to_owned(),
        Cloud::Azure => {
            let owner = spec.owner.as_deref().and_then(|owner| owner.split_once('/'));
            let (subscription, group) = owner.unwrap_or((SUBSCRIPTION, GROUP));
            format!(
                "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network\
                 /publicIPAddresses/{name}"
            )
        }
    }
}

/// The owner in the id of an address, as it is written in a world.
pub fn owner_of(cloud: Cloud, id: &str) -> Option<String> {
    let segments: Vec<&str> = id.split('/').collect();
    match cloud {
        Cloud::Gcp => segments.get(1).map(|&project| project.to_owned()),
        Cloud::Aws => None,
        Cloud::Azure => Some(format!("{}/{}", segments.get(2)?, segments.get(4)?)),
    }
}

/// An association id of AWS.
pub fn association_id(uid: u64) -> String {
    format!("eipassoc-{uid:017x}")
}
