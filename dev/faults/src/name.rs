//! Names of requests: the same in every run of the same workload, so that a plan finds its request again.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whom a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Side {
    Api,
    Gcp,
    Aws,
    Azure,
}

/// Requests that are swept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// What the workload is about.
    Work,
    /// The lease: its requests depend on the clock alone.
    Lease,
    /// Kubernetes events: whether they come is nobody's concern.
    Event,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name {
    /// Whom it asks.
    pub side: Side,
    /// Who asks.
    pub caller: String,
    /// As RBAC has it, or the cloud's name of the call.
    pub verb: String,
    /// `namespace:resource/name/subresource` of Kubernetes; what a cloud's call is about.
    pub object: String,
    /// What it belongs to.
    pub group: Group,
    /// It changes things.
    pub mutating: bool,
}

impl Name {
    /// The kind of its object, whichever it is.
    pub fn kind(&self) -> &str {
        let path = self.object.split_once(':').map_or(self.object.as_str(), |(_, path)| path);
        match self.side {
            // `nodes/a` and `nodes/b` are one kind, `netipallocations/a/status` is another than its object.
            Side::Api if path.matches('/').count() > 1 => path.rsplit('/').next().unwrap_or(path),
            Side::Api => path.split('/').next().unwrap_or(path),
            _ => "",
        }
    }
}

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a [u8],
}

