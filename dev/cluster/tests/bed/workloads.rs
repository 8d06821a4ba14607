//! Deployments, StatefulSets and DaemonSets, driven by the real controllers and the real scheduler.

use crate::kit::{apply, label_node, node_of, pods, running, with_nodes, workload};
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use cluster::harness::Bed;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

pub async fn deployment_waits_for_labelled_nodes(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "gated", 3).await?;
    let gate = json!({ "nodeSelector": { "ip.ready": "true" } });
    apply(cluster, &workload("Deployment", "gated", &json!({ "replicas": 3 }), &gate)).await?;
    eventually("three pods that the scheduler has looked at", async || {
        let pods = pods(cluster, "gated").await?;
        ensure!(pods.len() == 3, "{} pods", pods.len());
        for pod in pods {
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            ensure!(
                conditions.iter().any(|c| c.reason.as_deref() == Some("Unschedulable")),
                "{conditions:?}"
            );
        }
        Ok(())
    })
    .await?;
    for node in ["gated-1", "gated-3"] {
        label_node(cluster, node, "ip.ready", "true").await?;
    }
    cluster.kubectl(&["rollout", "status", "deployment/gated", "--timeout=120s"]).await?.ok()?;
    cluster
        .kubectl(&["wait", "--for=condition=Available", "deployment/gated", "--timeout=60s"])
        .await?
        .ok()?;
    for pod in running(cluster, "gated", 3).await? {
        ensure!(["gated-1", "gated-3"].contains(&node_of(&pod)), "a pod runs on {}", node_of(&pod));
    }
    Ok(())
}

pub async fn drain_ends_when_the_pods_are_gone(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "drained", 2).await?;
    let grace = json!({ "terminationGracePeriodSeconds": 5 });
    apply(cluster, &workload("Deployment", "drained", &json!({ "replicas": 4 }), &grace)).await?;
    running(cluster, "drained", 4).await?;

    let drain = cluster.kubectl(&["drain", "drained-1", "--timeout=110s"]);
    let watch = eventually("a terminating pod", async || {
        let pods = pods(cluster, "drained").await?;
        let ends = pods.iter().find_map(|pod| pod.metadata.deletion_timestamp.clone());
        ends.map(|time| time.0).context("none yet")
    });
    let (drained, ends) = tokio::join!(drain, watch);
    let (drained, ends) = (drained?.ok()?, ends?);
    ensure!(drained.contains("drained-1 drained"), "{drained}");
    ensure!(Timestamp::now() >= ends, "the drain ended before the pods' grace period did");
    for pod in running(cluster, "drained", 4).await? {
        ensure!(node_of(&pod) == "drained-2", "{} is still on {}", pod.name_any(), node_of(&pod));
    }
    Ok(())
}

pub async fn statefulset_rolls_out_in_order(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "ordered", 2).await?;
    apply(cluster, &workload("StatefulSet", "ordered", &json!({ "replicas": 3 }), &json!({}))).await?;
    let first = running(cluster, "ordered", 3).await?;
    let names: Vec<_> = first.iter().map(ResourceExt::name_any).collect();
    ensure!(names == ["ordered-0", "ordered-1", "ordered-2"], "{names:?}");
    cluster.kubectl(&["rollout", "restart", "statefulset/ordered"]).await?.ok()?;
    cluster.kubectl(&["rollout", "status", "statefulset/ordered", "--timeout=120s"]).await?.ok()?;
    let second = running(cluster, "ordered", 3).await?;
    for (old, new) in first.iter().zip(&second) {
        ensure!(old.metadata.uid != new.metadata.uid, "{} was not replaced", old.name_any());
    }
    Ok(())
}

pub async fn daemonset_follows_the_nodes(bed: Arc<Bed>) -> Result<()> {
    let cluster = with_nodes(&bed, "everywhere", 2).await?;
    apply(cluster, &workload("DaemonSet", "everywhere", &json!({}), &json!({}))).await?;
    running(cluster, "everywhere", 2).await?;
    label_node(cluster, "everywhere-1", "pool", "elsewhere").await?;
    let left = running(cluster, "everywhere", 1).await?;
    ensure!(node_of(&left[0]) == "everywhere-2");
    Ok(())
}
