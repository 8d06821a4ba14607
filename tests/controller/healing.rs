//! Controller and webhook together: what one missed, the other heals.

use crate::processes::launch;
use crate::scene::{Scene, is_ready};
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cluster::{Process, eventually};
use serde_json::json;
use std::time::Duration;

/// The real webhook, as a process under its own role, which registers itself.
async fn webhook(stage: &Stage) -> Result<Process> {
    let root = env!("CARGO_MANIFEST_DIR");
    let namespace = "ip-address-controller";
    let account = "ip-address-controller-webhook";
    for manifest in ["webhook", "certs", "webhook-self-registration"] {
        let file = format!("{root}/deploy/rbac/{manifest}.yaml");
        stage.cluster.kubectl(&["apply", "-f", &file]).await?.ok()?;
    }
    let kubeconfig = stage.cluster.service_account_kubeconfig(namespace, account).await?;
    let address = format!("127.0.0.1:{}", cluster::free_port()?);
    let env = vec![
        ("KUBECONFIG", kubeconfig.display().to_string()),
        ("POD_NAMESPACE", namespace.to_owned()),
        ("WEBHOOK_ADDR", address.clone()),
        ("WEBHOOK_URL", format!("https://{address}")),
        ("HEALTH_ADDR", "127.0.0.1:0".to_owned()),
        ("METRICS_PORT", "0".to_owned()),
    ];
    let process = launch(stage, "webhook", "webhook", env)?;
    // It answers once a bad manifest is refused by it, and not by the schema.
    let bad = json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
        "metadata": { "name": "bad" },
        "spec": { "reservedIPs": ["10.0.0.1", "10.0.0.1"], "cloud": { "provider": "gcp" } },
    });
    eventually("the webhook to answer", async || {
        let input = bad.to_string();
        let said = stage.cluster.kubectl_with_input(&["create", "-f", "-"], &input).await?;
        // The schema's own answer is not in these words.
        ensure!(said.stderr.contains("only public unicast addresses can be reserved"), "{}", said.stderr);
        Ok(())
    })
    .await?;
    Ok(process)
}

/// Pods are where they should be, and never has more than one been down.
async fn moved_one_by_one(scene: &Scene<'_>, count: usize) -> Result<()> {
    let homes = scene.settled().await?;
    for _ in 0..3000 {
        let pods = scene.pods().await?;
        let up = pods.iter().filter(|pod| is_ready(pod)).count();
        ensure!(up + 1 >= count, "{} of {count} pods are down", count - up);
        let home = |pod: &&k8s_openapi::api::core::v1::Pod| homes.contains(&crate::scene::number_of(pod));
        if pods.iter().filter(|pod| is_ready(pod)).filter(home).count() == count {
            return Ok(());
        }
        let conditions = scene.status().await?.conditions;
        ensure!(!conditions.iter().any(|c| c.reason == "EvictionStopped"), "{}", scene.story().await?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("not all pods came home: {}", scene.story().await?)
}

pub async fn a_running_deployment_is_brought_to_its_addresses_one_pod_at_a_time() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, Duration::from_secs(15))?;
    let _webhook = webhook(&stage).await?;
    let scene = stage.scene("running", 5, 3).await?;
    // Made before the allocation, so without the requirement.
    scene.workload("Deployment", 10, false, 0).await?;
    scene.pods_ready(10).await?;
    scene
        .apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "web", "namespace": scene.name },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": scene.name } } },
        }))
        .await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    moved_one_by_one(&scene, 10).await?;
    replica.stop().await
}

pub async fn pods_made_while_the_webhook_was_down_are_healed() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, Duration::from_secs(15))?;
    let webhook = webhook(&stage).await?;
    let scene = stage.scene("down", 3, 1).await?;
    scene.allocate(scene.workload_ref("StatefulSet")).await?;
    scene.settled().await?;
    webhook.kill().await?;
    // One pod to a node, so that some are in the wrong place for sure.
    scene.workload("StatefulSet", 3, false, 0).await?;
    scene.pods_ready(3).await?;
    webhook.spawn()?;
    moved_one_by_one(&scene, 3).await?;
    replica.stop().await
}