impl Request<'_> {
    fn param(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

/// The name of a request. Callers of clouds are named in the path (`/as/NAME/…`), those of the API server by
/// the port that they were given.
pub fn name(side: Side, caller: &str, request: Request<'_>) -> Name {
    let (named, path) = split_caller(request.path);
    let caller = named.unwrap_or(caller).to_owned();
    let request = Request { path, ..request };
    match side {
        Side::Api => of_api(caller, request),
        Side::Gcp => of_gcp(caller, request),
        Side::Aws => of_aws(caller, request),
        Side::Azure => of_azure(caller, request),
    }
}

fn split_caller(path: &str) -> (Option<&str>, &str) {
    let Some(rest) = path.strip_prefix("/as/") else {
        return (None, path);
    };
    let end = rest.find('/').unwrap_or(rest.len());
    (Some(&rest[..end]), &rest[end..])
}

fn of_api(caller: String, request: Request<'_>) -> Name {
    let segments: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => ("", &[][..]),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let resource = rest.first().copied().unwrap_or(request.path);
    let watches = request.param("watch").is_some_and(|watch| watch == "true" || watch == "1");
    let verb = match (request.method.as_str(), rest.len()) {
        ("GET", _) if watches => "watch",
        ("GET", 0..2) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", 0..2) => "deletecollection",
        _ => "delete",
    };
    let mut object = if rest.is_empty() { request.path.to_owned() } else { rest.join("/") };
    if let ("create", [_], Some(name)) = (verb, rest, name_in(request.body)) {
        object = format!("{object}/{name}");
    }
    if let Some(namespace) = namespace {
        object = format!("{namespace}:{object}");
    }
    // Questions that are asked by POST change nothing.
    let question = matches!(group, "authorization.k8s.io" | "authentication.k8s.io");
    let mutating = !matches!(verb, "get" | "list" | "watch") && !question;
    let group = match resource {
        "leases" => Group::Lease,
        "events" => Group::Event,
        _ => Group::Work,
    };
    // Events have names that are made up each time.
    let object = if group == Group::Event { "events".to_owned() } else { object };
    Name { side: Side::Api, caller, verb: verb.to_owned(), object, group, mutating }
}

fn name_in(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    Some(object["metadata"]["name"].as_str()?.to_owned())
}

fn of_gcp(caller: String, request: Request<'_>) -> Name {
    let segments: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let (verb, about) = match (request.method.as_str(), segments.as_slice()) {
        ("GET", about) => ("get", about),
        (_, [about @ .., verb]) => (*verb, about),
        (_, []) => ("unknown", &[][..]),
    };
    // What an operation is called is made up each time.
    let about = if about.contains(&"operations") { &[][..] } else { about };
    let object = about.get(about.len().saturating_sub(3)..).unwrap_or_default().join("/");
    let mutating = *request.method != Method::GET && !matches!(verb, "wait" | "testIamPermissions");
    Name { side: Side::Gcp, caller, verb: verb.to_owned(), object, group: Group::Work, mutating }
}

fn of_aws(caller: String, request: Request<'_>) -> Name {
    let mut action = String::new();
    let mut about = String::new();
    for (key, value) in form_urlencoded::parse(request.body) {
        match key.as_ref() {
            "Action" => action = value.into_owned(),
            // Those of associations and interfaces are made up by the cloud.
            "AllocationId" => about = value.into_owned(),
            _ => {}
        }
    }
    let mutating = !action.starts_with("Describe");
    Name { side: Side::Aws, caller, verb: action, object: about, group: Group::Work, mutating }
}

fn of_azure(caller: String, request: Request<'_>) -> Name {
    let segments: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let segments = if segments.contains(&"operations") { &[][..] } else { &segments[..] };
    let object = segments.get(segments.len().saturating_sub(2)..).unwrap_or_default().join("/");
    let verb = request.method.as_str().to_ascii_lowercase();
    let mutating = *request.method != Method::GET;
    Name { side: Side::Azure, caller, verb, object, group: Group::Work, mutating }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(side: Side, method: &Method, url: &str, body: &str) -> (String, String, Group, bool) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let name = name(side, "first", Request { method, path, query, body: body.as_bytes() });
        (name.verb, name.object, name.group, name.mutating)
    }

    #[test]
    fn requests_to_the_api_server_are_named_as_rbac_names_them() {
        let cases = [
            (Method::GET, "/api/v1/nodes?limit=500", "", "list", "nodes", false),
            (Method::GET, "/api/v1/nodes?watch=true&resourceVersion=7", "", "watch", "nodes", false),
            (Method::PATCH, "/api/v1/nodes/node-1?force=true", "{}", "patch", "nodes/node-1", true),
            (Method::GET, "/api/v1/namespaces/web", "", "get", "namespaces/web", false),
            (
                Method::PATCH,
                "/apis/netinfra.darkbrains.com/v1alpha1/netipallocations/web/status",
                "[]",
                "patch",
                "netipallocations/web/status",
                true,
            ),
            (
                Method::POST,
                "/api/v1/namespaces/web/pods/web-0/eviction",
                "{}",
                "create",
                "web:pods/web-0/eviction",
                true,
            ),
            (
                Method::POST,
                "/api/v1/namespaces/x/secrets",
                r#"{"metadata":{"name":"ca"}}"#,
                "create",
                "x:secrets/ca",
                true,
            ),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "{}",
                "create",
                "selfsubjectaccessreviews",
                false,
            ),
            (Method::DELETE, "/api/v1/namespaces/web/pods/web-0", "", "delete", "web:pods/web-0", true),
            (Method::GET, "/version", "", "list", "/version", false),
        ];
        for (method, url, body, verb, object, mutating) in cases {
            let wanted = (verb.to_owned(), object.to_owned(), Group::Work, mutating);
            assert_eq!(named(Side::Api, &method, url, body), wanted, "{url}");
        }
    }

    #[test]
    fn leases_and_events_are_apart() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/x/leases/controller";
        assert_eq!(named(Side::Api, &Method::PUT, lease, "{}").2, Group::Lease);
        let event = "/apis/events.k8s.io/v1/namespaces/x/events";
        let named = named(Side::Api, &Method::POST, event, r#"{"metadata":{"name":"made-up"}}"#);
        assert_eq!((named.1.as_str(), named.2), ("events", Group::Event));
    }

    #[test]
    fn calls_to_clouds_are_named_as_the_clouds_name_them() {
        let gcp = "/as/first/compute/v1/projects/p/zones/us-central1-a/instances/node-1/addAccessConfig";
        let name = name(
            Side::Gcp,
            "nobody",
            Request { method: &Method::POST, path: gcp, query: "networkInterface=nic0", body: b"{}" },
        );
        assert_eq!((name.caller.as_str(), name.verb.as_str()), ("first", "addAccessConfig"));
        assert_eq!((name.object.as_str(), name.mutating), ("us-central1-a/instances/node-1", true));
        let wait = "/compute/v1/projects/p/zones/z/operations/operation-17/wait";
        assert_eq!(
            named(Side::Gcp, &Method::POST, wait, ""),
            ("wait".into(), String::new(), Group::Work, false)
        );
        let body = "Action=AssociateAddress&AllocationId=eipalloc-1&NetworkInterfaceId=eni-2";
        let wanted = ("AssociateAddress".into(), "eipalloc-1".into(), Group::Work, true);
        assert_eq!(named(Side::Aws, &Method::POST, "/", body), wanted);
        assert!(!named(Side::Aws, &Method::POST, "/", "Action=DescribeAddresses").3);
        let nic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n-nic";
        let wanted = ("put".into(), "networkInterfaces/n-nic".into(), Group::Work, true);
        assert_eq!(named(Side::Azure, &Method::PUT, nic, "{}"), wanted);
    }
}
