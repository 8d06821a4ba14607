//! Azure: the parts of the Resource Manager's network and compute APIs that move public IP addresses
//! between virtual machines.
//!
//! Written from the published specifications, the models of the official SDKs, and recorded replies in
//! public issues; `docs/simulators.md` lists what is shown and what is not.

mod decode;
mod errors;
mod interfaces;
mod write;

use crate::faults::Call;
use crate::http::{ApiError, HttpRequest, Reply};
use crate::limits::TooMany;
use crate::log::About;
use crate::model::State;
use crate::model::operations::{Operation, Status};
use crate::model::table::Table;
use crate::model::things::Cloud;
use crate::permissions::Need;
use crate::pipeline::{Api, Context, Decoded};
use decode::{Kind, Page, Request};
use errors::not_found;
use serde_json::{Value, json};

/// The Resource Manager.
pub struct Azure;

impl Api for Azure {
    const CLOUD: Cloud = Cloud::Azure;
    type Request = Request;

    fn caller(http: &HttpRequest) -> Option<String> {
        http.bearer()
    }

    fn decode(http: &HttpRequest) -> Result<Decoded<Request>, ApiError> {
        decode::decode(http)
    }

    fn needs(request: &Request) -> Vec<Need> {
        match request {
            Request::List { kind, page } => vec![Need::new(kind.read_permission(), &page.path)],
            Request::Get { kind, id, .. } => vec![Need::new(kind.read_permission(), id)],
            Request::InstanceView { id } => {
                vec![Need::new("Microsoft.Compute/virtualMachines/instanceView/read", id)]
            }
            Request::PutInterface { id, body, .. } => needs_to_write(id, body),
            Request::TagInterface { id, .. } => {
                vec![Need::new("Microsoft.Network/networkInterfaces/write", id)]
            }
            Request::GetOperation { id, .. } => {
                vec![Need::new("Microsoft.Network/locations/operations/read", id)]
            }
            Request::NotAllowed { .. } => Vec::new(),
        }
    }

    fn forbidden(need: &Need, call: &Call, _: &State) -> ApiError {
        let (caller, action, scope) = (&call.caller, &need.permission, &need.resource);
        if need.linked {
            let target = &call.target;
            return errors::error(
                "LinkedAuthorizationFailed",
                format!(
                    "The client '{caller}' with object id '{caller}' has permission to perform action \
                     'Microsoft.Network/networkInterfaces/write' on scope '{target}'; however, it does not have \
                     permission to perform action(s) '{action}' on the linked scope(s) '{scope}' (respectively) \
                     or the linked scope(s) are invalid."
                ),
            );
        }
        errors::error(
            "AuthorizationFailed",
            format!(
                "The client '{caller}' with object id '{caller}' does not have authorization to perform action \
                 '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please \
                 refresh your credentials."
            ),
        )
    }

    fn throttled(too_many: TooMany, state: &State) -> ApiError {
        let wait = too_many.until.duration_since(state.now()).as_secs_f64().ceil().max(1.0);
        let message =
            format!("Number of requests exceeded the limit. Please try again after '{wait}' seconds.");
        errors::error("SubscriptionRequestsThrottled", message)
            .header("retry-after", format!("{wait}"))
            .header("x-ms-ratelimit-remaining-subscription-reads", "0")
    }

    fn error(code: &str, message: Option<&str>, status: Option<u16>) -> ApiError {
        let (known, words) = errors::by_code(code);
        let error = ApiError::new(status.unwrap_or(known), code, message.unwrap_or(words));
        if error.status == 429 { error.header("retry-after", "1") } else { error }
    }

    fn about(request: &Request, state: &State) -> About {
        interfaces::about(request, state)
    }

    fn answer(request: Request, context: &mut Context) -> Result<Reply, ApiError> {
        match request {
            Request::List { kind, page } => Ok(list(context, kind, &page)),
            Request::Get { kind, id, expand } => get(context, kind, &id, expand),
            Request::InstanceView { id } => {
                let instances = &context.state.cloud(Cloud::Azure).instances;
                let instance =
                    instances.seen(&id.trim_end_matches("/instanceView").to_lowercase(), context.seen);
                let instance = instance.ok_or_else(|| not_found(&id))?;
                Ok(Reply::json(200, &write::instance_view(instance)))
            }
            Request::PutInterface { id, body, if_match, api_version } => {
                let put = interfaces::Put {
                    id: &id,
                    body: &body,
                    if_match: if_match.as_deref(),
                    api_version: &api_version,
                };
                interfaces::put(context, &put)
            }
            Request::TagInterface { id, body } => interfaces::tag(context, &id, &body),
            Request::GetOperation { id, name } => operation(context, &id, &name),
            Request::NotAllowed { id } => {
                let message = format!("The requested resource does not support this http method: {id}");
                Err(errors::error("MethodNotAllowed", message))
            }
        }
    }

    fn write_error(error: &ApiError, request_id: u64) -> Reply {
        errors::write(error, request_id)
    }
}

