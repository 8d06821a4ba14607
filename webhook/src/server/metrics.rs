//! The metrics port.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use telemetry::Telemetry;

/// The text format that Prometheus reads.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/metrics`.
pub fn metrics_router(telemetry: Telemetry) -> Router {
    let metrics = async move || match telemetry.text() {
        Ok(text) => Ok(([(CONTENT_TYPE, TEXT)], text)),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
    };
    Router::new().route("/metrics", get(metrics))
}
