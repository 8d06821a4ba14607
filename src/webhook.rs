//! The `webhook` process: watches, certificates and the server, put together.

use crate::process::{Common, Misconfigured, excluded_namespaces};
use anyhow::{Context as _, Result, ensure};
use certs::{Kind, Lifetimes, Manager, Resolver, Source, Target};
use clap::Args;
use http::Uri;
use kube::Client;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use telemetry::Telemetry;
use telemetry::certs::CertMetrics;
use telemetry::server::ServerMetrics;
use telemetry::webhook::Metrics;
use tokio::task::JoinHandle;
use webhook::decide::Question;
use webhook::registration::{self, CONFIGURATION, SERVICE};
use webhook::server::{self, Check, Health, Limits, Shutdown};
use webhook::state::State;

/// The pause after a registration that failed.
const REGISTER_AGAIN: Duration = Duration::from_secs(5);

/// Settings of the webhook.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Address of the webhook itself
    #[arg(long = "webhook-addr", env = "WEBHOOK_ADDR", default_value = "[::]:9443")]
    addr: SocketAddr,
    /// For a webhook outside the cluster: where the API server reaches it, e.g. `https://127.0.0.1:9443`.
    /// The process then makes both webhook configurations itself
    #[arg(long = "webhook-url", env = "WEBHOOK_URL")]
    url: Option<String>,
    /// Delete the webhook configurations when the process ends
    #[arg(long = "webhook-unregister", env = "WEBHOOK_UNREGISTER", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    unregister: bool,
    /// Further names or addresses that the certificate is for
    #[arg(long = "webhook-names", env = "WEBHOOK_NAMES", value_delimiter = ',')]
    names: Vec<String>,
    /// Secret with the certificates, which replicas share
    #[arg(
        long = "webhook-secret",
        env = "WEBHOOK_SECRET",
        default_value = "ip-address-controller-webhook-tls"
    )]
    secret: String,
    /// Folder with tls.crt and tls.key that somebody else keeps (cert-manager), instead of the Secret
    #[arg(long = "webhook-cert-dir", env = "WEBHOOK_CERT_DIR")]
    cert_dir: Option<PathBuf>,
    /// With such a folder: publish the CAs of its ca.crt in the webhook configurations, too. Without this,
    /// somebody else does (cert-manager's CA injector)
    #[arg(long = "webhook-inject-ca", env = "WEBHOOK_INJECT_CA", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    inject_ca: bool,
    /// How long our own CA is good, in hours
    #[arg(long = "webhook-ca-hours", env = "WEBHOOK_CA_HOURS", default_value_t = 8760)]
    ca_hours: u64,
    /// How long a certificate of our own CA is good, in hours
    #[arg(long = "webhook-leaf-hours", env = "WEBHOOK_LEAF_HOURS", default_value_t = 720)]
    leaf_hours: u64,
    /// How long a process that ends goes on answering, so that the API server can move on, in seconds
    #[arg(long = "webhook-drain-seconds", env = "WEBHOOK_DRAIN_SECONDS", default_value_t = 10)]
    drain_seconds: u64,
}

impl Settings {
    fn lifetimes(&self) -> Result<Lifetimes> {
        let hours = |hours: u64| Duration::from_secs(hours.saturating_mul(3600));
        let lifetimes = Lifetimes {
            authority: hours(self.ca_hours),
            leaf: hours(self.leaf_hours),
            ..Lifetimes::default()
        };
        match lifetimes.fault() {
            None => Ok(lifetimes),
            Some(fault) => {
                Err(Misconfigured::new(format!("WEBHOOK_CA_HOURS, WEBHOOK_LEAF_HOURS: {fault}")).into())
            }
        }
    }

    /// Everything that the certificate is for: the Service, the URL's host, and what was asked for.
    fn names(&self, namespace: &str) -> Result<Vec<String>> {
        let mut names = vec![
            format!("{SERVICE}.{namespace}.svc"),
            format!("{SERVICE}.{namespace}.svc.cluster.local"),
            format!("{SERVICE}.{namespace}"),
            SERVICE.to_owned(),
        ];
        if let Some(url) = self.url() {
            let parsed: Uri = url.parse().with_context(|| format!("WEBHOOK_URL {url:?}"))?;
            ensure!(parsed.scheme_str() == Some("https"), "WEBHOOK_URL {url:?} must begin with https://");
            let path = parsed.path().trim_matches('/');
            ensure!(path.is_empty() && parsed.query().is_none(), "WEBHOOK_URL {url:?} must have no path");
            let host = parsed.host().with_context(|| format!("WEBHOOK_URL {url:?} has no host"))?;
            names.push(host.trim_matches(['[', ']']).to_owned());
        }
        names.extend(self.names.iter().filter(|name| !name.is_empty()).cloned());
        Ok(names)
    }

    fn url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }
}

