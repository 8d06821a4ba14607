//! The endpoints, without a socket: what HTTP makes of a review.

use crate::envelope::{allocation_review, review};
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use telemetry::Telemetry;
use telemetry::webhook::Metrics;
use tower::ServiceExt as _;
use webhook::state::{Following, State};

fn empty() -> (Arc<State>, Telemetry) {
    let telemetry = Telemetry::new(None).expect("metrics");
    let metrics = Metrics::new(&telemetry).expect("metrics");
    (Arc::new(State::new(BTreeSet::new(), metrics)), telemetry)
}

fn complete() -> Arc<State> {
    let (state, _) = empty();
    state.allocations_listed();
    state
}

fn request(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(Method::POST).uri(format!("{path}?timeout=5s"));
    request.header("Content-Type", "application/json").body(body.into()).expect("a request")
}

async fn send(state: &Arc<State>, request: Request<Body>) -> Response<Body> {
    webhook::router(state).oneshot(request).await.expect("infallible")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

async fn ask(state: &Arc<State>, path: &str, review: &Value) -> Value {
    let response = send(state, request(path, review.to_string())).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
    let mut answer: Value = serde_json::from_str(&text(response).await).expect("JSON");
    answer["response"].take()
}

fn spec(address: &str, workload: &str) -> Value {
    json!({ "reservedIPs": [address], "cloud": { "provider": "gcp" },
            "workloadRef": { "kind": "Deployment", "name": workload, "namespace": "prod" } })
}

fn named(name: &str, address: &str) -> Value {
    let mut review = allocation_review(&spec(address, "web"));
    review["request"]["object"]["metadata"]["name"] = json!(name);
    review
}

fn pod_of_replica_set() -> Value {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs", "controller": true });
    let metadata = json!({ "labels": { "pod-template-hash": "abc" }, "ownerReferences": [owner] });
    review("", "pods", "CREATE", &json!({ "metadata": metadata, "spec": {} }))
}

#[tokio::test]
async fn what_is_no_review_gets_a_4xx() {
    let state = complete();
    let review = allocation_review(&spec("203.0.113.1", "web")).to_string();
    for path in ["/mutate-allocations", "/validate-allocations", "/mutate-pods"] {
        let status = async |request| send(&state, request).await.status();
        assert_eq!(status(request(path, "")).await, StatusCode::BAD_REQUEST);
        assert_eq!(status(request(path, "{")).await, StatusCode::BAD_REQUEST);
        let mut get = request(path, "");
        *get.method_mut() = Method::GET;
        assert_eq!(status(get).await, StatusCode::METHOD_NOT_ALLOWED);
        let mut wrong = request(path, review.clone());
        wrong.headers_mut().insert("Content-Type", "text/plain".parse().expect("a value"));
        assert_eq!(status(wrong).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let mut bare = request(path, review.clone());
        bare.headers_mut().remove("Content-Type");
        assert_eq!(status(bare).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    assert_eq!(send(&state, request("/convert", review)).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn before_the_indexes_are_complete_the_api_server_is_asked_to_come_again() {
    let (state, telemetry) = empty();
    let early = async |path: &str| {
        let review = allocation_review(&spec("203.0.113.1", "web")).to_string();
        let response = send(&state, request(path, review)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
        text(response).await
    };
    assert!(early("/validate-allocations").await.contains("waiting for allocations"));
    state.update(|index| index.apply_allocation("voice", &spec("203.0.113.9", "web"), false));
    state.follows("prod", Following::Begun);
    state.allocations_listed();
    assert!(early("/mutate-pods").await.contains("waiting for replicasets in prod"));
    assert_eq!(ask(&state, "/mutate-allocations", &named("x", "203.0.113.1")).await["allowed"], true);
    state.follows("prod", Following::Listed);
    assert!(state.is_complete());
    assert_eq!(ask(&state, "/validate-allocations", &named("x", "203.0.113.1")).await["allowed"], true);
    // A namespace that comes later does not make it incomplete again.
    state.update(|index| index.apply_allocation("more", &spec("203.0.113.8", "web"), false));
    state.allocations_listed();
    assert!(state.is_complete());

    let metrics = String::from_utf8(telemetry.text().expect("metrics")).expect("text");
    for line in [
        r#"netipallocation_webhook_requests_total{operation="other",outcome="not_synced",webhook="validate-allocations"} 1"#,
        r#"netipallocation_webhook_requests_total{operation="other",outcome="not_synced",webhook="mutate-pods"} 1"#,
        r#"netipallocation_webhook_namespace_synced{namespace="prod"} 1"#,
        r#"netipallocation_webhook_requests_total{operation="create",outcome="allowed",webhook="validate-allocations"} 1"#,
        r#"netipallocation_webhook_request_duration_seconds_count{webhook="validate-allocations"} 2"#,
        r#"netipallocation_webhook_in_flight_requests{webhook="validate-allocations"} 0"#,
        r#"netipallocation_webhook_index_entries{index="allocations"} 2"#,
        r#"netipallocation_webhook_index_entries{index="addresses"} 2"#,
        r#"netipallocation_webhook_index_synced{index="replicasets"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
}

#[tokio::test]
async fn an_address_is_held_from_the_moment_it_is_let_through() {
    let state = complete();
    let validate = async |review: &Value| ask(&state, "/validate-allocations", review).await;
    let mut dry = named("dry", "203.0.113.1");
    dry["request"]["dryRun"] = json!(true);
    assert_eq!(validate(&dry).await["allowed"], true);
    assert_eq!(validate(&named("a", "203.0.113.1")).await["allowed"], true, "a dry run holds nothing");
    assert_eq!(validate(&named("a", "203.0.113.1")).await["allowed"], true, "the same once more");
    let refused = validate(&named("b", "203.0.113.1")).await;
    assert_eq!(refused["allowed"], false);
    let message = refused["status"]["message"].as_str().expect("text");
    assert!(message.contains("203.0.113.1") && message.contains("\"a\""), "{message}");
}

#[tokio::test]
async fn of_many_at_once_one_gets_the_address() {
    let state = complete();
    let names: Vec<String> = (0..32).map(|number| format!("n{number}")).collect();
    let asked = names.iter().map(|name| {
        let (state, review) = (state.clone(), named(name, "203.0.113.1"));
        tokio::spawn(async move { ask(&state, "/validate-allocations", &review).await["allowed"] == true })
    });
    let mut allowed = 0;
    for answer in asked.collect::<Vec<_>>() {
        allowed += u32::from(answer.await.expect("answered"));
    }
    assert_eq!(allowed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_watch_to_show_its_replica_set() {
    let state = complete();
    state.update(|index| index.apply_allocation("voice", &spec("203.0.113.1", "web-canary"), false));
    let asked = {
        let state = state.clone();
        tokio::spawn(async move { ask(&state, "/mutate-pods", &pod_of_replica_set()).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!asked.is_finished(), "by its name it would be nobody's");
    state.update(|index| index.apply_replica_set("prod", "rs", Some("web-canary")));
    assert!(asked.await.expect("answered")["patch"].is_string());
}

#[tokio::test(start_paused = true)]
async fn when_it_is_not_shown_the_name_decides() {
    let state = complete();
    let start = tokio::time::Instant::now();
    let patched = async || ask(&state, "/mutate-pods", &pod_of_replica_set()).await["patch"].is_string();
    assert!(!patched().await, "nobody refers to a Deployment here");
    assert_eq!(start.elapsed().as_millis(), 0, "so there is nothing to wait for");
    state.update(|index| index.apply_allocation("voice", &spec("203.0.113.1", "web"), false));
    assert!(patched().await);
    state.update(|index| index.apply_allocation("voice", &spec("203.0.113.1", "we"), false));
    assert!(!patched().await, "a look-alike");
}

/// One namespace that cannot be listed gates nothing: not allocations, not readiness for ever, not pods
/// elsewhere. Its own pods are known by name, at once.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_listed_gates_nothing() {
    let (state, telemetry) = empty();
    state.update(|index| {
        index.apply_allocation("voice", &spec("203.0.113.1", "web"), false);
        let mut other = spec("203.0.113.2", "web");
        other["workloadRef"]["namespace"] = json!("fine");
        index.apply_allocation("more", &other, false);
    });
    for namespace in ["prod", "fine"] {
        state.follows(namespace, Following::Begun);
    }
    state.allocations_listed();
    state.follows("fine", Following::Listed);
    assert!(state.follows("prod", Following::Failing));
    assert!(!state.is_complete() && state.missing() == ["replicasets in prod"], "a short while at the start");
    assert_eq!(state.go_on(), ["prod"]);
    assert!(state.is_complete() && state.missing().is_empty());
    let start = tokio::time::Instant::now();
    assert!(ask(&state, "/mutate-pods", &pod_of_replica_set()).await["patch"].is_string(), "by its name");
    assert_eq!(start.elapsed().as_millis(), 0, "there is nothing to wait for");
    let metrics = String::from_utf8(telemetry.text().expect("metrics")).expect("text");
    for line in [
        r#"netipallocation_webhook_namespace_synced{namespace="fine"} 1"#,
        r#"netipallocation_webhook_namespace_synced{namespace="prod"} 0"#,
        r#"netipallocation_webhook_index_synced{index="replicasets"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
    state.forget_namespace("prod");
    assert!(!state.follows("prod", Following::Failing), "the last word of a watch that was stopped");
    let metrics = String::from_utf8(telemetry.text().expect("metrics")).expect("text");
    assert!(!metrics.contains(r#"namespace_synced{namespace="prod"}"#), "{metrics}");
    assert!(metrics.contains(r#"netipallocation_webhook_index_synced{index="replicasets"} 1"#), "{metrics}");
}
