//! How fast the simulated nodes are.

use anyhow::{Result, ensure};
use cluster::{Cluster, NodeSpec, Provider};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::json;
use std::time::{Duration, Instant};

const DEPLOYMENTS: usize = 20;

/// Brings up nodes and pods, takes the pods down again, and prints how long each took.
pub async fn run(nodes: usize, pods: usize) -> Result<()> {
    let start = Instant::now();
    let cluster = Cluster::builder().node_grace(Duration::from_secs(40)).start().await?;
    println!("control plane ready          {:>7.1} s", start.elapsed().as_secs_f32());

    let start = Instant::now();
    cluster.nodes().create_all(NodeSpec::pool(Provider::Gcp, "node", nodes)).await?;
    wait_for("nodes Ready", async || {
        let listed = cluster.kubectl(&["get", "nodes", "--no-headers"]).await?.ok()?;
        Ok(listed.lines().filter(|line| line.split_whitespace().nth(1) == Some("Ready")).count() == nodes)
    })
    .await?;
    println!("{nodes:>6} nodes Ready           {:>7.1} s", start.elapsed().as_secs_f32());

    let start = Instant::now();
    let api: Api<Deployment> = Api::default_namespaced(cluster.client());
    for number in 0..DEPLOYMENTS {
        api.create(&PostParams::default(), &deployment(number, pods / DEPLOYMENTS)?).await?;
    }
    wait_for("pods Ready", async || {
        let all = api.list(&ListParams::default()).await?;
        let ready: i32 = all.iter().filter_map(|d| d.status.as_ref()?.ready_replicas).sum();
        Ok(usize::try_from(ready)? == pods / DEPLOYMENTS * DEPLOYMENTS)
    })
    .await?;
    println!("{pods:>6} pods Running and Ready {:>7.1} s", start.elapsed().as_secs_f32());

    let start = Instant::now();
    for number in 0..DEPLOYMENTS {
        api.delete(&format!("load-{number}"), &kube::api::DeleteParams::default()).await?;
    }
    let remaining: Api<PartialObjectMeta<k8s_openapi::api::core::v1::Pod>> =
        Api::default_namespaced(cluster.client());
    wait_for("pods gone", async || {
        Ok(remaining.list(&ListParams::default().limit(1)).await?.items.is_empty())
    })
    .await?;
    println!("{pods:>6} pods ended (grace 1 s) {:>7.1} s", start.elapsed().as_secs_f32());
    Ok(())
}

fn deployment(number: usize, replicas: usize) -> Result<Deployment> {
    let name = format!("load-{number}");
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "terminationGracePeriodSeconds": 1, "containers": [{ "name": "main", "image": "none" }] },
        }},
    }))?)
}

async fn wait_for(what: &str, mut done: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done().await? {
        ensure!(start.elapsed() < Duration::from_mins(15), "waited 15 minutes for: {what}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}
