//! Elastic IP addresses come to interfaces and leave them: `AssociateAddress`, `DisassociateAddress`.

use super::addresses::named;
use super::errors::{ASSOCIATION, INSTANCE, INTERFACE, error, no_such};
use super::params::Params;
use super::{Call, success};
use crate::http::{ApiError, Reply};
use crate::log::{About, Purpose};
use crate::model::State;
use crate::model::things::{Address, Binding, Cloud, Holder, InstanceState, Interface};
use crate::pipeline::Context;
use crate::settings::Repeated;
use crate::world::association_id;

const AWS: Cloud = Cloud::Aws;

/// What a call is meant to do.
pub fn about(call: &Call, state: &State) -> About {
    let params = &call.params;
    let named = named(state, params).ok().map(|(_, address)| address);
    let ip = named.map(|address| address.ip);
    match call.action {
        "AssociateAddress" => {
            let of_interface = params.get("NetworkInterfaceId").and_then(|id| state.provider_id_of(AWS, id));
            let instances = &state.cloud(AWS).instances;
            let by_id = params.get("InstanceId").and_then(|id| instances.get(id));
            let instance = of_interface.or_else(|| by_id.map(|instance| instance.provider_id.clone()));
            About::new(Purpose::Attach, ip, instance)
        }
        "DisassociateAddress" => {
            let id = params.get("AssociationId").map(str::to_owned).or_else(|| binding_of(named?));
            let mut all = state.cloud(AWS).addresses.all(None);
            let held = all.find(|(_, address)| id.is_some() && binding_of(address) == id);
            let held = held.and_then(|(_, address)| state.holds_of(AWS, address));
            let (ip, holder) = held.map(|hold| (hold.ip, hold.holder)).unzip();
            About::new(Purpose::Detach, ip, holder)
        }
        "AllocateAddress" => About::new(Purpose::Reserve, None, None),
        "ReleaseAddress" => About::new(Purpose::Release, ip, None),
        _ => About::new(Purpose::Other, None, None),
    }
}

/// `AssociateAddress`.
pub fn associate(context: &mut Context, call: &Call) -> Result<Reply, ApiError> {
    let state = &mut *context.state;
    let (key, address) = named(state, &call.params)?;
    let address = address.clone();
    let interface = target(state, &call.params)?;
    let slot = target_slot(state, &interface, &call.params)?;
    let by_default = state.settings.aws.reassociate_by_default;
    let reassociate = call.params.flag("AllowReassociation").unwrap_or(by_default);
    if let Some(existing) = check_taken(state, &address, &interface, slot, reassociate)? {
        return Ok(associated(state, &existing));
    }
    check_place(state, &address, &interface)?;
    let loser = instance_of_holder(state, &address);
    state.take_from_holder(AWS, &key);
    make_room(state, &interface, slot);
    let id = association_id(state.next_uid());
    let binding = Binding { id: id.clone(), ip: Some(address.ip), reserved: Some(key), tier: address.tier };
    state.bind(AWS, &interface, slot, binding);
    if let Some(loser) = loser {
        state.aws_auto_assign(&loser);
    }
    Ok(associated(state, &id))
}

fn associated(state: &State, id: &str) -> Reply {
    success("AssociateAddress", state.log.last(), |xml| {
        xml.leaf("return", true).leaf("associationId", id);
    })
}

/// `DisassociateAddress`. The id names one binding: a later one of the same address has another.
pub fn disassociate(context: &mut Context, call: &Call) -> Result<Reply, ApiError> {
    let state = &mut *context.state;
    let id = match call.params.get("PublicIp") {
        Some(_) => binding_of(named(state, &call.params)?.1).unwrap_or_default(),
        None => call.params.required("AssociationId")?.to_owned(),
    };
    let associated = |address: &Address| binding_of(address).as_deref() == Some(id.as_str());
    let found = state.cloud(AWS).addresses.all(None).find(|(_, address)| associated(address));
    let Some(address) = found.map(|(_, address)| address.clone()) else {
        return Err(no_such(&ASSOCIATION, &id));
    };
    let Some(Holder::Slot { interface, slot, .. }) = address.holder.clone() else {
        return Err(of_a_service());
    };
    let loser = instance_of_holder(state, &address);
    state.unbind(AWS, &interface, slot);
    if let Some(loser) = loser {
        state.aws_auto_assign(&loser);
    }
    Ok(success("DisassociateAddress", state.log.last(), |xml| {
        xml.leaf("return", true);
    }))
}

fn binding_of(address: &Address) -> Option<String> {
    match address.holder.as_ref()? {
        Holder::Slot { binding, .. } | Holder::Other { binding, .. } => Some(binding.clone()),
    }
}

fn instance_of_holder(state: &State, address: &Address) -> Option<String> {
    let Some(Holder::Slot { interface, .. }) = &address.holder else {
        return None;
    };
    state.cloud(AWS).interfaces.get(interface)?.instance.clone()
}

