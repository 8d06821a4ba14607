//! Errors as the Compute API writes them.

use crate::http::{ApiError, Reply};
use serde_json::{Value, json};

/// Status and message of an error by its reason.
pub fn by_reason(reason: &str) -> (u16, &'static str) {
    match reason {
        "badRequest" | "invalid" | "required" => (400, "Invalid request."),
        "resourceNotReady" => (400, "The resource is not ready"),
        "resourceInUseByAnotherResource" => (400, "The resource is already being used by another resource."),
        "authError" => (401, "Invalid Credentials"),
        "forbidden" => (403, "Required permission is missing."),
        "rateLimitExceeded" => (403, "Rate Limit Exceeded"),
        "quotaExceeded" => (403, "Quota exceeded."),
        "notFound" => (404, "The resource was not found"),
        "operationInProgress" => (409, "Another operation is in progress on the resource."),
        "conditionNotMet" => (412, "Condition not met."),
        "internalError" => (500, "Internal Error"),
        _ => (503, "Backend Error"),
    }
}

/// An error with the reason and the words that the API gives.
pub fn error(reason: &str, message: impl Into<String>) -> ApiError {
    ApiError::new(by_reason(reason).0, reason, message)
}

/// A thing that is not there.
pub fn not_found(path: &str) -> ApiError {
    error("notFound", format!("The resource '{path}' was not found"))
}

/// A field that has a wrong value.
pub fn invalid(field: &str, value: &str, why: &str) -> ApiError {
    error("invalid", format!("Invalid value for field '{field}': '{value}'. {why}"))
}

/// A caller that comes too often; there is no `Retry-After`.
pub fn rate_limited(project: &str) -> ApiError {
    let metric = "compute.googleapis.com/default";
    let limit = "defaultPerMinutePerProject";
    let message = format!(
        "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service \
         'compute.googleapis.com' for consumer 'project_number:{project}'."
    );
    let mut refused = error("rateLimitExceeded", message);
    refused.details = Some(json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "RATE_LIMIT_EXCEEDED",
        "domain": "googleapis.com",
        "metadata": { "service": "compute.googleapis.com", "quota_metric": metric, "quota_limit": limit },
    }]));
    refused
}

/// Writes an error. Internal ones carry a code that is another one each time.
pub fn write(error: &ApiError, request_id: u64) -> Reply {
    let message = match error.code.as_str() {
        code @ "internalError" if error.message == by_reason(code).1 => {
            let code = request_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2;
            format!("{}. Please try again or contact Google Support. (Code: '-{code}')", error.message)
        }
        _ => error.message.clone(),
    };
    let domain = match error.code.as_str() {
        "rateLimitExceeded" | "quotaExceeded" => "usageLimits",
        _ => "global",
    };
    let mut body = json!({
        "code": error.status,
        "message": message,
        "errors": [{ "message": message, "domain": domain, "reason": error.code }],
    });
    if let Some(details) = &error.details {
        body["details"] = details.clone();
    }
    if let Some(status) = canonical_status(error.status) {
        body["status"] = Value::from(status);
    }
    Reply::json(error.status, &json!({ "error": body }))
}

/// The name of the status, which newer errors carry as well.
fn canonical_status(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("UNAUTHENTICATED"),
        403 => Some("PERMISSION_DENIED"),
        _ => None,
    }
}
