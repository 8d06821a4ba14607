//! Controller and webhook as processes of their own, under their own roles.

use crate::stage::Stage;
use anyhow::{Result, ensure};
use cluster::{Process, eventually};
use serde_json::json;

const NAMESPACE: &str = "ip-address-controller";

/// A process of ours and where it is scraped.
pub struct Running {
    pub process: Process,
    pub metrics: u16,
}

type Environment<'e> = &'e [(&'e str, String)];

fn launch(stage: &Stage, name: &str, command: &str, env: Vec<(&str, String)>) -> Result<Running> {
    let metrics = cluster::free_port()?;
    let common = [
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("POD_NAME", name.to_owned()),
        ("CLUSTER_NAME", "test".to_owned()),
        ("HEALTH_ADDR", "127.0.0.1:0".to_owned()),
        ("METRICS_PORT", metrics.to_string()),
        ("LOG_FORMAT", "json".to_owned()),
    ];
    let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
    let process = stage.cluster.launch(name, binary, &[command], common.into_iter().chain(env))?;
    Ok(Running { process, metrics })
}

/// A replica of the controller. Its lease is long enough for Prometheus to see that nobody leads.
pub fn controller(stage: &Stage, name: &str, more: Environment<'_>) -> Result<Running> {
    let mut env = vec![
        ("KUBECONFIG", stage.kubeconfig.display().to_string()),
        ("LEASE_DURATION", "10".to_owned()),
        // The nodes of a test are all new.
        ("STORM_NODE_AGE", "0".to_owned()),
    ];
    env.extend(stage.cloud.environment(name));
    env.extend(more.iter().cloned());
    launch(stage, name, "controller", env)
}

/// The webhook, which registers itself, and its port.
pub async fn webhook(stage: &Stage, more: Environment<'_>) -> Result<(Running, u16)> {
    let account = "ip-address-controller-webhook";
    stage.cluster.kubectl(&["create", "serviceaccount", account, "-n", NAMESPACE]).await?.ok()?;
    for manifest in ["webhook", "certs", "webhook-self-registration"] {
        let file = format!("{}/deploy/rbac/{manifest}.yaml", env!("CARGO_MANIFEST_DIR"));
        stage.cluster.kubectl(&["apply", "-f", &file]).await?.ok()?;
    }
    let kubeconfig = stage.cluster.service_account_kubeconfig(NAMESPACE, account).await?;
    let port = cluster::free_port()?;
    let mut env = vec![
        ("KUBECONFIG", kubeconfig.display().to_string()),
        ("WEBHOOK_ADDR", format!("127.0.0.1:{port}")),
        ("WEBHOOK_URL", format!("https://127.0.0.1:{port}")),
    ];
    env.extend(more.iter().cloned());
    let running = launch(stage, "webhook", "webhook", env)?;
    eventually("the webhook to answer", async || {
        running.process.check_running()?;
        refused_manifest(stage).await
    })
    .await?;
    Ok((running, port))
}

/// A manifest that the webhook, and not only the schema, refuses.
pub async fn refused_manifest(stage: &Stage) -> Result<()> {
    let bad = json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
        "metadata": { "name": "bad" },
        "spec": { "reservedIPs": ["10.0.0.1", "10.0.0.1"], "cloud": { "provider": "gcp" } },
    });
    let said = stage.cluster.kubectl_with_input(&["create", "-f", "-"], &bad.to_string()).await?;
    ensure!(said.stderr.contains("only public unicast addresses can be reserved"), "{}", said.stderr);
    Ok(())
}
