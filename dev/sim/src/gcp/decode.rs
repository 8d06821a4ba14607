//! Makes sense of requests to the Compute API.

use super::errors::{error, invalid, not_found};
use super::filter::Filter;
use crate::http::{ApiError, HttpRequest};
use crate::pipeline::Decoded;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::Value;

/// A request that makes sense.
pub enum Request {
    /// The project.
    GetProject { project: String },
    /// Addresses of a region, or the global ones.
    ListAddresses { scope: String, page: Page },
    /// One address.
    GetAddress { key: String },
    /// Addresses of all regions.
    AllAddresses { project: String, page: Page },
    /// Instances of a zone.
    ListInstances { scope: String, page: Page },
    /// Instances of all zones.
    AllInstances { project: String, page: Page },
    /// One instance.
    GetInstance { key: String },
    /// Gives an interface an external address.
    AddAccessConfig { target: Target, config: Value },
    /// Takes it away.
    DeleteAccessConfig { target: Target, config: String },
    /// Changes an interface.
    UpdateInterface { target: Target, patch: Value },
    /// Operations of a zone.
    ListOperations { zone: String, page: Page },
    /// Which of some permissions the caller has on a thing.
    TestPermissions { key: String, kind: &'static str, permissions: Vec<String> },
    /// The state of an operation; `wait` takes its time.
    GetOperation { zone: String, name: String, wait: bool },
}

/// What a call changes.
pub struct Target {
    /// Key of the instance.
    pub instance: String,
    /// Key of its zone: `projects/p/zones/z`.
    pub zone: String,
    /// Name of the interface.
    pub interface: String,
    /// The caller's idempotency token.
    pub request_id: Option<String>,
}

/// Which part of a list.
#[derive(Debug)]
pub struct Page {
    /// Only what passes.
    pub filter: Option<Filter>,
    /// At most so many.
    pub limit: usize,
    /// What comes after this key.
    pub after: Option<String>,
}

const LONGEST_PAGE: usize = 500;

/// Makes sense of a request.
pub fn decode(http: &HttpRequest) -> Result<Decoded<Request>, ApiError> {
    let segments = http.segments();
    let ["compute", "v1", "projects", project, rest @ ..] = segments.as_slice() else {
        return Err(not_found(&http.path));
    };
    let key = segments[2..].join("/");
    let zone = |zone: &str| format!("projects/{project}/zones/{zone}");
    let (action, request) = match (http.method.as_str(), rest) {
        ("GET", rest) => read(http, project, key.clone(), rest)?,
        ("POST", ["zones", place, "operations", name, "wait"]) => {
            ("zoneOperations.wait", operation(zone(place), name, true))
        }
        ("POST", [place, _, kind, _, "testIamPermissions"]) => test_permissions(http, place, kind)?,
        (method, ["zones", place, "instances", name, verb]) => {
            return change(http, method, &zone(place), name, verb);
        }
        _ => return Err(not_found(&http.path)),
    };
    Ok(Decoded { action, target: key, mutating: false, request })
}

/// Makes sense of a read of what is at a key.
fn read(
    http: &HttpRequest,
    project: &str,
    key: String,
    path: &[&str],
) -> Result<(&'static str, Request), ApiError> {
    let project = project.to_owned();
    Ok(match path {
        [] => ("projects.get", Request::GetProject { project }),
        ["aggregated", "addresses"] => {
            let page = page(http)?;
            ("addresses.aggregatedList", Request::AllAddresses { project, page })
        }
        ["aggregated", "instances"] => {
            let page = page(http)?;
            ("instances.aggregatedList", Request::AllInstances { project, page })
        }
        ["regions", _, "addresses"] => ("addresses.list", list_addresses(key, page(http)?)),
        ["global", "addresses"] => ("globalAddresses.list", list_addresses(key, page(http)?)),
        ["regions", _, "addresses", _] => ("addresses.get", Request::GetAddress { key }),
        ["global", "addresses", _] => ("globalAddresses.get", Request::GetAddress { key }),
        ["zones", _, "instances"] => {
            let page = page(http)?;
            ("instances.list", Request::ListInstances { scope: key, page })
        }
        ["zones", _, "instances", _] => ("instances.get", Request::GetInstance { key }),
        ["zones", zone, "operations"] => {
            let (zone, page) = (format!("projects/{project}/zones/{zone}"), page(http)?);
            ("zoneOperations.list", Request::ListOperations { zone, page })
        }
        ["zones", zone, "operations", name] => {
            let zone = format!("projects/{project}/zones/{zone}");
            ("zoneOperations.get", operation(zone, name, false))
        }
        _ => return Err(not_found(&http.path)),
    })
}

fn list_addresses(scope: String, page: Page) -> Request {
    Request::ListAddresses { scope, page }
}

fn operation(zone: String, name: &str, wait: bool) -> Request {
    let name = name.to_owned();
    Request::GetOperation { zone, name, wait }
}

/// Makes sense of a question for permissions; their kind is that of the thing.
fn test_permissions(
    http: &HttpRequest,
    place: &str,
    kind: &str,
) -> Result<(&'static str, Request), ApiError> {
    let (action, kind) = match (place, kind) {
        ("zones", "instances") => ("instances.testIamPermissions", "instances"),
        ("regions", "addresses") => ("addresses.testIamPermissions", "addresses"),
        ("regions", "subnetworks") => ("subnetworks.testIamPermissions", "subnetworks"),
        _ => return Err(not_found(&http.path)),
    };
    let segments = http.segments();
    let key = segments[2..segments.len() - 1].join("/");
    let asked = body(http)?;
    let permissions = asked["permissions"].as_array().into_iter().flatten();
    let permissions = permissions.filter_map(|one| one.as_str().map(str::to_owned)).collect();
    Ok((action, Request::TestPermissions { key, kind, permissions }))
}

fn change(
    http: &HttpRequest,
    method: &str,
    zone: &str,
    name: &str,
    verb: &str,
) -> Result<Decoded<Request>, ApiError> {
    let (action, known) = match (method, verb) {
        ("POST", "addAccessConfig") => ("instances.addAccessConfig", true),
        ("POST", "deleteAccessConfig") => ("instances.deleteAccessConfig", true),
        ("PATCH", "updateNetworkInterface") => ("instances.updateNetworkInterface", true),
        _ => ("", false),
    };
    if !known {
        return Err(not_found(&http.path));
    }
    let target = Target {
        instance: format!("{zone}/instances/{name}"),
        zone: zone.to_owned(),
        interface: required(http, "networkInterface")?.to_owned(),
        request_id: request_id(http)?,
    };
    let decoded_target = format!("{}/{}", target.instance, target.interface);
    let request = match verb {
        "addAccessConfig" => Request::AddAccessConfig { target, config: body(http)? },
        "deleteAccessConfig" => {
            Request::DeleteAccessConfig { target, config: required(http, "accessConfig")?.to_owned() }
        }
        _ => Request::UpdateInterface { target, patch: body(http)? },
    };
    Ok(Decoded { action, target: decoded_target, mutating: true, request })
}

fn required<'a>(http: &'a HttpRequest, name: &str) -> Result<&'a str, ApiError> {
    let missing = || error("required", format!("Required field '{name}' not specified"));
    http.param(name).filter(|value| !value.is_empty()).ok_or_else(missing)
}

