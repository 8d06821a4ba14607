//! One request: its body is read, its handler is called, and whatever goes wrong becomes one answer.

use super::body::{self, Fault, Held};
use super::places::{Phase, Place};
use super::{Limits, Shutdown};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::header::{CONNECTION, CONTENT_ENCODING, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use futures::FutureExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use telemetry::server::ServerMetrics;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

/// What all requests of a server share.
pub struct Answerer {
    router: Router,
    limits: Limits,
    memory: Arc<Semaphore>,
    working: Semaphore,
    metrics: Option<ServerMetrics>,
    shutdown: Shutdown,
}

/// Why the handler's answer is not what the client gets.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Body(Fault),
    Encoding,
    Overloaded,
    Timeout,
    Panic,
}

impl Refusal {
    fn describe(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Body(Fault::TooLarge) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is too large")
            }
            Self::Body(Fault::TooSlow) => {
                (StatusCode::REQUEST_TIMEOUT, "too_slow", "the body came too slowly")
            }
            Self::Body(Fault::Broken) => (StatusCode::BAD_REQUEST, "broken", "the body broke off"),
            Self::Encoding => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", "compressed bodies are not accepted")
            }
            Self::Body(Fault::Overloaded) | Self::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many requests at once")
            }
            Self::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout", "no answer in time"),
            Self::Panic => (StatusCode::INTERNAL_SERVER_ERROR, "panic", "this request made the handler fail"),
        }
    }

    /// Whether something of the request may still be on its way.
    fn leaves_body_unread(self) -> bool {
        matches!(self, Self::Body(_) | Self::Encoding)
    }
}

impl Answerer {
    pub fn new(router: Router, limits: Limits, metrics: Option<ServerMetrics>, shutdown: Shutdown) -> Self {
        // axum's own limit of 2 MB is below what valid pods make.
        let router = router.layer(DefaultBodyLimit::disable());
        let (memory, working) = (body::memory(&limits), Semaphore::new(limits.requests));
        Self { router, limits, memory, working, metrics, shutdown }
    }

    pub async fn answer(&self, place: Arc<Place>, request: Request<Incoming>) -> Response<Tracked> {
        place.enter(Phase::Body);
        let mut response = match self.try_answer(&place, request).await {
            Ok(response) => response,
            Err(refusal) => self.refuse(refusal),
        };
        if self.shutdown.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(|body| Tracked { body, place })
    }

    async fn try_answer(&self, place: &Place, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        if request.headers().get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
            return Err(Refusal::Encoding);
        }
        let (parts, body) = request.into_parts();
        let most = self.limits.body_bytes_of(parts.uri.path());
        let held = body::read(body, most, &self.limits, &self.memory).await.map_err(Refusal::Body)?;
        place.enter(Phase::Answer);
        let _working = self.working.try_acquire().map_err(|_| Refusal::Overloaded)?;
        let Held { bytes, .. } = &held;
        let request = Request::from_parts(parts, Body::from(Bytes::clone(bytes)));
        let handled = AssertUnwindSafe(self.router.clone().oneshot(request)).catch_unwind();
        match tokio::time::timeout(self.limits.answer, handled).await {
            Ok(Ok(Ok(response))) => Ok(response),
            Ok(Err(_panic)) => Err(Refusal::Panic),
            Err(_elapsed) => Err(Refusal::Timeout),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        let (status, reason, text) = refusal.describe();
        // What any caller can bring about must not fill the log; it is counted.
        match refusal {
            Refusal::Panic | Refusal::Timeout => tracing::error!(reason, "a handler failed"),
            _ => tracing::debug!(reason, status = status.as_u16(), "refused a request"),
        }
        if let Some(metrics) = &self.metrics {
            metrics.refused.with_label_values(&[reason]).inc();
        }
        let mut response = (status, format!("{text}\n")).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if refusal.leaves_body_unread() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// An answer's body; when hyper lets go of it, the connection is idle again.
pub struct Tracked {
    body: Body,
    place: Arc<Place>,
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.place.enter(Phase::Idle);
    }
}
