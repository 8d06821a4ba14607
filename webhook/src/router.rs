//! The shell around the review functions: bytes in, bytes out, and what to say when it is too early.

use crate::decide::{Decision, Question, Unknown, decide};
use crate::review::{self, Malformed, Request, Verdict, brief};
use crate::state::State;
use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use plan::parse::Place;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::traces::{self, Context, Span};
use tracing::Instrument as _;

/// How long a pod waits for the watch to show its ReplicaSet.
const PATIENCE: Duration = Duration::from_millis(250);

impl Question {
    /// All endpoints.
    pub const ALL: [Self; 3] = [Self::MutateAllocation, Self::ValidateAllocation, Self::MutateWorkload];

    /// Where it is asked.
    pub fn path(self) -> &'static str {
        match self {
            Self::MutateAllocation => "/mutate-allocations",
            Self::ValidateAllocation => "/validate-allocations",
            Self::MutateWorkload => "/mutate-pods",
        }
    }

    /// The largest body. An allocation of 256 addresses with its status and managed fields has less than
    /// 300 KiB, and an update carries two of them; a Pod of 1 MiB can make a review of 6.3 MB.
    pub fn body_bytes(self) -> usize {
        match self {
            Self::MutateAllocation | Self::ValidateAllocation => 1 << 20,
            Self::MutateWorkload => 8 << 20,
        }
    }

    /// The same in metrics and logs.
    pub fn as_str(self) -> &'static str {
        self.path().trim_start_matches('/')
    }
}

/// What became of a request.
struct Outcome {
    name: &'static str,
    operation: &'static str,
    /// The review's, where somebody wants to know.
    uid: Option<String>,
    response: Response,
}

/// The endpoints.
pub fn router(state: &Arc<State>) -> Router {
    Question::ALL.into_iter().fold(Router::new(), |router, question| {
        let state = state.clone();
        for outcome in ["malformed", "not_synced"] {
            // There before the first one, so that it is a rise and not a birth, which `increase()` would miss.
            state.metrics().requests.with_label_values(&[question.as_str(), "other", outcome]);
        }
        router.route(
            question.path(),
            post(async move |headers: HeaderMap, body: Bytes| serve(&state, question, &headers, &body).await),
        )
    })
}

/// Answers, counts and times one request. The server around us has read its body, within limits, and
/// would catch a panic.
async fn serve(state: &State, question: Question, headers: &HeaderMap, body: &[u8]) -> Response {
    let start = Instant::now();
    let metrics = state.metrics();
    let in_flight = InFlight::new(metrics.in_flight.with_label_values(&[question.as_str()]));
    let began = traces::now();
    let outcome = answer(state, question, headers, body).await;
    drop(in_flight);
    traces::record(|| span(question, &outcome, headers, began));
    metrics.requests.with_label_values(&[question.as_str(), outcome.operation, outcome.name]).inc();
    metrics.duration.with_label_values(&[question.as_str()]).observe(start.elapsed().as_secs_f64());
    outcome.response
}

/// The span of a request; part of the API server's trace, where that has one.
fn span(question: Question, outcome: &Outcome, headers: &HeaderMap, start: u64) -> Span {
    let caller = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let bad = !outcome.response.status().is_success();
    Span {
        context: caller.and_then(Context::of_caller).unwrap_or_default(),
        id: traces::span_id(),
        name: "admission",
        is_server: true,
        start,
        end: traces::now(),
        attributes: vec![
            ("netip.webhook", question.as_str().to_owned()),
            ("netip.operation", outcome.operation.to_owned()),
            ("netip.outcome", outcome.name.to_owned()),
            ("netip.review", outcome.uid.clone().unwrap_or_default()),
        ],
        error: bad.then(|| outcome.name.to_owned()),
    }
}

/// Goes down again however the request ends, also when the client goes away.
struct InFlight(prometheus::IntGauge);

