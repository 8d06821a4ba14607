//! What the Compute API's errors mean. There are three kinds of 403, so the reason decides, not the status.

use crate::words::{stable, with_sources};
use crate::{Class, Error};
use google_cloud_compute_v1::model::Operation;
use google_cloud_gax::error::rpc::StatusDetails;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A call that failed.
pub fn of(action: &str, error: &google_cloud_gax::error::Error) -> Error {
    if error.is_authentication() {
        return super::credentials::refused(error);
    }
    let Some(status) = error.http_status_code() else {
        let why = with_sources(error);
        let message = format!("{action}: GCP did not answer: {why}; it may or may not have been done");
        return Error::new(Class::Transient, message);
    };
    let (words, reasons) = said(error);
    let class = class(status, &reasons, &words);
    let retry_after = match class {
        Class::Throttled => Some(header_wait(error).unwrap_or_else(rest_of_the_minute)),
        _ => header_wait(error),
    };
    let message = format!("{action}: GCP {status} {}: {words}{}", reasons.join(" "), advice(class, &words));
    Error { retry_after, ..Error::new(class, message) }
}

/// An answer that is no success, of a call that the SDK did not make.
pub fn of_text(action: &str, status: u16, body: &str) -> Error {
    let reasons = ["rateLimitExceeded", "RATE_LIMIT_EXCEEDED", "quotaExceeded"];
    let reasons: Vec<String> =
        reasons.into_iter().filter(|reason| body.contains(reason)).map(str::to_owned).collect();
    let class = class(status, &reasons, body);
    let retry_after = (class == Class::Throttled).then(rest_of_the_minute);
    let message = format!("{action}: GCP {status} {}{}", reasons.join(" "), advice(class, body));
    Error { retry_after, ..Error::new(class, message) }
}

/// What the answer says: its message, and the reasons in it.
fn said(error: &google_cloud_gax::error::Error) -> (String, Vec<String>) {
    let Some(status) = error.status() else {
        let body = error.http_payload().map(|body| stable(&String::from_utf8_lossy(body)));
        return (body.unwrap_or_default(), Vec::new());
    };
    let reasons = status.details.iter().filter_map(|detail| match detail {
        StatusDetails::ErrorInfo(info) => Some(info.reason.clone()),
        _ => None,
    });
    (stable(&status.message), reasons.collect())
}

fn class(status: u16, reasons: &[String], message: &str) -> Class {
    let has = |wanted: &[&str]| reasons.iter().any(|reason| wanted.contains(&reason.as_str()));
    match status {
        _ if has(&["rateLimitExceeded", "RATE_LIMIT_EXCEEDED", "userRateLimitExceeded"])
            || has(&["CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "concurrentOperationsQuotaExceeded"]) =>
        {
            Class::Throttled
        }
        429 => Class::Throttled,
        403 if has(&["quotaExceeded", "QUOTA_EXCEEDED"]) => Class::Permanent,
        401 | 403 => Class::Denied,
        // Organisation policy, told from a stale condition by its words alone.
        412 if message.contains("constraints/") => Class::Denied,
        404 | 409 | 412 => Class::Conflict,
        400 if has(&["resourceNotReady", "resourceInUseByAnotherResource"]) => Class::Conflict,
        400 if message.contains("At most one access config") || message.contains("in-use") => Class::Conflict,
        408 | 500..=599 => Class::Transient,
        _ => Class::Permanent,
    }
}

/// An operation that is done: how it ended.
pub fn of_operation(action: &str, operation: &Operation) -> Result<(), Error> {
    let Some(error) = &operation.error else {
        return Ok(());
    };
    let first = error.errors.first();
    let code = first.and_then(|error| error.code.clone()).unwrap_or_default();
    let words = first.and_then(|error| error.message.as_deref()).map(stable).unwrap_or_default();
    let class = match code.as_str() {
        "IP_IN_USE_BY_ANOTHER_RESOURCE"
        | "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
        | "RESOURCE_NOT_READY"
        | "RESOURCE_NOT_FOUND"
        | "RESOURCE_OPERATION_RATE_EXCEEDED" => Class::Conflict,
        "RATE_LIMIT_EXCEEDED" | "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED" => Class::Throttled,
        "PERMISSIONS_ERROR" | "CONDITION_NOT_MET" => Class::Denied,
        "INTERNAL_ERROR" | "BACKEND_ERROR" | "SERVICE_UNAVAILABLE" | "OPERATION_CANCELED_BY_USER" => {
            Class::Transient
        }
        _ if operation.http_error_status_code.is_some_and(|status| status >= 500) => Class::Transient,
        _ => Class::Permanent,
    };
    let request_id = operation.name.clone();
    Err(Error { request_id, ..Error::new(class, format!("{action}: the operation failed, {code}: {words}")) })
}

fn header_wait(error: &google_cloud_gax::error::Error) -> Option<Duration> {
    let seconds = error.http_headers()?.get("retry-after")?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Rates are counted by the minute of the clock, and there is no word about when to come back.
fn rest_of_the_minute() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(61 - now.as_secs() % 60)
}

/// What to do about it, where the API does not say it.
fn advice(class: Class, message: &str) -> &'static str {
    match class {
        Class::Denied if message.contains("constraints/") => " (allow the nodes in this organisation policy)",
        Class::Denied => " (the role in docs/clouds/gcp.md has all permissions)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_kinds_of_403() {
        let reason = |reason: &str| vec![reason.to_owned()];
        assert_eq!(class(403, &reason("rateLimitExceeded"), ""), Class::Throttled);
        assert_eq!(class(403, &reason("RATE_LIMIT_EXCEEDED"), ""), Class::Throttled);
        assert_eq!(class(403, &reason("quotaExceeded"), ""), Class::Permanent);
        assert_eq!(class(403, &reason("forbidden"), "Required 'x' permission"), Class::Denied);
        assert_eq!(class(412, &reason("conditionNotMet"), "Constraint constraints/compute.x"), Class::Denied);
        assert_eq!(class(412, &reason("conditionNotMet"), "fingerprint"), Class::Conflict);
    }
}
