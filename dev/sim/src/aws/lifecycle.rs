//! Instances are launched, stopped, started and terminated.

use super::errors::{INSTANCE, error, no_such};
use super::instances::{state_of, write_launched};
use super::{Call, success};
use crate::http::{ApiError, Reply};
use crate::model::State;
use crate::model::things::{Cloud, InstanceState};
use crate::pipeline::Context;
use crate::world::{InstanceSpec, World};

const AWS: Cloud = Cloud::Aws;
/// Seconds until a launched instance runs.
const BOOT: f64 = 0.1;

/// `RunInstances`. The same client token gives the same instances.
pub fn run(context: &mut Context, call: &Call) -> Result<Reply, ApiError> {
    let params = &call.params;
    params.required("ImageId")?;
    let count = params.required("MaxCount")?;
    let count: usize = count.parse().map_err(|_| {
        error("InvalidParameterValue", format!("Value ({count}) for parameter maxCount is invalid."))
    })?;
    let token = params.get("ClientToken").map(str::to_owned);
    let earlier = launched_with(context.state, token.as_deref());
    if !earlier.is_empty() {
        return Ok(write_launched(context, &earlier));
    }
    let zone = params.get("Placement.AvailabilityZone").map(str::to_owned);
    let zone = zone.unwrap_or_else(|| format!("{}a", call.region_or_default()));
    let interfaces = params.count("NetworkInterface").max(1);
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(launch(context.state, &zone, interfaces, token.as_deref(), &call.params.tags())?);
    }
    Ok(write_launched(context, &ids))
}

fn launched_with(state: &State, token: Option<&str>) -> Vec<String> {
    let Some(token) = token else {
        return Vec::new();
    };
    let instances = state.cloud(AWS).instances.all(None);
    let same = instances.filter(|(_, instance)| instance.client_token.as_deref() == Some(token));
    same.map(|(key, _)| key.to_owned()).collect()
}

fn launch(
    state: &mut State,
    zone: &str,
    interfaces: usize,
    token: Option<&str>,
    tags: &std::collections::BTreeMap<String, String>,
) -> Result<String, ApiError> {
    let id = format!("i-{:017x}", state.next_uid());
    let mut spec = InstanceSpec::of(&format!("aws:///{zone}/{id}"));
    spec.interfaces = interfaces;
    spec.state = InstanceState::Pending;
    // Only instances with one interface get an address of the cloud's choice.
    spec.ephemeral = interfaces == 1;
    spec.tags = tags.clone();
    World::add_instance(state, &spec).map_err(|fault| error("InvalidParameterValue", fault.to_string()))?;
    let now = state.now();
    state.cloud_mut(AWS).instances.edit(&id, now, |row| row.client_token = token.map(str::to_owned));
    let key = id.clone();
    let boot = move |state: &mut State| {
        let pending =
            state.cloud(AWS).instances.get(&key).is_some_and(|row| row.state == InstanceState::Pending);
        if pending {
            state.set_instance_state(AWS, &key, InstanceState::Running);
        }
        Ok(())
    };
    state.later(AWS, BOOT, "instance booted", &id, Box::new(boot));
    Ok(id)
}

/// `StopInstances`, `StartInstances` and `TerminateInstances`.
pub fn change(context: &mut Context, call: &Call, action: &'static str) -> Result<Reply, ApiError> {
    let state = &mut *context.state;
    let ids = call.params.list("InstanceId");
    let mut changes = Vec::new();
    for id in &ids {
        let found = state.cloud(AWS).instances.get(id).ok_or_else(|| no_such(&INSTANCE, id))?;
        if found.state == InstanceState::Terminated && action != "TerminateInstances" {
            let message = format!("The instance '{id}' is not in a state from which it can be changed.");
            return Err(error("IncorrectInstanceState", message));
        }
        changes.push(((*id).to_owned(), found.state));
    }
    for (id, before) in &changes {
        match action {
            "StopInstances" => state.stop_instance(AWS, id),
            "StartInstances" => state.start_instance(AWS, id),
            _ if *before != InstanceState::Terminated => state.terminate_instance(AWS, id, false),
            _ => {}
        }
    }
    // What comes next takes a moment in reality; the API names the state on the way.
    let current = match action {
        "StopInstances" => (64, "stopping"),
        "StartInstances" => (0, "pending"),
        _ => (32, "shutting-down"),
    };
    Ok(success(action, state.log.last(), |xml| {
        xml.list("instancesSet", changes, |xml, (id, before)| {
            xml.leaf("instanceId", id);
            for (name, (code, state)) in [("currentState", current), ("previousState", state_of(before))] {
                xml.node(name, |xml| {
                    xml.leaf("code", code).leaf("name", state);
                });
            }
        });
    }))
}