fn body(http: &HttpRequest) -> Result<Value, ApiError> {
    let parsed: Result<Value, _> = serde_json::from_slice(&http.body);
    match parsed {
        Ok(Value::Object(map)) => Ok(Value::Object(map)),
        Ok(_) | Err(_) => Err(error("badRequest", "Invalid JSON payload received. Expected an object.")),
    }
}

/// The token must be a UUID, and not the one of zeros.
fn request_id(http: &HttpRequest) -> Result<Option<String>, ApiError> {
    let Some(id) = http.param("requestId") else {
        return Ok(None);
    };
    let groups: Vec<&str> = id.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let hex = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let zero = id.bytes().all(|byte| byte == b'0' || byte == b'-');
    if !hex || zero || lengths != [8, 4, 4, 4, 12] {
        return Err(invalid("requestId", id, "Must be a valid, non-zero UUID."));
    }
    Ok(Some(id.to_lowercase()))
}

fn page(http: &HttpRequest) -> Result<Page, ApiError> {
    let limit = match http.param("maxResults") {
        None => LONGEST_PAGE,
        Some(text) => match text.parse::<usize>() {
            Ok(limit) if limit <= LONGEST_PAGE => {
                if limit == 0 {
                    LONGEST_PAGE
                } else {
                    limit
                }
            }
            _ => return Err(invalid("maxResults", text, "Must be between 0 and 500.")),
        },
    };
    let filter = match http.param("filter").filter(|text| !text.trim().is_empty()) {
        None => None,
        Some(text) => Some(
            Filter::parse(text).map_err(|_| invalid("filter", text, "Invalid list filter expression."))?,
        ),
    };
    let after = match http.param("pageToken").filter(|token| !token.is_empty()) {
        None => None,
        Some(token) => {
            Some(read_token(token).ok_or_else(|| invalid("pageToken", token, "Invalid page token."))?)
        }
    };
    Ok(Page { filter, limit, after })
}

/// The token that continues after a key.
pub fn page_token(after: &str) -> String {
    URL_SAFE.encode(after)
}

fn read_token(token: &str) -> Option<String> {
    String::from_utf8(URL_SAFE.decode(token).ok()?).ok()
}