/// Runs the webhook until `shutdown`, and through the drain.
pub async fn run(common: Common, settings: Settings, shutdown: Shutdown) -> Result<()> {
    let (client, telemetry) = (common.client().await?, common.telemetry()?);
    let health = Health::new(&shutdown);
    common.serve_plain_ports(&health, &telemetry).await?;
    Box::pin(serve(&common.namespace(), &settings, client, &telemetry, &health, shutdown)).await
}

/// The webhook without what it shares with others in the same process.
pub async fn serve(
    namespace: &str,
    settings: &Settings,
    client: Client,
    telemetry: &Telemetry,
    health: &Health,
    shutdown: Shutdown,
) -> Result<()> {
    let excluded = excluded_namespaces(namespace);
    let state = Arc::new(State::new(excluded, Metrics::new(telemetry)?));
    let index = health.check("index");
    let listener = server::listen("webhook", settings.addr).await?;
    let (certificates, keeping) = certificates(&client, namespace, settings, telemetry, health)?;
    let limits = limits(settings);
    let metrics = ServerMetrics::register(telemetry)?;
    let served =
        server::serve(listener, webhook::router(&state), certificates, limits, metrics, shutdown.clone());
    tokio::select! {
        drained = served => {
            let cut_off = drained?.cut_off;
            tracing::info!(cut_off, "drained");
        }
        never = keep_up(client, settings, &state, &index, &shutdown) => match never {},
        failed = supervise(keeping) => match failed? {},
    }
    Ok(())
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        drain_grace: Duration::from_secs(settings.drain_seconds),
        body_bytes_of: Question::ALL.map(|question| (question.path(), question.body_bytes())).into(),
        ..Limits::default()
    }
}

/// Without the task that renews certificates, the webhook would serve until they expire, and then nobody
/// could say why. So its end is the end of the process.
async fn supervise(task: JoinHandle<Infallible>) -> Result<Infallible> {
    task.await.context("the task that keeps the certificates ended")
}

/// Certificates: our own in a Secret that replicas share, or files that somebody else keeps.
fn certificates(
    client: &Client,
    namespace: &str,
    settings: &Settings,
    telemetry: &Telemetry,
    health: &Health,
) -> Result<(Arc<Resolver>, JoinHandle<Infallible>)> {
    let source = match &settings.cert_dir {
        None => Source::Own { namespace: namespace.to_owned(), secret: settings.secret.clone() },
        Some(folder) => Source::Files(certs::Files::in_folder(folder)),
    };
    // Who keeps the files (cert-manager) usually tells the API server whom to trust, too.
    let ours = settings.cert_dir.is_none() || settings.inject_ca;
    let kinds = [Kind::Mutating, Kind::Validating].into_iter().filter(|_| ours);
    let targets = kinds.map(|kind| Target { kind, name: CONFIGURATION.to_owned() }).collect();
    let resolver = Arc::new(Resolver::default());
    let check = health.check("certificates");
    let manager = Manager {
        client: client.clone(),
        source,
        targets,
        settings: certs::Settings { names: settings.names(namespace)?, lifetimes: settings.lifetimes()? },
        resolver: resolver.clone(),
        metrics: CertMetrics::register(telemetry)?,
        readiness: Arc::new(move |state| match state {
            Ok(()) => check.ready(),
            Err(why) => check.not_ready(why),
        }),
    };
    Ok((resolver, tokio::spawn(certs::manage(manager))))
}

/// Everything beside the server that goes on as long as it does.
async fn keep_up(
    client: Client,
    settings: &Settings,
    state: &Arc<State>,
    index: &Check,
    shutdown: &Shutdown,
) -> Infallible {
    let watches = webhook::watch::run(client.clone(), state.clone());
    let selector = registration::keep_narrow(client.clone(), state);
    let registered = async {
        report(state, index).await;
        if let Some(url) = settings.url() {
            register(&client, url).await;
        }
        shutdown.draining().await;
        if settings.unregister
            && let Err(error) = registration::unregister(&client).await
        {
            tracing::error!(%error, "cannot delete the webhook configurations");
        }
        // The drain is the server's to end.
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        never = watches => never,
        never = selector => never,
        never = registered => never,
    }
}

/// Registers the webhook. What stands in the way may be over in a moment, and is no reason to end what else the
/// process does.
async fn register(client: &Client, url: &str) {
    while let Err(error) = registration::register(client, url).await {
        tracing::error!(%error, "cannot register the webhook");
        tokio::time::sleep(REGISTER_AGAIN).await;
    }
}

/// Tells readiness what is not there yet, until everything is.
async fn report(state: &State, index: &Check) {
    let mut changes = state.changes();
    while !state.is_complete() {
        index.not_ready(format!("waiting for {}", state.missing().join(", ")));
        // Fails when nobody is left to change anything, which cannot be while we hold the state.
        let _ = changes.changed().await;
    }
    tracing::info!("the index is complete");
    index.ready();
}
