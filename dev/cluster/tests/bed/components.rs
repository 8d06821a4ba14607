//! The control plane's own processes, hurt and healed.

use crate::kit::{add_nodes, apply, node, pods, ready, running, workload};
use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn api_server_killed_and_restarted(_: Arc<Bed>) -> Result<()> {
    let cluster = &Cluster::start().await?;
    add_nodes(cluster, "survivor", 2).await?;
    apply(cluster, &workload("Deployment", "survivor", &json!({ "replicas": 2 }), &json!({}))).await?;
    running(cluster, "survivor", 2).await?;

    cluster.apiserver().kill().await?;
    ensure!(pods(cluster, "survivor").await.is_err(), "who answers?");
    cluster.apiserver().start().await?;

    // The player's watches go on: it starts new pods, ends old ones and keeps nodes alive.
    cluster.kubectl(&["scale", "deployment/survivor", "--replicas=5"]).await?.ok()?;
    running(cluster, "survivor", 5).await?;
    cluster.kubectl(&["scale", "deployment/survivor", "--replicas=1"]).await?.ok()?;
    running(cluster, "survivor", 1).await?;
    cluster.nodes().mark_not_ready("survivor-2").await?;
    eventually("the node to be reported", async || {
        let node = node(cluster, "survivor-2").await?;
        ensure!(ready(&node) == "False", "{}", ready(&node));
        Ok(())
    })
    .await
}

pub async fn every_component_can_be_paused_and_restarted(_: Arc<Bed>) -> Result<()> {
    let cluster = &Cluster::start().await?;
    add_nodes(cluster, "paused", 1).await?;
    cluster.scheduler().pause()?;
    apply(cluster, &workload("Deployment", "paused", &json!({ "replicas": 1 }), &json!({}))).await?;
    eventually("a pod", async || {
        let pods = pods(cluster, "paused").await?;
        ensure!(pods.len() == 1, "none yet");
        Ok(())
    })
    .await?;
    cluster.controller_manager().pause()?;
    cluster.controller_manager().resume()?;
    let pod = pods(cluster, "paused").await?.remove(0);
    ensure!(pod.spec.context("no spec")?.node_name.is_none(), "a frozen scheduler has bound a pod");
    cluster.scheduler().resume()?;
    running(cluster, "paused", 1).await?;

    for component in [cluster.etcd(), cluster.apiserver(), cluster.controller_manager(), cluster.scheduler()]
    {
        let before = component.id();
        component.restart().await?;
        ensure!(component.id() != before, "the same process");
    }
    cluster.kubectl(&["scale", "deployment/paused", "--replicas=3"]).await?.ok()?;
    running(cluster, "paused", 3).await?;
    Ok(())
}

pub async fn two_clusters_side_by_side(_: Arc<Bed>) -> Result<()> {
    let (left, right) = tokio::try_join!(Cluster::start(), Cluster::start())?;
    tokio::try_join!(add_nodes(&left, "left", 1), add_nodes(&right, "right", 2))?;
    for (cluster, count) in [(&left, 1), (&right, 2)] {
        let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await?;
        ensure!(nodes.items.len() == count, "{} nodes", nodes.items.len());
    }
    let folder = left.folder().to_owned();
    drop(left);
    ensure!(!folder.exists(), "{} is still there", folder.display());
    node(&right, "right-1").await?;
    Ok(())
}

/// A service account's token opens what its role opens and nothing else, and the audit log has its name.
pub async fn service_accounts_get_their_own_kubeconfig(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(cluster::Version::Newest).await?;
    cluster.kubectl(&["create", "serviceaccount", "reader"]).await?.ok()?;
    let config = cluster.service_account_kubeconfig("default", "reader").await?;
    let config = config.to_str().context("not UTF-8")?;
    let get = async |what: &str| cluster.kubectl(&["--kubeconfig", config, "get", what]).await;

    let refused = get("pods").await?;
    ensure!(refused.stderr.contains("system:serviceaccount:default:reader"), "{}", refused.stderr);
    let grant = ["create", "rolebinding", "reader", "--clusterrole=view", "--serviceaccount=default:reader"];
    cluster.kubectl(&grant).await?.ok()?;
    eventually("the role to be in force", async || get("pods").await?.ok().map(drop)).await?;
    ensure!(!get("nodes").await?.success, "view of a namespace does not open nodes");

    eventually("the audit log to say so", async || {
        let log = std::fs::read_to_string(cluster.audit_log())?;
        for line in log.lines() {
            let event: Value = serde_json::from_str(line)?;
            let reader = event["user"]["username"] == "system:serviceaccount:default:reader";
            if reader && event["verb"] == "list" && event["responseStatus"]["code"] == 200 {
                return Ok(());
            }
        }
        bail!("no such event")
    })
    .await
}
