//! Controller and webhook in one process: each is ready on its own, and the API server finds the webhook by the
//! readiness of the process.

use super::kit::{ACCOUNT, NAMESPACE, allow_all, bare, get, works};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Process, Version, eventually, free_port};
use std::sync::Arc;

const CONTROLLER: &str = "ip-address-controller";

struct All {
    process: Process,
    health: u16,
}

impl All {
    /// Runs `all` with the rights of an account.
    async fn start(cluster: &Cluster, account: &str) -> Result<Self> {
        let (port, health, metrics) = (free_port()?, free_port()?, free_port()?);
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account).await?;
        let env = vec![
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("POD_NAMESPACE", NAMESPACE.to_owned()),
            ("POD_NAME", "all".to_owned()),
            ("LEASE_DURATION", "4".to_owned()),
            ("WEBHOOK_ADDR", format!("127.0.0.1:{port}")),
            ("WEBHOOK_URL", format!("https://127.0.0.1:{port}")),
            ("WEBHOOK_DRAIN_SECONDS", "1".to_owned()),
            ("HEALTH_ADDR", format!("127.0.0.1:{health}")),
            ("METRICS_PORT", metrics.to_string()),
        ];
        let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
        let process = cluster.launch(&format!("all-{account}"), binary, &["all"], env)?;
        Ok(Self { process, health })
    }

    /// Waits until a path is answered so, with these words.
    async fn says(&self, path: &str, status: u16, words: &str) -> Result<()> {
        eventually(&format!("{path} to say {status} {words:?}"), async || {
            self.process.check_running()?;
            let (code, text) = get(self.health, path).await.with_context(|| self.process.log_tail())?;
            ensure!(code == status && text.contains(words), "{code} {text}");
            Ok(())
        })
        .await
    }
}

/// The controller may nothing: the webhook serves all the same.
pub async fn the_webhook_serves_while_the_controller_is_not_ready(_: Arc<Bed>) -> Result<()> {
    let cluster = bare(Version::Newest).await?;
    allow_all(&cluster).await?;
    let all = All::start(&cluster, ACCOUNT).await?;
    all.says("/readyz", 200, "[i] controller/").await?;
    all.says("/readyz/webhook", 200, "[+] webhook/index").await?;
    all.says("/readyz/controller", 503, "[-] controller/").await?;
    all.says("/readyz/nobody", 404, "no such part").await?;
    works(&cluster).await
}

/// The webhook gets no certificates: the process takes no requests, and the controller goes on.
pub async fn the_controller_is_ready_while_the_webhook_is_not(_: Arc<Bed>) -> Result<()> {
    let cluster = bare(Version::Newest).await?;
    let manifest = format!("{}/deploy/rbac/controller.yaml", env!("CARGO_MANIFEST_DIR"));
    cluster.kubectl(&["apply", "-f", &manifest]).await?.ok()?;
    let all = All::start(&cluster, CONTROLLER).await?;
    all.says("/readyz/controller", 200, "[+] controller/").await?;
    all.says("/readyz/webhook", 503, "[-] webhook/certificates").await?;
    all.says("/readyz", 503, "[-] webhook/certificates").await
}