/// Writing an interface needs the right to use all that it refers to, changed or not.
fn needs_to_write(id: &str, body: &Value) -> Vec<Need> {
    let mut needs = vec![Need::new("Microsoft.Network/networkInterfaces/write", id)];
    let mut join = |action: &str, reference: &Value| {
        if let Some(id) = reference["id"].as_str() {
            needs.push(Need::linked(format!("Microsoft.Network/{action}"), id));
        }
    };
    let properties = &body["properties"];
    join("networkSecurityGroups/join/action", &properties["networkSecurityGroup"]);
    for config in properties["ipConfigurations"].as_array().into_iter().flatten() {
        let config = &config["properties"];
        join("virtualNetworks/subnets/join/action", &config["subnet"]);
        join("publicIPAddresses/join/action", &config["publicIPAddress"]);
        let lists = [
            ("loadBalancers/backendAddressPools/join/action", "loadBalancerBackendAddressPools"),
            ("loadBalancers/inboundNatRules/join/action", "loadBalancerInboundNatRules"),
            ("applicationSecurityGroups/joinIpConfiguration/action", "applicationSecurityGroups"),
        ];
        for (action, list) in lists {
            for reference in config[list].as_array().into_iter().flatten() {
                join(action, reference);
            }
        }
    }
    needs
}

fn get(context: &Context, kind: Kind, id: &str, expand: bool) -> Result<Reply, ApiError> {
    let key = id.to_lowercase();
    let state = &*context.state;
    let inventory = state.cloud(Cloud::Azure);
    let written = match kind {
        Kind::Address => {
            inventory.addresses.seen(&key, context.seen).map(|row| write::address(state, &key, row))
        }
        Kind::Interface | Kind::ScaleSetInterface => {
            inventory.interfaces.seen(&key, context.seen).map(|row| write::interface(state, &key, row))
        }
        Kind::Instance => {
            inventory.instances.seen(&key, context.seen).map(|row| write::instance(state, row, expand))
        }
    };
    let written = written.ok_or_else(|| not_found(id))?;
    let etag = written["etag"].as_str().map(str::to_owned);
    let reply = Reply::json(200, &written);
    Ok(match etag {
        Some(etag) => reply.header("etag", etag),
        None => reply,
    })
}

fn list(context: &Context, kind: Kind, page: &Page) -> Reply {
    let state = &*context.state;
    let inventory = state.cloud(Cloud::Azure);
    let (value, next) = match kind {
        Kind::Address => {
            select(context, &inventory.addresses, page, |key, row| write::address(state, key, row))
        }
        Kind::Instance => select(context, &inventory.instances, page, |_, row| {
            if page.status_only {
                write::instance_status(state, row)
            } else {
                write::instance(state, row, false)
            }
        }),
        Kind::Interface | Kind::ScaleSetInterface => {
            select(context, &inventory.interfaces, page, |key, row| write::interface(state, key, row))
        }
    };
    let mut body = json!({ "value": value });
    if let Some(next) = next {
        body["nextLink"] = Value::from(next);
    }
    Reply::json(200, &body)
}

/// The items of one page, and the link to the next. There are no filters.
fn select<T: Clone>(
    context: &Context,
    table: &Table<T>,
    page: &Page,
    write: impl Fn(&str, &T) -> Value,
) -> (Vec<Value>, Option<String>) {
    let rows = table.after(context.seen, &page.prefix, page.after.as_deref());
    let mut rows = rows.filter(|(key, _)| key.contains(&page.contains) && !context.leaves_out(&[key]));
    let found: Vec<(&str, &T)> = rows.by_ref().take(context.state.settings.azure.page_size.max(1)).collect();
    let more = rows.next().is_some();
    let next = found.last().filter(|_| more);
    let next = next.map(|(key, _)| decode::next_link(context.base_url, page, key));
    (found.into_iter().map(|(key, row)| write(key, row)).collect(), next)
}

fn operation(context: &mut Context, id: &str, name: &str) -> Result<Reply, ApiError> {
    context.state.poll(name);
    let known = context.state.operations.get(name).filter(|operation| operation.order.cloud == Cloud::Azure);
    let operation = known.ok_or_else(|| not_found(id))?;
    let reply = Reply::json(200, &write_operation(operation));
    Ok(match operation.status {
        Status::Pending | Status::Running => {
            reply.header("retry-after", context.state.settings.azure.retry_after.to_string())
        }
        Status::Done | Status::Canceled => reply,
    })
}

fn write_operation(operation: &Operation) -> Value {
    let status = match (operation.status, &operation.failure) {
        (Status::Pending | Status::Running, _) => "InProgress",
        (Status::Done, None) => "Succeeded",
        (Status::Done, Some(_)) => "Failed",
        (Status::Canceled, _) => "Canceled",
    };
    let mut body = json!({ "status": status });
    if let Some(failure) = &operation.failure {
        body["error"] = json!({ "code": failure.code, "message": failure.message, "details": [] });
    }
    body
}
