//! Nodes that fall silent, fail, vanish and come back.

use crate::kit::{apply, node, node_of, pods, ready, running, with_nodes, workload};
use anyhow::{Result, ensure};
use cluster::eventually;
use cluster::harness::Bed;
use cluster::{NodeSpec, Provider};
use serde_json::json;
use std::sync::Arc;

/// Pods that leave an unreachable node after a second instead of five minutes.
fn hurried() -> serde_json::Value {
    let tolerate =
        |key| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 });
    json!({ "tolerations": [tolerate("node.kubernetes.io/unreachable"), tolerate("node.kubernetes.io/not-ready")] })
}

pub async fn silent_node_becomes_unknown_and_its_pods_are_evicted(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "silent", 3).await?;
    apply(cluster, &workload("Deployment", "silent", &json!({ "replicas": 3 }), &hurried())).await?;
    let victim = node_of(&running(cluster, "silent", 3).await?[0]).to_owned();
    cluster.nodes().silence(&victim).await?;
    eventually("the lifecycle controller to mark the node", async || {
        let node = node(cluster, &victim).await?;
        ensure!(ready(&node) == "Unknown", "it is {}", ready(&node));
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        ensure!(taints.iter().any(|t| t.key == "node.kubernetes.io/unreachable"), "{taints:?}");
        Ok(())
    })
    .await?;
    eventually("replacements elsewhere, the old pod stuck", async || {
        let pods = pods(cluster, "silent").await?;
        let (stuck, alive): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| node_of(pod) == victim);
        ensure!(stuck.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()), "not evicted");
        ensure!(!stuck.is_empty(), "a silent kubelet cannot have ended its pods");
        ensure!(alive.len() == 3, "{} replacements", alive.len());
        Ok(())
    })
    .await?;
    cluster.nodes().revive(&victim).await?;
    running(cluster, "silent", 3).await?;
    eventually("the node to be well again", async || {
        let node = node(cluster, &victim).await?;
        ensure!(ready(&node) == "True");
        Ok(())
    })
    .await
}

pub async fn not_ready_at_once_and_well_again(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "shaky", 1).await?;
    for (healthy, expected) in [(false, "False"), (true, "True")] {
        if healthy {
            cluster.nodes().revive("shaky-1").await?;
        } else {
            cluster.nodes().mark_not_ready("shaky-1").await?;
        }
        eventually("the kubelet's word", async || {
            let node = node(cluster, "shaky-1").await?;
            ensure!(ready(&node) == expected, "{}", ready(&node));
            Ok(())
        })
        .await?;
    }
    Ok(())
}

pub async fn recreated_node_is_another_node(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "phoenix", 1).await?;
    let before = node(cluster, "phoenix-1").await?;
    let spec =
        NodeSpec::new(Provider::Gcp, "phoenix-1", 1).provider_id("gce://dev-project/us-central1-b/phoenix-1");
    cluster.nodes().recreate(spec).await?;
    eventually("the new node to be Ready", async || {
        let after = node(cluster, "phoenix-1").await?;
        ensure!(after.metadata.uid != before.metadata.uid, "same UID");
        ensure!(ready(&after) == "True");
        let provider_id = after.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
        ensure!(provider_id.contains("us-central1-b"), "{provider_id}");
        Ok(())
    })
    .await
}

pub async fn deleted_node_takes_its_pods_with_it(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "doomed", 2).await?;
    apply(cluster, &workload("Deployment", "doomed", &json!({ "replicas": 2 }), &json!({}))).await?;
    running(cluster, "doomed", 2).await?;
    cluster.nodes().delete("doomed-1").await?;
    eventually("the garbage collector to make room for replacements", async || {
        let pods = pods(cluster, "doomed").await?;
        ensure!(pods.len() == 2 && pods.iter().all(|pod| node_of(pod) == "doomed-2"), "not yet");
        Ok(())
    })
    .await
}
