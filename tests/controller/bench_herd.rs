//! What a thousand new allocations cost others: `BENCH=herd`, or `BENCH=herd-200x5` for so many of so many
//! addresses. Ratios against the same machine at rest.

use crate::stage::{Replica, Scene, Stage};
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use crds::NetIPAllocation;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(15);
const SAMPLES: usize = 40;

pub async fn run(size: &str) -> Result<()> {
    let (count, each) = size.split_once('x').unwrap_or(("1000", "20"));
    let (count, each): (u32, u32) = (count.parse()?, each.parse()?);
    let stage = Stage::empty().await?;
    let scene = stage.scene("mover", 2, 1).await?;
    scene.allocate(json!({ "reconcileInterval": 3600 })).await?;
    let alone = stage.replica("alone", None, LEASE)?;
    scene.settled().await?;
    let mut moves = Vec::new();
    for _ in 0..5 {
        moves.push(failover(&scene).await?);
    }
    let at_rest = latencies(&stage, SAMPLES).await?;
    alone.stop().await?;
    create(&stage, count, each).await?;

    let began = Instant::now();
    let replica = stage.replica("herd", None, LEASE)?;
    let (busy, meanwhile, took) = converge(&stage, &scene, began).await?;
    report(&format!("{count} new allocations x {each}"), &replica, took, &at_rest, &busy, &moves, &meanwhile);
    replica.stop().await?;

    let began = Instant::now();
    let replica = stage.replica("again", None, LEASE)?;
    let (busy, meanwhile, took) = converge(&stage, &scene, began).await?;
    report(&format!("a restart into {count}"), &replica, took, &at_rest, &busy, &moves, &meanwhile);
    replica.stop().await
}

async fn create(stage: &Stage, count: u32, each: u32) -> Result<()> {
    let api: Api<NetIPAllocation> = Api::all(stage.cluster.client());
    let all = (0..count).map(|number| {
        let addresses = (0..each).map(|n| IpAddr::V4(Ipv4Addr::from(0x2d00_0001 + number * each + n)));
        json!({
            "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
            "metadata": { "name": format!("idle-{number}") },
            "spec": {
                "reservedIPs": addresses.collect::<Vec<_>>(), "cloud": { "provider": "gcp" },
                "nodeSelector": { "pool": "nobody" },
            },
        })
    });
    let creations = futures::stream::iter(all).map(|object| {
        let api = api.clone();
        async move {
            let object: NetIPAllocation = serde_json::from_value(object)?;
            api.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        }
    });
    creations.buffer_unordered(8).try_collect::<()>().await
}

/// How long another client's lists of nodes take, in ms.
async fn latencies(stage: &Stage, samples: usize) -> Result<Vec<f64>> {
    let api: Api<Node> = Api::all(stage.cluster.client());
    let mut all = Vec::new();
    for _ in 0..samples {
        let began = Instant::now();
        api.list(&ListParams::default()).await?;
        all.push(began.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(all)
}

/// From a cordon to the address at the other node, in ms.
async fn failover(scene: &Scene<'_>) -> Result<f64> {
    let from =
        eventually("the address to be somewhere", async || scene.places()[0].context("nowhere")).await?;
    // A moment for the taint that Kubernetes puts on a node which was cordoned.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    scene.cordon(from).await?;
    while scene.places()[0] != Some(3 - from) {
        ensure!(began.elapsed() < Duration::from_mins(2), "{}", scene.story().await?);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = began.elapsed().as_secs_f64() * 1000.0;
    scene.uncordon(from).await?;
    Ok(took)
}

/// Waits until every allocation has its status and finalizer; meanwhile another client lists, and the address
/// moves.
async fn converge(
    stage: &Stage,
    scene: &Scene<'_>,
    began: Instant,
) -> Result<(Vec<f64>, Vec<f64>, Duration)> {
    let api: Api<NetIPAllocation> = Api::all(stage.cluster.client());
    let mut moves = Vec::new();
    let (mut busy, mut took) = (Vec::new(), None);
    for _ in 0..5 {
        let (waited, moved) = tokio::join!(latencies(stage, SAMPLES / 4), failover(scene));
        busy.extend(waited?);
        moves.push(moved?);
        let bare = bare(&api).await?;
        took = took.or((bare == 0).then(|| began.elapsed()));
    }
    eventually("every status to be written", async || {
        let bare = bare(&api).await?;
        ensure!(bare == 0, "{bare} have none");
        Ok(())
    })
    .await?;
    Ok((busy, moves, took.unwrap_or_else(|| began.elapsed())))
}

async fn bare(api: &Api<NetIPAllocation>) -> Result<usize> {
    let all = api.list(&ListParams::default()).await?.items;
    let done = |object: &NetIPAllocation| {
        object.status.is_some() && object.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
    };
    Ok(all.iter().filter(|object| !done(object)).count())
}

fn report(
    what: &str,
    replica: &Replica,
    took: Duration,
    at_rest: &[f64],
    busy: &[f64],
    before: &[f64],
    moves: &[f64],
) {
    let at = |values: &[f64], share: f64| crate::bench::percentile(&mut values.to_vec(), share);
    let (rest, now) = (at(at_rest, 0.5), at(busy, 0.5));
    let (quiet, loud) = (at(before, 0.5), at(moves, 0.5));
    println!("{what}: converged after {:.1} s", took.as_secs_f64());
    println!("  another client's list: {rest:.1} ms at rest, {now:.1} ms meanwhile, ratio {:.2}", now / rest);
    println!("    (90 %: {:.1} and {:.1} ms)", at(at_rest, 0.9), at(busy, 0.9));
    println!("  a failover: {quiet:.0} ms at rest, {loud:.0} ms meanwhile, ratio {:.2}", loud / quiet);
    println!("    (all: {moves:.0?})");
    let metrics = replica.metrics();
    let failed = metrics.lines().filter(|line| line.starts_with("netipallocation_kubernetes_writes_total"));
    for line in failed.filter(|line| !line.ends_with(" 0")) {
        println!("  {line}");
    }
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or_default()
    };
    let plans = value("netipallocation_plan_duration_seconds_count");
    let each = value("netipallocation_plan_duration_seconds_sum") / plans * 1000.0;
    println!("  {plans} plans, {each:.1} ms each");
}
