//! Errors as the EC2 API writes them.

use super::xml::Xml;
use crate::http::{ApiError, Reply};
use crate::model::operations::guid;

/// Status and message of an error by its code.
pub fn by_code(code: &str) -> (u16, &'static str) {
    match code {
        "UnauthorizedOperation" => (403, "You are not authorized to perform this operation."),
        "DryRunOperation" => (412, "Request would have succeeded, but DryRun flag is set."),
        "InternalError" => (500, "An internal error has occurred"),
        "RequestLimitExceeded" | "EC2ThrottledException" => (503, "Request limit exceeded."),
        "ServiceUnavailable" | "Unavailable" | "InsufficientCapacity" => {
            (503, "The service is unavailable. Please try again shortly.")
        }
        "AuthFailure" => (401, "AWS was not able to validate the provided access credentials"),
        "RequestExpired" => (400, "Request has expired."),
        _ => (400, "The request could not be fulfilled."),
    }
}

/// An error with the code and the words that the API gives.
pub fn error(code: &str, message: impl Into<String>) -> ApiError {
    ApiError::new(by_code(code).0, code, message)
}

/// An id that names nothing; one of a wrong form is told apart.
pub fn no_such(kind: &Kind, id: &str) -> ApiError {
    let hex = id.strip_prefix(kind.prefix).unwrap_or_default();
    let formed = matches!(hex.len(), 8 | 17) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    if formed {
        error(&format!("{}.NotFound", kind.code), format!("The {} '{id}' does not exist", kind.words))
    } else {
        error(&format!("{}.Malformed", kind.code), format!("Invalid id: \"{id}\""))
    }
}

/// A kind of id.
pub struct Kind {
    prefix: &'static str,
    code: &'static str,
    words: &'static str,
}

/// Ids of instances.
pub const INSTANCE: Kind = Kind { prefix: "i-", code: "InvalidInstanceID", words: "instance ID" };
/// Ids of interfaces.
pub const INTERFACE: Kind =
    Kind { prefix: "eni-", code: "InvalidNetworkInterfaceID", words: "networkInterface ID" };
/// Ids of reserved addresses.
pub const ALLOCATION: Kind =
    Kind { prefix: "eipalloc-", code: "InvalidAllocationID", words: "allocation ID" };
/// Ids of associations.
pub const ASSOCIATION: Kind =
    Kind { prefix: "eipassoc-", code: "InvalidAssociationID", words: "association ID" };

/// A parameter that is missing.
pub fn missing(name: &str) -> ApiError {
    error("MissingParameter", format!("The request must contain the parameter {name}"))
}

/// Writes an error. Those of the cloud's own making name the request, which is another one each time.
pub fn write(error: &ApiError, request_id: u64) -> Reply {
    let message = match error.code.as_str() {
        code @ "InternalError" if error.message == by_code(code).1 => {
            format!("{} (Request ID: {})", error.message, guid(request_id))
        }
        _ => error.message.clone(),
    };
    let mut xml = Xml::default();
    xml.node("Response", |xml| {
        xml.node("Errors", |xml| {
            xml.node("Error", |xml| {
                xml.leaf("Code", &error.code).leaf("Message", &message);
            });
        });
        xml.leaf("RequestID", guid(request_id));
    });
    reply(error.status, xml, request_id)
}

/// A reply of the API. The header is where SDKs look for the id.
pub fn reply(status: u16, xml: Xml, request_id: u64) -> Reply {
    Reply {
        status,
        headers: vec![("x-amzn-requestid", guid(request_id))],
        content_type: "text/xml;charset=UTF-8",
        body: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", xml.into_text()),
    }
}
