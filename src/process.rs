//! What every process of ours has: a cluster, a namespace, logs, and plain ports for health and metrics.

use crate::{controller, traces};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use std::collections::BTreeSet;
use std::future::Future;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use telemetry::Telemetry;
use tracing::{info, warn};
use webhook::server::{self, Health, Limits, Shutdown};

/// Where a pod finds the namespace of its service account.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Settings of every process.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Context of the kubeconfig; the current one, if not given. Inside a cluster no kubeconfig is needed
    #[arg(long)]
    context: Option<String>,
    /// Namespace of the Lease and the Secret [default: the service account's, else ip-address-controller]
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: Option<String>,
    /// Address of /healthz and /readyz; of `all` also /readyz/webhook and /readyz/controller
    #[arg(long, env = "HEALTH_ADDR", default_value = "[::]:8080")]
    health_addr: SocketAddr,
    /// Port of /metrics
    #[arg(long, env = "METRICS_PORT", default_value_t = 9999)]
    metrics_port: u16,
    /// Name of this cluster; adds the label `cluster` to every metric
    #[arg(long, env = "CLUSTER_NAME")]
    cluster_name: Option<String>,
    /// Form of the log on standard error; `RUST_LOG` says what is logged (info, if not set)
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

impl Common {
    /// A client for the cluster.
    pub async fn client(&self) -> Result<Client> {
        client(self.context.as_deref()).await
    }

    /// Clients for the controller: it obeys `429` and `Retry-After` itself, and knows better than any client what
    /// to try again and when.
    pub async fn controller_clients(&self) -> Result<controller::Clients> {
        let mut config = config(self.context.as_deref()).await?;
        config.default_retry = false;
        Ok(controller::Clients { work: Client::try_from(config.clone())?, lease: Client::try_from(config)? })
    }

    /// The namespace that we live in.
    pub fn namespace(&self) -> String {
        namespace(self.namespace.clone())
    }

    /// Where metrics are registered.
    pub fn telemetry(&self) -> Result<Telemetry> {
        Ok(Telemetry::new(self.cluster_name.as_deref().filter(|name| !name.is_empty()))?)
    }

    /// Serves health and metrics until the process ends.
    pub async fn serve_plain_ports(&self, health: &Health, telemetry: &Telemetry) -> Result<()> {
        let metrics_addr = SocketAddr::new(self.health_addr.ip(), self.metrics_port);
        let health_port = server::listen("health", self.health_addr).await?;
        let metrics_port = server::listen("metrics", metrics_addr).await?;
        tokio::spawn(server::serve_plain(health_port, health.router(), Limits::default()));
        let metrics = server::metrics_router(telemetry.clone());
        tokio::spawn(server::serve_plain(metrics_port, metrics, Limits::default()));
        Ok(())
    }
}

/// The namespace that we live in: the one given, else the service account's, else the usual.
pub fn namespace(given: Option<String>) -> String {
    let account = || std::fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
    let given = given.filter(|namespace| !namespace.is_empty());
    given.or_else(account).unwrap_or_else(|| webhook::registration::NAMESPACE.to_owned())
}

/// A client for the cluster.
pub async fn client(context: Option<&str>) -> Result<Client> {
    Ok(Client::try_from(config(context).await?)?)
}

/// The usual inference: KUBECONFIG or ~/.kube/config, else the service account.
async fn config(context: Option<&str>) -> Result<Config> {
    Ok(match context {
        None => Config::infer().await.context("no cluster to talk to")?,
        Some(context) => {
            let options = KubeConfigOptions { context: Some(context.to_owned()), ..Default::default() };
            Config::from_kubeconfig(&options).await.with_context(|| format!("context {context:?}"))?
        }
    })
}

/// Namespaces whose pods are never touched: the cluster's own, and ours.
pub fn excluded_namespaces(ours: &str) -> BTreeSet<String> {
    ["kube-system", "kube-node-lease", ours].map(str::to_owned).into()
}

/// Settings that cannot be: the process ends with 2, so that nobody restarts it in hope.
#[derive(Debug)]
pub struct Misconfigured(String);

impl Misconfigured {
    /// What is wrong, and what would be right.
    pub fn new(fault: impl std::fmt::Display) -> Self {
        Self(fault.to_string())
    }
}

impl std::fmt::Display for Misconfigured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misconfigured {}

/// Controller and webhook in one process: whichever ends badly ends the other. Each is ready on its own.
pub async fn all(
    common: Common,
    flags: controller::process::Flags,
    settings: crate::webhook::Settings,
    shutdown: Shutdown,
) -> Result<()> {
    let (client, telemetry) = (common.client().await?, common.telemetry()?);
    let health = Health::new(&shutdown);
    common.serve_plain_ports(&health, &telemetry).await?;
    let namespace = common.namespace();
    let until = shutdown.clone();
    // The API server finds the webhook by the readiness of the process, and fails closed: what the
    // controller still waits for must not take the webhook away.
    let (of_webhook, of_controller) = (health.part("webhook"), health.part_aside("controller"));
    let serving = crate::webhook::serve(&namespace, &settings, client, &telemetry, &of_webhook, until);
    let clients = common.controller_clients().await?;
    let controlling =
        controller::process::control(&namespace, &flags, clients, &telemetry, &of_controller, shutdown);
    tokio::try_join!(Box::pin(serving), controlling)?;
    Ok(())
}

/// Runs a process to its end: logs, the TLS library's provider, the runtime, traces, signals.
pub fn run<F: Future<Output = Result<()>>>(
    common: &Common,
    main: impl FnOnce(Common, Shutdown) -> F,
) -> Result<()> {
    log(common.log_format);
    raise_open_files();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let traces = traces::export(common.cluster_name.as_deref()).map_err(Misconfigured::new)?;
        let ended = main(common.clone(), Shutdown::on_signals()?).await;
        if let Some(traces) = traces {
            traces.finish().await;
        }
        ended
    })
}

/// Each watch has a connection of its own, since kube's client speaks HTTP/1.1, and each Deployment that an
/// allocation refers to has three watches. The usual limit of 1,024 files is reached with 340 of them.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |files| files.to_string());
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => info!("open files: at most {} (before: {})", words(before.maximum), words(before.current)),
        Err(error) => {
            warn!("open files: at most {}; the limit cannot be raised: {error}", words(before.current));
        }
    }
}

fn log(format: LogFormat) {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Somebody who runs us as a library may have set up theirs.
    let _ = match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn as_many_files_as_may_be_can_be_opened() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // Other tests open files at the same time.
        let less = Some(maximum.map_or(1 << 20, |maximum| maximum - 1));
        assert_eq!(setrlimit(Resource::Nofile, Rlimit { current: less, maximum }), Ok(()));
        assert_eq!(getrlimit(Resource::Nofile).current, less);
        raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
