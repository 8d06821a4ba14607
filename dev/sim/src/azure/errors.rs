//! Errors as the Azure Resource Manager writes them.

use crate::http::{ApiError, Reply};
use crate::model::operations::guid;
use serde_json::json;

/// Status and message of an error by its code.
pub fn by_code(code: &str) -> (u16, &'static str) {
    match code {
        "ExpiredAuthenticationToken" => {
            (401, "The access token expiry UTC time is earlier than current UTC time.")
        }
        "InvalidAuthenticationToken" => (401, "The access token is invalid."),
        "AuthorizationFailed" | "LinkedAuthorizationFailed" | "DenyAssignmentAuthorizationFailed" => {
            (403, "The client does not have authorization to perform the action.")
        }
        "NotFound" | "ResourceNotFound" | "ResourceGroupNotFound" | "SubscriptionNotFound" => {
            (404, "The resource was not found.")
        }
        "MethodNotAllowed" => (405, "The requested resource does not support this method."),
        "ScopeLocked" | "Conflict" => (409, "The scope cannot perform the operation because it is locked."),
        "PreconditionFailed" => (412, "The condition specified using HTTP conditional header(s) is not met."),
        "RetryableErrorDueToAnotherOperation" => (429, "Operation is preempted by a more recent operation."),
        "RetryableError" => (429, "A retryable error occurred."),
        "TooManyRequests" | "SubscriptionRequestsThrottled" | "OperationNotAllowed" => {
            (429, "Too many requests. Please retry after the time in Retry-After.")
        }
        "InternalServerError" => (500, "An error occurred."),
        "ServiceUnavailable" | "ServerTimeout" => (503, "The service is unavailable now."),
        _ => (400, "The request is invalid."),
    }
}

/// An error with the code and the words that the API gives.
pub fn error(code: &str, message: impl Into<String>) -> ApiError {
    ApiError::new(by_code(code).0, code, message)
}

/// A resource that is not there, by its id.
pub fn not_found(id: &str) -> ApiError {
    let segments: Vec<&str> = id.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        [_, _, _, group, _, namespace, kind, name, ..] => error(
            "ResourceNotFound",
            format!(
                "The Resource '{namespace}/{kind}/{name}' under resource group '{group}' was not found. For more \
                 details please go to https://aka.ms/ARMResourceNotFoundFix"
            ),
        ),
        _ => error("NotFound", format!("Resource {id} not found.")),
    }
}

/// A public address that somebody else has.
pub fn in_use(config: &str, address: &str, holder: &str) -> ApiError {
    let message = format!(
        "Resource {config} is referencing public IP address {address} that is already allocated to resource \
         {holder}."
    );
    error("PublicIPAddressInUse", message)
}

/// Writes an error. Those of the cloud's own making name the request, which is another one each time.
pub fn write(error: &ApiError, request_id: u64) -> Reply {
    let message = match error.code.as_str() {
        code @ "InternalServerError" if error.message == by_code(code).1 => {
            format!("{} Correlation id: '{}'.", error.message, guid(request_id))
        }
        _ => error.message.clone(),
    };
    let body = json!({ "error": { "code": error.code, "message": message, "details": [] } });
    let mut reply = Reply::json(error.status, &body);
    reply.headers.clone_from(&error.headers);
    reply
}
