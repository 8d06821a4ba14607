//! An API server that fails and hangs when it is told to. It knows webhook configurations, allocations and
//! ReplicaSets, as far as the webhook asks for them.

use axum::body::{Body, Bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

/// What a call gets in place of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// 500.
    Error,
    /// 403.
    Forbidden,
    /// Nothing.
    Hang,
}

/// The server.
#[derive(Default)]
pub struct Server {
    /// What the next calls that change or read the configuration get.
    pub faults: Mutex<Vec<Fault>>,
    /// What lists of ReplicaSets get, by namespace.
    pub namespaces: Mutex<Vec<(&'static str, Fault)>>,
    pub allocations: Mutex<Vec<Value>>,
    /// Every call: method and path.
    pub calls: Mutex<Vec<String>>,
    selector: Mutex<Value>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics")
}

impl Server {
    pub fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// The namespaces that the selector has.
    pub fn selected(&self) -> BTreeSet<String> {
        let selector = lock(&self.selector);
        let values = selector.pointer("/matchExpressions/0/values").and_then(Value::as_array);
        values.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
        lock(&self.calls).push(format!("{} {path}", parts.method));
        if query.contains("watch=true") {
            return silence();
        }
        let single = path.ends_with("/ip-address-controller");
        let fault = if single { lock(&self.faults).pop() } else { self.fault_of(&path) };
        match fault {
            Some(Fault::Hang) => return std::future::pending().await,
            Some(Fault::Error) => return status(StatusCode::INTERNAL_SERVER_ERROR),
            Some(Fault::Forbidden) => return status(StatusCode::FORBIDDEN),
            None => {}
        }
        if single && parts.method == Method::PATCH {
            let bytes = body.collect().await.expect("a body").to_bytes();
            let applied: Value = serde_json::from_slice(&bytes).expect("JSON");
            *lock(&self.selector) = applied["webhooks"][0]["namespaceSelector"].clone();
        }
        let answer = match path.rsplit('/').next() {
            _ if single => self.configuration(),
            Some("mutatingwebhookconfigurations") => list(&[self.configuration()]),
            Some("netipallocations") => list(&lock(&self.allocations)),
            _ => list(&[]),
        };
        json_response(StatusCode::OK, &answer)
    }

    fn fault_of(&self, path: &str) -> Option<Fault> {
        let namespaces = lock(&self.namespaces);
        let of = |name: &str| path.ends_with(&format!("/namespaces/{name}/replicasets"));
        namespaces.iter().find(|(name, _)| of(name)).map(|(_, fault)| *fault)
    }

    fn configuration(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": "ip-address-controller", "uid": "u-1", "resourceVersion": "1" },
            "webhooks": [{ "name": "pods.netinfra.darkbrains.com", "admissionReviewVersions": ["v1"],
                           "clientConfig": {}, "sideEffects": "None",
                           "namespaceSelector": lock(&self.selector).clone() }],
        })
    }
}

fn list(items: &[Value]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": items })
}

fn status(code: StatusCode) -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
                         "reason": "Test", "message": "on purpose" });
    json_response(code, &status)
}

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    let builder = Response::builder().status(code).header("Content-Type", "application/json");
    builder.body(Body::from(value.to_string())).expect("a response")
}

/// A watch on which nothing happens.
fn silence() -> Response<Body> {
    Response::new(Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>()))
}
