//! Makes sense of requests to the Resource Manager. Paths are compared without regard to case.

use super::errors::{error, not_found};
use crate::http::{ApiError, HttpRequest};
use crate::pipeline::Decoded;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::Value;

/// A request that makes sense. Keys are ids in lower case.
pub enum Request {
    /// Things of a kind in a subscription or a resource group.
    List { kind: Kind, page: Page },
    /// One thing.
    Get { kind: Kind, id: String, expand: bool },
    /// The power state of an instance.
    InstanceView { id: String },
    /// Writes a whole interface.
    PutInterface { id: String, body: Value, if_match: Option<String>, api_version: String },
    /// Changes the tags of an interface, and nothing else.
    TagInterface { id: String, body: Value },
    /// An operation.
    GetOperation { id: String, name: String },
    /// A write of what can only be read there.
    NotAllowed { id: String },
}

/// Kinds of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Address,
    Interface,
    Instance,
    /// An interface of an instance of a scale set in uniform mode.
    ScaleSetInterface,
}

/// Which part of a list.
pub struct Page {
    /// What keys begin with.
    pub prefix: String,
    /// What keys contain.
    pub contains: String,
    /// The path of the list.
    pub path: String,
    /// Those after this key.
    pub after: Option<String>,
    /// The version of the API.
    pub api_version: String,
    /// Instances: whether they run, and nothing else.
    pub status_only: bool,
}

impl Kind {
    /// The action that reads it.
    pub fn read_permission(self) -> &'static str {
        match self {
            Self::Address => "Microsoft.Network/publicIPAddresses/read",
            Self::Interface => "Microsoft.Network/networkInterfaces/read",
            Self::Instance => "Microsoft.Compute/virtualMachines/read",
            Self::ScaleSetInterface => {
                "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read"
            }
        }
    }

    /// Names of its reads in the log: a list, one thing.
    fn actions(self) -> (&'static str, &'static str) {
        match self {
            Self::Address => ("publicIPAddresses.list", "publicIPAddresses.get"),
            Self::Interface => ("networkInterfaces.list", "networkInterfaces.get"),
            Self::Instance => ("virtualMachines.list", "virtualMachines.get"),
            Self::ScaleSetInterface => ("scaleSetInterfaces.list", "scaleSetInterfaces.get"),
        }
    }

    fn of(namespace: &str, kind: &str) -> Option<Self> {
        match (namespace, kind) {
            ("microsoft.network", "publicipaddresses") => Some(Self::Address),
            ("microsoft.network", "networkinterfaces") => Some(Self::Interface),
            ("microsoft.compute", "virtualmachines") => Some(Self::Instance),
            _ => None,
        }
    }
}

/// Makes sense of a request.
pub fn decode(http: &HttpRequest) -> Result<Decoded<Request>, ApiError> {
    let Some(api_version) = http.param("api-version").map(str::to_owned) else {
        let message = "The api-version query parameter (?api-version=) is required for all requests.";
        return Err(error("MissingApiVersionParameter", message));
    };
    let path = http.path.trim_end_matches('/');
    let lower = path.to_lowercase();
    let segments: Vec<&str> = lower.trim_matches('/').split('/').collect();
    let (scope, resource) = match segments.as_slice() {
        ["subscriptions", subscription, "resourcegroups", group, "providers", rest @ ..] => {
            (format!("/subscriptions/{subscription}/resourcegroups/{group}/"), rest)
        }
        ["subscriptions", subscription, "providers", rest @ ..] => {
            (format!("/subscriptions/{subscription}/"), rest)
        }
        _ => return Err(not_found(path)),
    };
    let kind_of = |namespace, kind| Kind::of(namespace, kind).ok_or_else(|| not_found(path));
    match resource {
        [namespace, kind] => {
            let kind = kind_of(namespace, kind)?;
            let page = page(http, path, scope, kind, api_version)?;
            Ok(decoded(kind.actions().0, path, false, Request::List { kind, page }))
        }
        [namespace, kind, _] => one(http, kind_of(namespace, kind)?, path, api_version),
        ["microsoft.compute", "virtualmachines", _, "instanceview"] => {
            let request = Request::InstanceView { id: path.to_owned() };
            Ok(decoded("virtualMachines.instanceView", path, false, request))
        }
        ["microsoft.network", "locations", _, "operations", name] => {
            let (id, name) = (path.to_owned(), (*name).to_owned());
            Ok(decoded("operations.get", path, false, Request::GetOperation { id, name }))
        }
        [_, "virtualmachinescalesets", _, "virtualmachines", _, "networkinterfaces", _] => {
            one(http, Kind::ScaleSetInterface, path, api_version)
        }
        _ => Err(not_found(path)),
    }
}

fn decoded(action: &'static str, target: &str, mutating: bool, request: Request) -> Decoded<Request> {
    Decoded { action, target: target.to_owned(), mutating, request }
}

fn one(
    http: &HttpRequest,
    kind: Kind,
    path: &str,
    api_version: String,
) -> Result<Decoded<Request>, ApiError> {
    let id = path.to_owned();
    Ok(match (http.method.as_str(), kind) {
        ("GET", _) => {
            let expand = http.param("$expand") == Some("instanceView");
            decoded(kind.actions().1, path, false, Request::Get { kind, id, expand })
        }
        ("PUT", Kind::Interface) => {
            let request = Request::PutInterface {
                id,
                body: body(http)?,
                if_match: http.header("if-match").map(str::to_owned),
                api_version,
            };
            decoded("networkInterfaces.createOrUpdate", path, true, request)
        }
        ("PATCH", Kind::Interface) => {
            let request = Request::TagInterface { id, body: body(http)? };
            decoded("networkInterfaces.updateTags", path, true, request)
        }
        _ => decoded("write", path, true, Request::NotAllowed { id }),
    })
}

fn body(http: &HttpRequest) -> Result<Value, ApiError> {
    let parsed: Result<Value, _> = serde_json::from_slice(&http.body);
    match parsed {
        Ok(Value::Object(map)) => Ok(Value::Object(map)),
        Ok(_) | Err(_) => Err(error(
            "InvalidRequestContent",
            "The request content was invalid and could not be deserialized.",
        )),
    }
}

fn page(
    http: &HttpRequest,
    path: &str,
    prefix: String,
    kind: Kind,
    api_version: String,
) -> Result<Page, ApiError> {
    let after = match http.param("$skiptoken") {
        None => None,
        Some(token) => {
            let decoded = URL_SAFE.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Some(decoded.ok_or_else(|| error("InvalidSkipToken", "The skip token is invalid."))?)
        }
    };
    Ok(Page {
        prefix,
        // Instances of scale sets are in the same table but in no list.
        contains: if kind == Kind::Instance {
            "/microsoft.compute/virtualmachines/"
        } else {
            "/microsoft.network/"
        }
        .to_owned(),
        path: path.to_owned(),
        after,
        api_version,
        status_only: http.param("statusOnly") == Some("true"),
    })
}

/// The link to the page after a key.
pub fn next_link(base_url: &str, page: &Page, after: &str) -> String {
    let token = URL_SAFE.encode(after);
    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let also = if page.status_only { "&statusOnly=true" } else { "" };
    format!("{base_url}{}?api-version={}&%24skiptoken={token}{also}", page.path, page.api_version)
}
