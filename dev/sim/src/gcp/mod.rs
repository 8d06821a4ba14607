//! GCP: the part of the Compute API (REST, v1) that moves external addresses between instances.
//!
//! Written from the discovery document of compute v1, its reference pages, and recorded replies in public
//! issues; `docs/simulators.md` lists what is shown and what is not.

mod access_configs;
mod addresses;
mod aggregated;
mod decode;
mod errors;
mod filter;
mod instances;
mod links;
mod operations;
mod permissions;

use crate::clock::Clock;
use crate::faults::Call;
use crate::http::{ApiError, HttpRequest, Reply};
use crate::limits::TooMany;
use crate::log::About;
use crate::model::State;
use crate::model::operations::Operation;
use crate::model::things::Cloud;
use crate::permissions::Need;
use crate::pipeline::{Api, Context, Decoded};
use decode::Request;
use serde_json::json;
use std::time::Duration;

/// The Compute API.
pub struct Gcp;

/// The longest that `wait` waits here; the real one gives up after two minutes.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Api for Gcp {
    const CLOUD: Cloud = Cloud::Gcp;
    type Request = Request;

    fn caller(http: &HttpRequest) -> Option<String> {
        http.bearer()
    }

    fn decode(http: &HttpRequest) -> Result<Decoded<Request>, ApiError> {
        decode::decode(http)
    }

    fn patience(request: &Request, state: &State) -> Duration {
        match request {
            Request::GetOperation { name, wait: true, .. } => time_left(&state.clock, state, name),
            _ => Duration::ZERO,
        }
    }

    fn needs(request: &Request) -> Vec<Need> {
        match request {
            Request::GetProject { project } => {
                vec![Need::new("compute.projects.get", format!("projects/{project}"))]
            }
            Request::ListAddresses { scope, .. } => vec![Need::new("compute.addresses.list", scope)],
            Request::AllAddresses { project, .. } => {
                vec![Need::new("compute.addresses.list", format!("projects/{project}"))]
            }
            Request::GetAddress { key } => vec![Need::new("compute.addresses.get", key)],
            Request::ListInstances { scope, .. } => vec![Need::new("compute.instances.list", scope)],
            Request::AllInstances { project, .. } => {
                vec![Need::new("compute.instances.list", format!("projects/{project}"))]
            }
            Request::GetInstance { key } => vec![Need::new("compute.instances.get", key)],
            Request::AddAccessConfig { target, config } => {
                needs_to_add(&target.instance, config["natIP"].is_string())
            }
            Request::DeleteAccessConfig { target, .. } => {
                vec![Need::new("compute.instances.deleteAccessConfig", &target.instance)]
            }
            Request::UpdateInterface { target, .. } => {
                vec![Need::new("compute.instances.updateNetworkInterface", &target.instance)]
            }
            // Whoever may see a thing may ask what he may do with it.
            Request::TestPermissions { .. } => Vec::new(),
            Request::ListOperations { zone, .. } => vec![Need::new("compute.zoneOperations.list", zone)],
            Request::GetOperation { zone, name, .. } => {
                vec![Need::new("compute.zoneOperations.get", format!("{zone}/operations/{name}"))]
            }
        }
    }

    fn forbidden(need: &Need, _: &Call, _: &State) -> ApiError {
        let (permission, resource) = (&need.permission, &need.resource);
        errors::error("forbidden", format!("Required '{permission}' permission for '{resource}'"))
    }

    fn throttled(_: TooMany, _: &State) -> ApiError {
        errors::rate_limited("100000000001")
    }

    fn error(code: &str, message: Option<&str>, status: Option<u16>) -> ApiError {
        let (known, words) = errors::by_reason(code);
        match code {
            "rateLimitExceeded" if message.is_none() => errors::rate_limited("100000000001"),
            _ => ApiError::new(status.unwrap_or(known), code, message.unwrap_or(words)),
        }
    }

    fn about(request: &Request, state: &State) -> About {
        access_configs::about(request, state)
    }

    fn answer(request: Request, context: &mut Context) -> Result<Reply, ApiError> {
        match request {
            Request::GetProject { project } => Ok(write_project(context.state, &project)),
            Request::ListAddresses { scope, page } => Ok(addresses::list(context, &scope, &page)),
            Request::GetAddress { key } => addresses::get(context, &key),
            Request::AllAddresses { project, page } => Ok(addresses::list_all(context, &project, &page)),
            Request::ListInstances { scope, page } => Ok(instances::list(context, &scope, &page)),
            Request::AllInstances { project, page } => Ok(instances::list_all(context, &project, &page)),
            Request::GetInstance { key } => instances::get(context, &key),
            Request::AddAccessConfig { target, config } => access_configs::add(context, &target, &config),
            Request::DeleteAccessConfig { target, config } => {
                access_configs::delete(context, &target, &config)
            }
            Request::UpdateInterface { target, patch } => {
                access_configs::update_interface(context, &target, &patch)
            }
            Request::TestPermissions { key, kind, permissions } => {
                permissions::test(context, &key, kind, &permissions)
            }
            Request::ListOperations { zone, page } => Ok(operations::list(context, &zone, &page)),
            Request::GetOperation { zone, name, .. } => operations::get(context, &zone, &name),
        }
    }

    fn write_error(error: &ApiError, request_id: u64) -> Reply {
        errors::write(error, request_id)
    }
}

/// Attaching an address needs the right to change the instance, to use the address and to use the subnet.
fn needs_to_add(instance: &str, reserved: bool) -> Vec<Need> {
    let mut needs = vec![Need::new("compute.instances.addAccessConfig", instance)];
    if reserved {
        needs.push(Need::new("compute.addresses.use", links::project(instance)));
    }
    needs.push(Need::new("compute.subnetworks.useExternalIp", links::project(instance)));
    needs
}

/// How long it takes until an operation is done, as far as anybody waits for it.
fn time_left(clock: &Clock, state: &State, name: &str) -> Duration {
    let due = state.operations.get(name).and_then(Operation::due);
    let left = due.map(|due| due.duration_since(clock.now()));
    let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
    if clock.stands() { Duration::ZERO } else { left.min(LONGEST_WAIT) }
}

fn write_project(state: &State, project: &str) -> Reply {
    let body = json!({
        "kind": "compute#project",
        "id": "100000000001",
        "name": project,
        "defaultNetworkTier": state.settings.gcp.default_tier,
        "selfLink": links::link(state, &format!("projects/{project}")),
    });
    Reply::json(200, &body)
}
