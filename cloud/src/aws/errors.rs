//! What EC2's errors mean.

use crate::words::{stable, with_sources};
use crate::{Class, Error};
use aws_sdk_ec2::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;

/// An EC2 error of an action, as what to do about it.
pub fn of<E>(action: &str, error: &SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let request_id = error.request_id().map(str::to_owned);
    let (class, message) = match error {
        SdkError::ServiceError(refused) => {
            let code = refused.err().code().unwrap_or("without a code");
            let status = refused.raw().status().as_u16();
            let message = stable(without_blob(refused.err().message().unwrap_or_default()));
            (class(status, code), format!("{action}: EC2 {status} {code}: {message}{}", advice(code)))
        }
        // A connection that the other side closed is `other` too, with a kind: that one was sent.
        SdkError::DispatchFailure(failure)
            if (failure.is_other() && failure.as_other().is_none()) || names_credentials(error) =>
        {
            let why = in_short(error);
            (
                Class::Denied,
                format!("{action} was not sent: no credentials for AWS: {why}; docs/clouds/aws.md"),
            )
        }
        other => {
            let why = in_short(other);
            (
                Class::Transient,
                format!("{action}: EC2 did not answer: {why}; it may or may not have been done"),
            )
        }
    };
    Error { request_id, ..Error::new(class, message) }
}

/// An error without its insides, which go to the log: they have the ports and ids of this one call in them.
fn in_short<E>(error: &SdkError<E>) -> String
where
    E: std::error::Error + 'static,
{
    tracing::debug!("in full: {}", DisplayErrorContext(error));
    with_sources(error)
}

/// The code of a refusal.
pub fn code<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

fn names_credentials(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string().contains("credential") {
            return true;
        }
        next = error.source();
    }
    false
}

/// Refusals carry kilobytes for `aws sts decode-authorization-message`, which are of no use in a status.
fn without_blob(message: &str) -> &str {
    message.split("Encoded authorization failure message").next().unwrap_or_default().trim_end()
}

fn class(status: u16, code: &str) -> Class {
    match code {
        "RequestLimitExceeded"
        | "EC2ThrottledException"
        | "Throttling"
        | "ThrottlingException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "TooManyRequestsException"
        | "SlowDown"
        | "PriorRequestNotComplete" => Class::Throttled,
        "UnauthorizedOperation"
        | "AuthFailure"
        | "Blocked"
        | "OptInRequired"
        | "PendingVerification"
        | "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "AccessDenied"
        | "AccessDeniedException"
        | "MissingAuthenticationToken"
        | "IncompleteSignature" => Class::Denied,
        // The world is not as it was read. A pending instance is one of these.
        "Resource.AlreadyAssociated"
        | "IncorrectInstanceState"
        | "IncorrectState"
        | "InvalidInstanceID"
        | "InvalidInstanceID.NotFound"
        | "InvalidAssociationID.NotFound"
        | "InvalidAllocationID.NotFound"
        | "InvalidAddress.NotFound"
        | "InvalidNetworkInterfaceID.NotFound" => Class::Conflict,
        "UnsupportedOperation" | "OperationNotPermitted" => Class::Unsupported,
        _ if status >= 500 => Class::Transient,
        _ => Class::Permanent,
    }
}

/// What to do about it, where EC2 does not say it.
fn advice(code: &str) -> &'static str {
    match code {
        "UnauthorizedOperation" => " (the policy in docs/clouds/aws.md allows it)",
        "AuthFailure" => {
            " (credentials that are no good, or an address or interface of another account or service)"
        }
        "RequestExpired" => " (look at the clock of the node)",
        "Gateway.NotAttached" => {
            " (the VPC has no internet gateway: no instance in it can have a public address)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_to_do() {
        assert_eq!(class(503, "RequestLimitExceeded"), Class::Throttled);
        assert_eq!(class(503, "Unavailable"), Class::Transient);
        assert_eq!(class(400, "Resource.AlreadyAssociated"), Class::Conflict);
        assert_eq!(class(400, "Gateway.NotAttached"), Class::Permanent);
        assert_eq!(class(400, "RequestExpired"), Class::Denied);
        assert_eq!(class(403, "UnauthorizedOperation"), Class::Denied);
    }

    #[test]
    fn blobs_are_cut_off() {
        let message = "You are not authorized. Encoded authorization failure message: AAAA";
        assert_eq!(without_blob(message), "You are not authorized.");
    }
}
