//! Sends spans to an OTLP receiver (OpenTelemetry collector, Jaeger, Tempo…) over HTTP, in JSON, when
//! `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Nothing else of the process depends on whether that works.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use std::time::Duration;
use telemetry::traces::{self, Span};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often spans are sent.
const INTERVAL: Duration = Duration::from_secs(1);
/// At most so many at once.
const BATCH: usize = 512;
/// How long the receiver may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of the process waits for it.
const LAST: Duration = Duration::from_secs(2);

/// The running exporter.
pub struct Exporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Sends what is left.
    pub async fn finish(self) {
        self.stop.cancel();
        if tokio::time::timeout(LAST, self.task).await.is_err() {
            warn!("the last spans were not taken in time");
        }
    }
}

/// Begins to export if the environment says where to.
pub fn export(cluster: Option<&str>) -> Result<Option<Exporter>, String> {
    let Some(sender) = Sender::from_env(&|name| std::env::var(name).ok(), cluster)? else { return Ok(None) };
    let Some(spans) = traces::take() else { return Ok(None) };
    info!(url = %sender.url, "traces are exported");
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(sender, spans, stop.clone()));
    Ok(Some(Exporter { stop, task }))
}

async fn run(sender: Sender, mut spans: mpsc::Receiver<Span>, stop: CancellationToken) {
    let mut failing = false;
    loop {
        let last = tokio::select! {
            () = tokio::time::sleep(INTERVAL) => false,
            () = stop.cancelled() => true,
        };
        let mut batch = Vec::new();
        while let Ok(span) = spans.try_recv() {
            batch.push(span);
            if batch.len() == BATCH {
                sender.send(&std::mem::take(&mut batch), &mut failing).await;
            }
        }
        if !batch.is_empty() {
            sender.send(&batch, &mut failing).await;
        }
        let dropped = traces::dropped();
        if dropped > 0 {
            warn!(dropped, "spans came faster than they could be sent");
        }
        if last {
            return;
        }
    }
}

/// Where spans go, and with what.
struct Sender {
    client: Client,
    url: Url,
    resource: Vec<(String, String)>,
}

impl Sender {
    /// By the variables that OpenTelemetry's own libraries go by.
    fn from_env(env: &dyn Fn(&str) -> Option<String>, cluster: Option<&str>) -> Result<Option<Self>, String> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let base = set("OTEL_EXPORTER_OTLP_ENDPOINT");
        let base = base.map(|url| format!("{}/v1/traces", url.trim_end_matches('/')));
        let Some(url) = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or(base) else { return Ok(None) };
        if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let parsed: Url = url.parse().map_err(|error| format!("the OTLP endpoint {url:?}: {error}"))?;
        let headers = headers(&set("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())?;
        let client = Client::builder().timeout(TIMEOUT).default_headers(headers).build();
        let client = client.map_err(|error| format!("no HTTP client for traces: {error}"))?;
        let name = set("OTEL_SERVICE_NAME").unwrap_or_else(|| "ip-address-controller".to_owned());
        let mut resource = vec![("service.name".to_owned(), name)];
        let version = ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let cluster = cluster.filter(|name| !name.is_empty());
        resource.push(version);
        resource.extend(cluster.map(|name| ("k8s.cluster.name".to_owned(), name.to_owned())));
        resource.extend(set("POD_NAME").map(|name| ("k8s.pod.name".to_owned(), name)));
        resource.extend(pairs(&set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()));
        Ok(Some(Self { client, url: parsed, resource }))
    }

    /// Sends a batch, or says once that it cannot be sent: traces are worth no retries.
    async fn send(&self, spans: &[Span], failing: &mut bool) {
        let body = traces::request(&self.resource, spans);
        let sent = self.client.post(self.url.clone()).json(&body).send().await;
        match sent.and_then(reqwest::Response::error_for_status) {
            Ok(_) => *failing = false,
            Err(error) => {
                if !std::mem::replace(failing, true) {
                    warn!("traces are not taken: {error}");
                }
            }
        }
    }
}

/// `key=value` by comma.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

fn headers(text: &str) -> Result<HeaderMap, String> {
    let fault = |key: &str| format!("OTEL_EXPORTER_OTLP_HEADERS: {key:?} cannot be a header");
    pairs(text)
        .into_iter()
        .map(|(key, value)| {
            let name = HeaderName::try_from(&key).map_err(|_| fault(&key))?;
            let mut value = HeaderValue::try_from(&value).map_err(|_| fault(&key))?;
            // Tokens are passed in these.
            value.set_sensitive(true);
            Ok((name, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(env: &[(&str, &str)]) -> Result<Option<Sender>, String> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Sender::from_env(&env, Some("test"))
    }

    #[test]
    fn the_environment_says_where_to_and_with_what() {
        assert!(sender(&[]).unwrap().is_none());
        assert!(sender(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().is_none());
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert!(sender(&[base, ("OTEL_SDK_DISABLED", "true")]).unwrap().is_none());
        assert_eq!(sender(&[base]).unwrap().unwrap().url.as_str(), "http://collector:4318/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://tempo/otlp");
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "team=net, stage=prod");
        let sender = sender(&[base, own, attributes]).unwrap().unwrap();
        assert_eq!(sender.url.as_str(), "http://tempo/otlp");
        let has = |key: &str, value: &str| sender.resource.contains(&(key.to_owned(), value.to_owned()));
        assert!(has("service.name", "ip-address-controller") && has("k8s.cluster.name", "test"));
        assert!(has("team", "net") && has("stage", "prod"));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let endpoint = sender(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")]).err().unwrap();
        assert!(endpoint.contains("collector"), "{endpoint}");
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let headers = sender(&[base, ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret")]).err().unwrap();
        assert!(headers.contains("a b") && !headers.contains("secret"), "{headers}");
    }
}
