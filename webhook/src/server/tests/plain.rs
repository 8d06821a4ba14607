//! The health and metrics ports.

use super::*;
use telemetry::Telemetry;
use telemetry::server::ServerMetrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn health_answers_to_the_very_end_and_readiness_drops_with_the_drain() {
    let shutdown = Shutdown::default();
    let health = Health::new(&shutdown);
    let check = health.check("certificates");
    let listener = listen("health", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve_plain(listener, health.router(), Limits::default()));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    let answer = get(address, "/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("[-] certificates: has not started"),
        "{answer}"
    );
    check.ready();
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200 "));
    shutdown.drain();
    let answer = get(address, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("[-] shutdown: draining"), "{answer}");
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    serving.abort();
}

#[tokio::test]
async fn metrics_are_served_in_prometheus_text() {
    let telemetry = Telemetry::new(Some("test")).unwrap();
    ServerMetrics::register(&telemetry).unwrap().handshakes.with_label_values(&["ok"]).inc();
    let listener = listen("metrics", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve_plain(listener, metrics_router(telemetry), Limits::default()));
    let answer = get(address, "/metrics").await;
    assert!(
        answer.contains("netipallocation_webhook_tls_handshakes_total{outcome=\"ok\",cluster=\"test\"} 1"),
        "{answer}"
    );
    serving.abort();
}
