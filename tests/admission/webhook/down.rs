//! The webhook is dead: what goes on, and what is refused.

use super::kit::{
    Hook, NAMESPACE, Registration, allocation, api, apply, injects, merge, namespace, pod_of, reference,
    required, start,
};
use crate::requests::{create, refusal, remove};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, NodeSpec, Provider, Version, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn what_needs_no_webhook_goes_on(_: Arc<Bed>) -> Result<()> {
    let guarded = start(Version::Newest).await?;
    let cluster = &guarded.cluster;
    namespace(cluster, "work").await?;
    let reference = reference("StatefulSet", "work", "web");
    let mut object = allocation("alive", &["203.0.113.1"], &reference);
    object["metadata"]["finalizers"] = json!(["netinfra.darkbrains.com/release"]);
    create(cluster, &object).await?;
    injects(cluster, "work", "web", &["alive"]).await?;
    guarded.hook.process.kill().await?;
    pods_leases_and_nodes_go_on(cluster).await?;
    metadata_and_status_can_be_written(cluster).await?;
    changed_and_new_specs_are_refused(cluster).await?;
    remove(cluster, "alive").await?;
    merge(cluster, "alive", &json!({ "metadata": { "finalizers": null } })).await.context("finalizers")?;
    let gone = crate::requests::api(cluster).get_opt("alive").await?;
    ensure!(gone.is_none(), "it is still there");

    // It comes back, and so does everything.
    guarded.hook.process.spawn()?;
    super::kit::works(cluster).await?;
    eventually("a new object", async || {
        create(cluster, &allocation("again", &["203.0.113.1"], &reference)).await
    })
    .await?;
    injects(cluster, "work", "web", &["again"]).await
}

async fn pods_leases_and_nodes_go_on(cluster: &Cluster) -> Result<()> {
    let pod = super::kit::dry_run(cluster, "work", &pod_of("StatefulSet", "web")).await?;
    ensure!(required(&pod).is_empty(), "who put this in? {}", pod["spec"]["affinity"]);
    let mut pod = super::kit::bare_pod();
    pod["metadata"] = json!({ "name": "bare", "namespace": "work" });
    apply(cluster, &pod).await?;
    cluster.nodes().create(NodeSpec::new(Provider::Gcp, "node-1", 0)).await?;
    cluster.kubectl(&["label", "node", "node-1", "ip.ready=true"]).await?.ok()?;
    let leases = api(cluster.client(), "kube-node-lease", "coordination.k8s.io", "Lease");
    eventually("the node's lease", async || Ok(leases.get("node-1").await.map(drop)?)).await
}

async fn metadata_and_status_can_be_written(cluster: &Cluster) -> Result<()> {
    let labels = json!({ "metadata": { "labels": { "team": "voice" } } });
    merge(cluster, "alive", &labels).await.context("labels")?;
    let status =
        json!({ "status": { "reserved": 1, "attached": 0, "unattached": 1, "ips": [], "conditions": [] } });
    let written = crate::requests::api(cluster)
        .patch_status("alive", &PatchParams::default(), &Patch::Merge(&status))
        .await;
    written.map(drop).context("status")
}

/// And the API server says why.
async fn changed_and_new_specs_are_refused(cluster: &Cluster) -> Result<()> {
    let change = merge(cluster, "alive", &json!({ "spec": { "paused": true } })).await;
    let new = create(cluster, &allocation("new", &["203.0.113.2"], &Value::Null)).await;
    for refused in [change, new] {
        let answer = refusal(refused)?;
        ensure!(answer.code == 500, "{answer:?}");
        for words in ["failed calling webhook", "allocations.netinfra.darkbrains.com", "connection refused"] {
            ensure!(answer.message.contains(words), "{words:?} is not in: {}", answer.message);
        }
    }
    Ok(())
}

/// Configurations gone or broken, bad specs are still refused: by the schema.
pub async fn the_schema_refuses_bad_specs_on_its_own(_: Arc<Bed>) -> Result<()> {
    let guarded = start(Version::Newest).await?;
    let cluster = &guarded.cluster;
    // It unregisters itself; then nobody but the schema is asked.
    guarded.hook.process.stop().await?;
    let bad = allocation("bad", &["10.0.0.1"], &Value::Null);
    let answer = refusal(create(cluster, &bad).await)?.message;
    ensure!(answer.contains("spec.reservedIPs[0]") && answer.contains("are private"), "{answer}");
    ensure!(!answer.contains("webhook"), "{answer}");
    Ok(())
}

/// Readiness is false until the lists are read, and says which is not.
pub async fn readiness_names_what_is_missing(_: Arc<Bed>) -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
    super::kit::allow_all(&cluster).await?;
    let hook = Hook::start(&cluster, &Registration::Own).await?;
    eventually("a process that says what it waits for", async || {
        let (status, text) = hook.readyz().await?;
        ensure!(status == 503 && text.contains("[-] index: waiting for allocations"), "{status} {text}");
        Ok(())
    })
    .await?;
    let configurations = cluster.kubectl(&["get", "validatingwebhookconfigurations"]).await?.ok()?;
    ensure!(configurations.trim().is_empty(), "registered before it is ready: {configurations}");
    cluster.install_crds().await?;
    eventually("a process that is ready", async || {
        let (status, text) = hook.readyz().await?;
        ensure!(status == 200 && text.contains("[+] index"), "{status} {text}");
        Ok(())
    })
    .await
}