/// The interface that a call means.
fn target(state: &State, params: &Params) -> Result<String, ApiError> {
    if let Some(id) = params.get("NetworkInterfaceId") {
        let known = state.cloud(AWS).interfaces.get(id);
        let interface = known.ok_or_else(|| no_such(&INTERFACE, id))?;
        check_instance_state(state, interface)?;
        return Ok(id.to_owned());
    }
    let Some(id) = params.get("InstanceId") else {
        let message = "Either InstanceId or NetworkInterfaceId must be specified";
        return Err(error("MissingParameter", message));
    };
    let instance = state.cloud(AWS).instances.get(id).ok_or_else(|| no_such(&INSTANCE, id))?;
    if matches!(instance.state, InstanceState::Pending | InstanceState::Terminated) {
        return Err(not_in_state(id, instance.state));
    }
    match instance.interfaces.as_slice() {
        [only] => Ok(only.clone()),
        _ => Err(error(
            "InvalidInstanceID",
            format!(
                "There are multiple interfaces attached to instance '{id}'. Please specify an interface ID for \
                 the operation instead."
            ),
        )),
    }
}

fn check_instance_state(state: &State, interface: &Interface) -> Result<(), ApiError> {
    let Some(id) = &interface.instance else {
        return Ok(());
    };
    match state.cloud(AWS).instances.get(id).map(|instance| instance.state) {
        Some(found @ (InstanceState::Pending | InstanceState::Terminated)) => Err(not_in_state(id, found)),
        _ => Ok(()),
    }
}

fn not_in_state(id: &str, state: InstanceState) -> ApiError {
    let name = super::instances::state_of(state).1;
    let message = format!("The {name} instance '{id}' is not in a valid state for this operation.");
    error("InvalidInstanceID", message)
}

/// The private address that a call means: the first one if it says nothing.
fn target_slot(state: &State, interface: &str, params: &Params) -> Result<usize, ApiError> {
    let Some(wanted) = params.get("PrivateIpAddress") else {
        return Ok(0);
    };
    let slots = state.cloud(AWS).interfaces.get(interface).map(|row| row.slots.as_slice());
    let found = slots.unwrap_or_default().iter().position(|slot| slot.private_ip.to_string() == wanted);
    found.ok_or_else(|| {
        let message = format!("{wanted} is not a private IP address of network interface {interface}");
        error("InvalidParameterValue", message)
    })
}

/// Refuses what is taken, unless taking is allowed. The association that exists, if it is the same one.
fn check_taken(
    state: &State,
    address: &Address,
    interface: &str,
    slot: usize,
    reassociate: bool,
) -> Result<Option<String>, ApiError> {
    let same = matches!(&address.holder, Some(Holder::Slot { interface: i, slot: s, .. }) if i == interface && *s == slot);
    let repeated = state.settings.aws.repeated_associate == Repeated::SameAssociation || reassociate;
    if same && repeated {
        return Ok(binding_of(address));
    }
    if reassociate {
        return match &address.holder {
            Some(Holder::Other { .. }) => Err(of_a_service()),
            _ => Ok(None),
        };
    }
    if let Some(id) = binding_of(address) {
        let message = format!("resource {} is already associated with associate-id {id}", address.name);
        return Err(error("Resource.AlreadyAssociated", message));
    }
    let there = state.slot(AWS, interface, slot);
    let other = there.and_then(|slot| slot.binding.as_ref().filter(|binding| binding.reserved.is_some()));
    match (there, other.and_then(|binding| binding.ip)) {
        (Some(slot), Some(ip)) => {
            let private = slot.private_ip;
            let message =
                format!("resource {interface} and {private} is already associated with public address {ip}");
            Err(error("Resource.AlreadyAssociated", message))
        }
        _ => Ok(None),
    }
}

fn of_a_service() -> ApiError {
    let mut refused = error("AuthFailure", "You do not have permission to access the specified resource.");
    refused.status = 400;
    refused
}

/// Refuses a place that the address cannot serve.
fn check_place(state: &State, address: &Address, interface: &str) -> Result<(), ApiError> {
    let Some(row) = state.cloud(AWS).interfaces.get(interface) else {
        return Err(no_such(&INTERFACE, interface));
    };
    if row.no_gateway {
        let message = format!("Network {} is not attached to any internet gateway", super::instances::VPC);
        return Err(error("Gateway.NotAttached", message));
    }
    if row.border_group != address.border_group {
        let message = format!(
            "The address {} of network border group {} cannot be associated with {interface} of network border \
             group {}",
            address.name, address.border_group, row.border_group
        );
        return Err(error("InvalidParameterValue", message));
    }
    Ok(())
}

/// Another elastic address on the slot leaves it, and an address of the cloud's choice leaves the
/// instance, wherever it was on it.
fn make_room(state: &mut State, interface: &str, slot: usize) {
    state.unbind(AWS, interface, slot);
    let instance = state.cloud(AWS).interfaces.get(interface).and_then(|row| row.instance.clone());
    for (interface, slot, binding) in instance.map(|key| state.bindings_of(AWS, &key)).unwrap_or_default() {
        if binding.reserved.is_none() {
            state.unbind(AWS, &interface, slot);
        }
    }
}
