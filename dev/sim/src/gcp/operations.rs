//! Zone operations: what a change that was accepted has come to.

use super::decode::{Page, Target, page_token};
use super::errors::not_found;
use super::filter::Values;
use super::links::{link, time};
use crate::http::{ApiError, Reply};
use crate::model::State;
use crate::model::operations::{Effect, Operation, Order, Status};
use crate::model::things::Cloud;
use crate::pipeline::Context;
use serde_json::{Value, json};

/// Accepts a change and answers with its operation.
pub fn start(context: &mut Context, order: Order, effect: Effect) -> Reply {
    let name = context.state.start(order, effect);
    reply(context.state, &name)
}

/// A request with the token of an earlier one is answered with the operation of that one.
pub fn replay(context: &Context, target: &Target) -> Option<Reply> {
    let request_id = target.request_id.as_deref()?;
    let operation = context.state.operations.of_request(Cloud::Gcp, request_id)?;
    Some(reply(context.state, &operation.name))
}

/// Where an operation is.
pub fn get(context: &mut Context, zone: &str, name: &str) -> Result<Reply, ApiError> {
    let known = context.state.operations.get(name);
    if known.is_none_or(|operation| operation.order.cloud != Cloud::Gcp || operation.order.place != zone) {
        return Err(not_found(&format!("{zone}/operations/{name}")));
    }
    context.state.poll(name);
    Ok(reply(context.state, name))
}

/// The operations of a zone, by name.
pub fn list(context: &Context, zone: &str, page: &Page) -> Reply {
    let state = &*context.state;
    let of_zone = state.operations.all(Cloud::Gcp).filter(|operation| operation.order.place == zone);
    let later = of_zone.filter(|operation| page.after.as_ref().is_none_or(|after| operation.name > *after));
    let written = later.map(|operation| (operation.name.as_str(), write(state, operation)));
    let passes =
        |body: &Value| page.filter.as_ref().is_none_or(|filter| filter.passes(&|field| values(body, field)));
    let mut rows = written.filter(|(_, body)| passes(body));
    let found: Vec<(&str, Value)> = rows.by_ref().take(page.limit).collect();
    let more = rows.next().is_some();
    let mut body = json!({ "kind": "compute#operationList", "id": zone, "selfLink": link(state, zone) });
    if let Some((last, _)) = found.last().filter(|_| more) {
        body["nextPageToken"] = Value::from(page_token(last));
    }
    if !found.is_empty() {
        body["items"] = found.into_iter().map(|(_, body)| body).collect();
    }
    Reply::json(200, &body)
}

fn values(body: &Value, field: &str) -> Values<'static> {
    match &body[field] {
        Value::Null => Values::new(),
        Value::String(text) => vec![text.clone().into()],
        other => vec![other.to_string().into()],
    }
}

fn reply(state: &State, name: &str) -> Reply {
    match state.operations.get(name) {
        Some(operation) => Reply::json(200, &write(state, operation)),
        None => super::errors::write(&not_found(name), 0),
    }
}

fn write(state: &State, operation: &Operation) -> Value {
    let order = &operation.order;
    let (status, progress) = match operation.status {
        Status::Pending => ("PENDING", 0),
        Status::Running => ("RUNNING", 50),
        Status::Done | Status::Canceled => ("DONE", 100),
    };
    let kind = order.action.strip_prefix("instances.").unwrap_or(&order.action);
    let mut body = json!({
        "kind": "compute#operation",
        "id": operation.uid.to_string(),
        "name": operation.name,
        "zone": link(state, &order.place),
        "operationType": kind,
        "targetLink": link(state, &order.target),
        "targetId": order.target_uid.to_string(),
        "status": status,
        "user": order.caller,
        "progress": progress,
        "insertTime": time(operation.accepted),
        "selfLink": link(state, &format!("{}/operations/{}", order.place, operation.name)),
    });
    if operation.status != Status::Pending {
        body["startTime"] = Value::from(time(operation.accepted));
    }
    if let Some(ended) = operation.ended {
        body["endTime"] = Value::from(time(ended));
    }
    if let Some(request_id) = &order.request_id {
        body["clientOperationId"] = Value::from(request_id.as_str());
    }
    if let Some(failure) = &operation.failure {
        body["error"] = json!({ "errors": [{ "code": failure.code, "message": failure.message }] });
        body["httpErrorStatusCode"] = Value::from(400);
        body["httpErrorMessage"] = Value::from("BAD REQUEST");
    }
    body
}