impl InFlight {
    fn new(gauge: prometheus::IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

async fn answer(state: &State, question: Question, headers: &HeaderMap, body: &[u8]) -> Outcome {
    if let Err(why) = check_headers(headers) {
        return failed("malformed", StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    let ready = match question {
        Question::MutateAllocation | Question::ValidateAllocation => state.knows_allocations(),
        Question::MutateWorkload => state.is_complete(),
    };
    if !ready {
        return not_synced(state);
    }
    match review::decode(body) {
        Ok(request) => {
            let span = tracing::info_span!("review", webhook = question.as_str(), uid = &*request.uid);
            reviewed(state, question, &request).instrument(span).await
        }
        Err(malformed) => refused_bytes(&malformed),
    }
}

fn check_headers(headers: &HeaderMap) -> Result<(), &'static str> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err("Content-Type must be application/json");
    }
    Ok(())
}

/// The API server tries again with the same uid, within the webhook's timeout, because of the header.
fn not_synced(state: &State) -> Outcome {
    let why = format!("not ready: waiting for {}", state.missing().join(", "));
    let mut outcome = failed("not_synced", StatusCode::SERVICE_UNAVAILABLE, why);
    outcome.response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    outcome
}

fn failed(name: &'static str, status: StatusCode, why: impl Into<String>) -> Outcome {
    Outcome { name, operation: "other", uid: None, response: (status, why.into()).into_response() }
}

fn refused_bytes(malformed: &Malformed) -> Outcome {
    // Anybody can send such bytes, and the words may quote them; there is a metric.
    tracing::debug!(%malformed, "refused bytes that are no review");
    failed("malformed", StatusCode::BAD_REQUEST, malformed.to_string())
}

async fn reviewed(state: &State, question: Question, request: &Request<'_>) -> Outcome {
    let verdict = match verdict(state, question, request).await {
        Ok(verdict) => verdict,
        Err(malformed) => return refused_bytes(&malformed),
    };
    let name = match &verdict.refusal {
        Some(refusal) => {
            let reason = refusal.reason.as_str();
            state.metrics().refusals.with_label_values(&[question.as_str(), reason]).inc();
            // Anybody can send a name that is none.
            let name = if Place::Name.fits(&refusal.name) { &refusal.name } else { "(not a name)" };
            tracing::info!(name, reason, faults = refusal.faults.len(), "refused");
            tracing::debug!(message = &*brief(&refusal.message()), "refused");
            "refused"
        }
        None if verdict.patch.0.is_empty() => "allowed",
        None => "patched",
    };
    tracing::debug!(outcome = name, "answered");
    let operation = if request.operation == "CREATE" { "create" } else { "update" };
    match review::encode(&request.uid, &verdict) {
        Ok(bytes) => Outcome {
            name,
            operation,
            uid: traces::is_on().then(|| request.uid.clone().into_owned()),
            response: ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        },
        Err(error) => failed("malformed", StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Decides, waits for a ReplicaSet if that is needed, and takes the addresses of what is allowed.
async fn verdict(state: &State, question: Question, request: &Request<'_>) -> Result<Verdict, Malformed> {
    let mut last = false;
    loop {
        let now = Instant::now();
        let decision = decide(question, request, &state.index(), now, last)?;
        match decision {
            Decision::Await(unknown) => {
                // Whether it came or not, this is the last look.
                let _ = tokio::time::timeout(PATIENCE, shown(state, &unknown)).await;
                last = true;
            }
            Decision::Answer(verdict, None) => return Ok(verdict),
            // Between the look and the claim another request may have taken one: look again.
            Decision::Answer(verdict, Some(claim)) => {
                if state.with_index(|index| index.claim(&claim, now)) {
                    return Ok(verdict);
                }
            }
        }
    }
}

async fn shown(state: &State, unknown: &Unknown) {
    let mut changes = state.changes();
    let known = |_: &u64| state.index().deployment_of(&unknown.namespace, &unknown.uid).is_some();
    // Fails when there is nobody left to tell of changes; then there is nothing to wait for.
    let _ = changes.wait_for(known).await;
}
