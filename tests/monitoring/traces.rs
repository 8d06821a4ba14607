//! Traces arrive at a receiver, and the log tells of a move in one line.

use crate::processes;
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use cloud::Cloud;
use cluster::eventually;
use http::HeaderMap;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// An OTLP receiver that keeps what it gets.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Value>>>);

impl Receiver {
    /// Listens; where?
    async fn start(&self) -> Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let kept = self.0.clone();
        let router = Router::new().route(
            "/v1/traces",
            post(async move |headers: HeaderMap, body: Bytes| {
                let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
                let body = serde_json::from_slice(&body).ok();
                match body.filter(|_| is("content-type", "application/json") && is("x-token", "secret")) {
                    None => http::StatusCode::BAD_REQUEST,
                    Some(body) => {
                        kept.lock().unwrap_or_else(PoisonError::into_inner).push(body);
                        http::StatusCode::OK
                    }
                }
            }),
        );
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }

    /// Spans of that name, each with its attributes by name, and its resource's.
    fn spans(&self, name: &str) -> Vec<Value> {
        let requests = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = Vec::new();
        for resource in requests.iter().flat_map(|request| list(&request["resourceSpans"])) {
            for span in list(&resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
                if span["name"] == name {
                    let mut span = span.clone();
                    span["attributes"] = by_name(&span["attributes"]);
                    span["resource"] = by_name(&resource["resource"]["attributes"]);
                    all.push(span);
                }
            }
        }
        all
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn by_name(attributes: &Value) -> Value {
    let pairs = list(attributes);
    let pairs = pairs.iter().map(|pair| {
        (pair["key"].as_str().unwrap_or_default().to_owned(), pair["value"]["stringValue"].clone())
    });
    Value::Object(pairs.collect())
}

/// A move that was made to happen.
struct Moved {
    address: String,
    from: String,
    to: String,
}

pub async fn moves_and_admission_requests_are_traced_and_told() -> Result<()> {
    let stage = Stage::with(Some(Cloud::Gcp)).await?;
    let receiver = Receiver::default();
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.start().await?),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret".to_owned()),
    ];
    let (_webhook, _) = processes::webhook(&stage, &env).await?;
    let controller = processes::controller(&stage, "first", &env)?;
    let scene = stage.scene("traced", 2, 1).await?;
    scene.allocate(json!({})).await?;
    let from = scene.settled().await?[0];
    scene.cordon(from).await?;
    scene.arrives(0, 3 - from).await?;
    let (from, to) = (scene.node_name(from), scene.node_name(3 - from));
    let moved = Moved { address: scene.addresses[0].to_string(), from, to };
    let root = move_span(&receiver, &moved).await?;
    for (step, node) in [("detach", &moved.from), ("attach", &moved.to)] {
        step_span(&receiver, &root, step, node)?;
    }
    admission_spans(&receiver)?;
    controller.process.stop().await?;
    let log = std::fs::read_to_string(stage.cluster.folder().join("first.log"))?;
    one_line_tells_it(&log, &moved, &root)
}

/// The span of the whole move.
async fn move_span(receiver: &Receiver, moved: &Moved) -> Result<Value> {
    let Moved { address, from, to } = moved;
    let span = eventually("the span of the move", async || {
        let spans = receiver.spans("move");
        let span = spans.into_iter().find(|span| span["attributes"]["netip.from"] == from.as_str());
        span.context("none yet")
    })
    .await?;
    let expected = json!({
        "netip.allocation": "traced", "netip.address": address, "netip.from": from, "netip.to": to,
        "netip.cause": "NodeDrained",
    });
    ensure!(span["attributes"] == expected, "{span}");
    let resource = &span["resource"];
    ensure!(resource["service.name"] == "ip-address-controller", "{resource}");
    ensure!(resource["k8s.cluster.name"] == "test" && resource["k8s.pod.name"] == "first", "{resource}");
    Ok(span)
}

/// A step is below the move, on its node, and within its time.
fn step_span(receiver: &Receiver, root: &Value, step: &str, node: &str) -> Result<()> {
    let spans = receiver.spans(step);
    let span = spans.iter().find(|span| span["traceId"] == root["traceId"]);
    let span = span.with_context(|| format!("no {step} in {spans:?}"))?;
    ensure!(span["parentSpanId"] == root["spanId"], "{span}");
    ensure!(span["attributes"]["netip.node"] == node, "{span}");
    let time = |span: &Value, key: &str| span[key].as_str().and_then(|text| text.parse::<u64>().ok());
    let times = [
        time(root, "startTimeUnixNano"),
        time(span, "startTimeUnixNano"),
        time(span, "endTimeUnixNano"),
        time(root, "endTimeUnixNano"),
    ];
    ensure!(times.is_sorted() && times[0].is_some(), "{times:?}");
    Ok(())
}

fn one_line_tells_it(log: &str, moved: &Moved, root: &Value) -> Result<()> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told: Vec<Value> =
        lines.filter(|line| line["message"] == "moved" && line["from"] == moved.from.as_str()).collect();
    ensure!(told.len() == 1, "one line tells of the move: {told:?} in\n{log}");
    let line = &told[0];
    for (key, value) in
        [("address", moved.address.as_str()), ("to", moved.to.as_str()), ("cause", "NodeDrained")]
    {
        ensure!(line[key] == value, "{line}");
    }
    ensure!(line["operation"] == root["traceId"], "the log leads to the trace: {line}");
    let steps = line["steps"].as_str().unwrap_or_default();
    ensure!(steps.starts_with("detach ") && steps.contains(", attach "), "{line}");
    Ok(())
}

fn admission_spans(receiver: &Receiver) -> Result<()> {
    let spans = receiver.spans("admission");
    for (webhook, outcome) in [("mutate-allocations", "refused"), ("validate-allocations", "allowed")] {
        let span = spans.iter().find(|span| {
            let attributes = &span["attributes"];
            attributes["netip.webhook"] == webhook && attributes["netip.outcome"] == outcome
        });
        let span = span.with_context(|| format!("{webhook} {outcome} is not among {spans:?}"))?;
        ensure!(span["kind"] == 2, "{span}");
        let id = span["attributes"]["netip.review"].as_str().unwrap_or_default();
        ensure!(id.len() == 36, "the review is named: {span}");
    }
    Ok(())
}
