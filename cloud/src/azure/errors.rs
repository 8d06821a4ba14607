//! What the Resource Manager's errors mean.

use crate::words::{stable, with_sources};
use crate::{Class, Error};
use serde::Deserialize;

#[derive(Deserialize)]
struct Envelope {
    error: Fault,
}

/// An error as replies and operations have it.
#[derive(Debug, Default, Deserialize)]
pub struct Fault {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// An answer that is no success.
pub fn of_reply(status: u16, body: &str) -> Error {
    let envelope: Result<Envelope, _> = serde_json::from_str(body);
    let fault = envelope.map(|envelope| envelope.error).unwrap_or_default();
    let class = class(status, &fault.code);
    Error::new(
        class,
        format!("Azure {status} {}: {}{}", fault.code, stable(&fault.message), advice(&fault.code)),
    )
}

/// An operation that was accepted and has failed.
pub fn of_operation(status: &str, fault: Option<Fault>) -> Error {
    let fault = fault.unwrap_or_default();
    let class = if status == "Canceled" { Class::Conflict } else { class(400, &fault.code) };
    let words = format!(
        "Azure operation {status}, {}: {}{}",
        fault.code,
        stable(&fault.message),
        advice(&fault.code)
    );
    Error::new(class, words)
}

/// No answer at all.
pub fn of_transport(error: &azure_core::Error) -> Error {
    let class = match error.kind() {
        azure_core::error::ErrorKind::Credential => Class::Denied,
        _ => Class::Transient,
    };
    let why = with_sources(error);
    Error::new(class, format!("Azure did not answer: {why}; it may or may not have been done"))
}

fn class(status: u16, code: &str) -> Class {
    match (status, code) {
        // A lock that somebody else has, and not a word about how often we call.
        (
            _,
            "RetryableErrorDueToAnotherOperation"
            | "AnotherOperationInProgress"
            | "RetryableError"
            | "ReferencedResourceNotProvisioned"
            | "CanceledAndSupersededDueToAnotherOperation"
            | "PublicIPAddressInUse",
        ) => Class::Conflict,
        (429, _) => Class::Throttled,
        (401 | 403, _) | (_, "ScopeLocked") => Class::Denied,
        (404 | 409 | 412, _) => Class::Conflict,
        (408 | 500..=599, _) | (_, "InternalServerError" | "ServerTimeout") => Class::Transient,
        _ => Class::Permanent,
    }
}

/// What to do about it, where the cloud does not say it.
fn advice(code: &str) -> &'static str {
    match code {
        "DenyAssignmentAuthorizationFailed" => {
            " (AKS has locked its node resource group, as AKS Automatic does: --nrg-lockdown-restriction-level)"
        }
        "AuthorizationFailed" | "LinkedAuthorizationFailed" => {
            " (the role in docs/clouds/azure.md has all of them)"
        }
        "ScopeLocked" => " (take the lock off the resource group)",
        "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed" => {
            " (upgrade the address to the Standard SKU)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_429_that_is_a_lock_is_no_throttling() {
        assert_eq!(class(429, "RetryableErrorDueToAnotherOperation"), Class::Conflict);
        assert_eq!(class(429, "SubscriptionRequestsThrottled"), Class::Throttled);
        assert_eq!(class(429, ""), Class::Throttled);
        assert_eq!(class(503, ""), Class::Transient);
        assert_eq!(class(400, "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed"), Class::Permanent);
        assert_eq!(class(400, "PublicIPAddressInUse"), Class::Conflict);
        assert_eq!(class(401, "ExpiredAuthenticationToken"), Class::Denied);
    }

    #[test]
    fn what_is_no_json_is_still_an_error() {
        let error = of_reply(502, "<html>bad gateway</html>");
        assert_eq!(error.class, Class::Transient);
    }
}
