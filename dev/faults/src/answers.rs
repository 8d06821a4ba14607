//! Refusals as each side writes them.

use crate::name::Side;
use bytes_of::Body;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use serde_json::json;

/// The body of every reply that goes through the proxy.
pub mod bytes_of {
    /// Bytes that may come one after the other for ever.
    pub type Body = http_body_util::combinators::BoxBody<hyper::body::Bytes, hyper::Error>;
}

/// A body that is there whole.
pub fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// A refusal with a status.
pub fn refusal(side: Side, status: u16, retry_after: Option<u64>) -> Response<Body> {
    let (content_type, text) = match side {
        Side::Api => ("application/json", kubernetes(status)),
        Side::Gcp => ("application/json; charset=utf-8", gcp(status)),
        Side::Aws => ("text/xml;charset=UTF-8", aws(status)),
        Side::Azure => ("application/json; charset=utf-8", azure(status)),
    };
    let mut response = Response::new(whole(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static(content_type));
    if let Some(seconds) = retry_after {
        headers.insert("retry-after", http::HeaderValue::from(seconds));
    }
    response
}

fn kubernetes(status: u16) -> String {
    let reason = match status {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by plan", "reason": reason, "code": status,
    })
    .to_string()
}

fn gcp(status: u16) -> String {
    let reason = match status {
        401 => "authError",
        403 => "forbidden",
        404 => "notFound",
        409 => "operationInProgress",
        412 => "conditionNotMet",
        429 => "rateLimitExceeded",
        500 => "internalError",
        _ => "backendError",
    };
    let error = json!({ "message": "refused by plan", "domain": "global", "reason": reason });
    json!({ "error": { "code": status, "message": "refused by plan", "errors": [error] } }).to_string()
}

fn aws(status: u16) -> String {
    let code = match status {
        401 => "AuthFailure",
        403 => "UnauthorizedOperation",
        409 => "IncorrectState",
        429 => "RequestLimitExceeded",
        500 => "InternalError",
        _ => "Unavailable",
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code>\
         <Message>refused by plan</Message></Error></Errors><RequestID>0</RequestID></Response>"
    )
}

fn azure(status: u16) -> String {
    let code = match status {
        401 => "ExpiredAuthenticationToken",
        403 => "AuthorizationFailed",
        404 => "ResourceNotFound",
        409 => "AnotherOperationInProgress",
        412 => "PreconditionFailed",
        429 => "TooManyRequests",
        500 => "InternalServerError",
        _ => "ServiceUnavailable",
    };
    json!({ "error": { "code": code, "message": "refused by plan" } }).to_string()
}
