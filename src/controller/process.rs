//! The `controller` process: settings, clouds, health, and the controller itself.

use super::{Clients, Pulse, Settings, run};
use crate::process::{Common, Misconfigured};
use anyhow::{Context as _, Result};
use clap::Args;
use cloud::{Account, Class, Clouds, Meter};
use std::sync::Arc;
use std::time::Duration;
use telemetry::Telemetry;
use telemetry::cloud::CloudMetrics;
use telemetry::controller::Metrics;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use webhook::server::{Health, Shutdown};

/// How long the loop may stand still before the process counts as hung: it turns every few seconds.
const HUNG: Duration = Duration::from_mins(1);

/// Settings of the controller.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Name of the Lease
    #[arg(long, env = "LEASE_NAME", default_value = "ip-address-controller-leader")]
    lease_name: String,
    /// Seconds after which another replica may lead if the leader is not heard of
    #[arg(long, env = "LEASE_DURATION", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=3600))]
    lease_duration: u64,
    /// Name of this pod, for the Lease, events and metrics [default: the host's name]
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
    /// The node that this process runs on: no address is moved there, and none is taken from it before
    /// another replica leads
    #[arg(long, env = "NODE_NAME")]
    node_name: Option<String>,
    /// Seconds for which a new node does not count for the storm guard: it is just starting
    #[arg(long, env = "STORM_NODE_AGE", default_value_t = 600, value_parser = clap::value_parser!(u32).range(..=86400))]
    storm_node_age: u32,
    /// The version that metrics show [default: the program's]
    #[arg(long, env = "CONTROLLER_VERSION")]
    controller_version: Option<String>,
}

impl Flags {
    fn settings(&self, namespace: &str) -> Settings {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let pod = given(&self.pod_name).or_else(|| host().ok()).unwrap_or_else(|| "controller".to_owned());
        let mut settings = Settings::new(namespace, &pod, Duration::from_secs(self.lease_duration));
        settings.lease_name.clone_from(&self.lease_name);
        settings.own_node = given(&self.node_name);
        settings.newcomer = Duration::from_secs(self.storm_node_age.into());
        if let Some(version) = given(&self.controller_version) {
            settings.version = version;
        }
        settings
    }
}

/// Runs the controller until `shutdown`, or until its lease is lost.
pub async fn main(common: Common, flags: Flags, shutdown: Shutdown) -> Result<()> {
    let (clients, telemetry) = (common.controller_clients().await?, common.telemetry()?);
    let health = Health::new(&shutdown);
    common.serve_plain_ports(&health, &telemetry).await?;
    control(&common.namespace(), &flags, clients, &telemetry, &health, shutdown).await
}

/// The controller without what it shares with others in the same process.
pub async fn control(
    namespace: &str,
    flags: &Flags,
    clients: Clients,
    telemetry: &Telemetry,
    health: &Health,
    shutdown: Shutdown,
) -> Result<()> {
    let metrics = Metrics::new(telemetry)?;
    let meter = CloudMeter { all: CloudMetrics::new(telemetry)?, gcp: metrics.clone() };
    let clouds = Arc::new(Clouds::from_env(Arc::new(meter.clone())).map_err(Misconfigured::new)?);
    let (beat, pulse) = watch::channel(Pulse::default());
    let stop = CancellationToken::new();
    let settings = flags.settings(namespace);
    let pod = settings.pod_name.clone();
    // A task of its own: if it hangs, somebody has to be left to say so.
    let running = run(settings, clients, clouds.clone(), metrics, beat, stop.clone());
    let running = AbortOnDropHandle::new(tokio::spawn(running));
    let watching = report(health, pulse, &clouds, &meter, &pod);
    let stopping = async {
        shutdown.draining().await;
        stop.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = running => ended.context("the controller's task")?.context("the controller"),
        () = watching => Ok(()),
        () = stopping => Ok(()),
        () = shutdown.aborted() => anyhow::bail!("told to stop twice: what was under way is abandoned"),
    }
}

/// Readiness, liveness and the level of budgets, from the controller's pulse.
async fn report(
    health: &Health,
    mut pulse: watch::Receiver<Pulse>,
    clouds: &Clouds,
    meter: &CloudMeter,
    pod: &str,
) {
    let (check, heart) = (health.check("controller"), health.heart("controller", HUNG));
    let healthy = meter.gcp.healthy.with_label_values(&[pod]);
    loop {
        healthy.set(1);
        match readiness(&pulse.borrow_and_update()) {
            Ok(()) => check.ready(),
            Err(reason) => check.not_ready(reason),
        }
        heart.beat();
        for (account, level) in clouds.levels() {
            meter.all.budget(&account.to_string(), level);
        }
        let changed = match tokio::time::timeout(HUNG, pulse.changed()).await {
            Ok(changed) => changed,
            Err(_hung) => {
                healthy.set(0);
                pulse.changed().await
            }
        };
        if changed.is_err() {
            // The controller has ended; whoever runs it says how.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether the controller has all that it needs, or what it lacks.
fn readiness(pulse: &Pulse) -> Result<(), String> {
    match pulse {
        Pulse { missing: Some(missing), .. } => Err(format!("waiting for {missing}")),
        Pulse { turns: 0, .. } => Err("has not started yet".to_owned()),
        Pulse { outdated: Some(outdated), .. } => {
            Err(format!("goes on with what was known before: {outdated}"))
        }
        _ => Ok(()),
    }
}

/// Metrics of calls, by the names of the predecessor too where they are calls to GCP.
#[derive(Clone, Debug)]
struct CloudMeter {
    all: CloudMetrics,
    gcp: Metrics,
}

impl Meter for CloudMeter {
    fn called(&self, account: &Account, operation: &'static str, outcome: Result<(), Class>, took: Duration) {
        let word = outcome.err().map_or("ok", Class::as_str);
        self.all.called(account.cloud.as_str(), operation, word, took);
        if account.cloud == cloud::Cloud::Gcp {
            let operation = match operation {
                "instances.addAccessConfig" => "attach",
                "instances.deleteAccessConfig" => "detach",
                _ => "check_ip",
            };
            self.gcp.gcp_duration.with_label_values(&[operation]).observe(took.as_secs_f64());
            // Counted from the first call on, so that the first error is a rise.
            let errors = self.gcp.gcp_errors.with_label_values(&[operation, "api_error"]);
            if outcome.is_err() {
                errors.inc();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_what_is_missing_and_what_is_old() {
        let pulse = Pulse::default();
        assert_eq!(readiness(&pulse), Err("has not started yet".to_owned()));
        let pulse = Pulse { turns: 1, ..pulse };
        assert_eq!(readiness(&pulse), Ok(()));
        let pulse = Pulse { outdated: Some("nodes: 403 Forbidden: no".to_owned()), ..pulse };
        let old = "goes on with what was known before: nodes: 403 Forbidden: no";
        assert_eq!(readiness(&pulse), Err(old.to_owned()));
        let pulse = Pulse { missing: Some("NetIPAllocations".to_owned()), ..pulse };
        assert_eq!(readiness(&pulse), Err("waiting for NetIPAllocations".to_owned()));
    }
}
