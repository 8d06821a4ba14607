//! How fast it is: `make bench-controller`. Nothing here is asserted but what must hold at any speed.

use crate::memory::Verb;
use crate::stage::{Replica, Stage};
use anyhow::{Context as _, Result, ensure};
use cluster::{NodeSpec, Provider, eventually};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;

/// Runs everything and prints what it took.
pub async fn run() -> Result<()> {
    // `BENCH=1000x0` is the large one alone, with so many nodes and pods.
    let size = std::env::var("BENCH").unwrap_or_default();
    if let Some(only) = size.strip_prefix("isolation") {
        let only = Some(only.trim_start_matches('-')).filter(|only| !only.is_empty());
        return Box::pin(crate::bench_isolation::run(only)).await;
    }
    if let Some((nodes, pods)) = size.split_once('x') {
        let (stage, specs, addresses) = Box::pin(reaction(nodes.parse()?, pods.parse()?)).await?;
        return crate::bench_process::run(&stage, &specs, &addresses).await;
    }
    drop(Box::pin(reaction(100, 0)).await?);
    half_of_a_hundred().await?;
    hand_over().await?;
    Box::pin(crate::bench_isolation::run(None)).await?;
    // Last, since it takes minutes to fill the cluster.
    let set = Box::pin(reaction(1000, 10_000)).await?;
    crate::bench_process::run(&set.0, &set.1, &set.2).await
}

fn addresses(count: u32) -> Vec<IpAddr> {
    (0..count).map(|n| IpAddr::V4(Ipv4Addr::from(0xc633_6400 + n))).collect()
}

type Set = (Stage, Vec<NodeSpec>, Vec<IpAddr>);

/// A stage with nodes and one allocation of so many addresses.
async fn stage(nodes: usize, count: u32) -> Result<Set> {
    // The grace of real clusters: with a test's short one, a thousand heartbeats take all of the machine.
    let cluster = cluster::Cluster::builder().node_grace(Duration::from_secs(40));
    let stage = Stage::on(cluster, None).await?;
    let specs = NodeSpec::pool(Provider::Gcp, "node", nodes);
    specs.iter().try_for_each(|spec| stage.cloud.add_instance(&spec.provider_id))?;
    stage.cluster.nodes().create_all(specs.clone()).await?;
    let addresses = addresses(count);
    addresses.iter().try_for_each(|address| stage.cloud.add_address(*address))?;
    let manifest = json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
        "metadata": { "name": "bench" },
        "spec": {
            "reservedIPs": addresses, "cloud": { "provider": "gcp" }, "strategy": { "maxUnavailable": 100 },
            "failover": { "notReadyGraceSeconds": 0, "stormThresholdPercent": 100 },
        },
    });
    stage.cluster.kubectl_with_input(&["create", "-f", "-"], &manifest.to_string()).await?.ok()?;
    Ok((stage, specs, addresses))
}

async fn attached(stage: &Stage, addresses: &[IpAddr]) -> Result<()> {
    let api: Api<crds::NetIPAllocation> = Api::all(stage.cluster.client());
    eventually("all addresses to be attached", async || {
        let status = api.get("bench").await?.status.unwrap_or_default();
        let settled = status.ips.iter().all(|ip| ip.operation.is_none() && ip.state == "Attached");
        let all = usize::try_from(status.attached).ok() == Some(addresses.len());
        ensure!(all && settled, "{} of {}", status.attached, addresses.len());
        Ok(())
    })
    .await
}

/// When a bare watch of nodes saw each of them change, by name.
#[derive(Clone, Default)]
struct BareWatch(Arc<Mutex<Vec<(String, Instant)>>>);

impl BareWatch {
    fn start(stage: &Stage) -> Self {
        let watch = Self::default();
        let (seen, api) = (watch.0.clone(), Api::<Node>::all(stage.cluster.client()));
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(node) | Event::Delete(node)) = event {
                    let mut seen = seen.lock().expect("nobody panics with it");
                    seen.push((node.name_any(), Instant::now()));
                }
            }
        });
        watch
    }

    fn first_after(&self, name: &str, from: Instant) -> Option<Instant> {
        let seen = self.0.lock().expect("nobody panics with it");
        seen.iter().find(|(node, at)| node == name && *at >= from).map(|(_, at)| *at)
    }
}

pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = ((values.len() - 1) as f64 * share).round() as usize;
    values.get(index).copied().unwrap_or_default()
}

/// From an event of a node to the first write to the cloud, beside a bare watch of the same event.
async fn reaction(nodes: usize, pods: usize) -> Result<Set> {
    let (stage, specs, addresses) = stage(nodes, 1).await?;
    if pods > 0 {
        load(&stage, pods).await?;
    }
    let began = Instant::now();
    let replica = stage.replica("bench", None, Duration::from_secs(15))?;
    eventually("it to know everything", async || {
        ensure!(replica.pulse.borrow().turns > 0 && replica.pulse.borrow().missing.is_none(), "not yet");
        Ok(())
    })
    .await?;
    println!("{nodes} nodes, {pods} pods: everything known after {:.2} s", began.elapsed().as_secs_f64());
    attached(&stage, &addresses).await?;
    let watch = BareWatch::start(&stage);
    let api: Api<Node> = Api::all(stage.cluster.client());
    for what in ["NotReady", "cordon", "delete"] {
        let (mut totals, mut extras) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let holder = stage.cloud.holder(addresses[0]).context("it is nowhere")?;
            let spec = specs.iter().find(|spec| spec.provider_id == holder).context("no such node")?;
            let from = Instant::now();
            match what {
                "NotReady" => stage.cluster.nodes().mark_not_ready(&spec.name).await?,
                "cordon" => {
                    let patch = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
                    api.patch(&spec.name, &PatchParams::default(), &patch).await?;
                }
                _ => stage.cluster.nodes().delete(&spec.name).await?,
            }
            let write = eventually("the write", async || {
                let calls = stage.cloud.memory().calls();
                calls
                    .iter()
                    .find(|call| call.verb == Verb::Detach && call.at >= from)
                    .cloned()
                    .context("none yet")
            })
            .await;
            let write = match write {
                Ok(write) => write,
                Err(error) => return Err(error.context(story(&stage, &spec.name).await?)),
            };
            let bare = watch.first_after(&spec.name, from).unwrap_or(write.at).min(write.at);
            totals.push((write.at - from).as_secs_f64() * 1e3);
            extras.push((write.at - bare).as_secs_f64() * 1e3);
            attached(&stage, &addresses).await?;
            match what {
                "NotReady" => stage.cluster.nodes().revive(&spec.name).await?,
                "cordon" => {
                    let patch = Patch::Merge(json!({ "spec": { "unschedulable": null } }));
                    api.patch(&spec.name, &PatchParams::default(), &patch).await?;
                }
                _ => stage.cluster.nodes().create(spec.clone()).await?,
            }
        }
        println!(
            "  {what}: first write after {:.1} ms (p90 {:.1}); on top of a bare watch {:.1} ms (p90 {:.1}), aim 15",
            percentile(&mut totals, 0.5),
            percentile(&mut totals, 0.9),
            percentile(&mut extras, 0.5),
            percentile(&mut extras, 0.9)
        );
    }
    let late = stage.cloud.late(&addresses.iter().copied().collect());
    ensure!(late.is_empty(), "{late:?}");
    replica.stop().await?;
    Ok((stage, specs, addresses))
}

/// What there is to say of the allocation and a node, for messages.
async fn story(stage: &Stage, node: &str) -> Result<String> {
    let api: Api<crds::NetIPAllocation> = Api::all(stage.cluster.client());
    let status = api.get("bench").await?.status.unwrap_or_default();
    let nodes: Api<Node> = Api::all(stage.cluster.client());
    let node = nodes.get_opt(node).await?;
    let ready = node.as_ref().map(crate::scene::node_is_ready);
    Ok(format!("the node is ready: {ready:?}; {:?}; {:?}", status.ips, status.conditions))
}

/// Pods of a Deployment.
async fn load(stage: &Stage, pods: usize) -> Result<()> {
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "load", "namespace": "default" },
        "spec": {
            "replicas": pods,
            "selector": { "matchLabels": { "app": "load" } },
            "template": {
                "metadata": { "labels": { "app": "load" } },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "load", "image": "none" }] },
            },
        },
    });
    stage.cluster.kubectl_with_input(&["create", "-f", "-"], &manifest.to_string()).await?.ok()?;
    let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::default_namespaced(stage.cluster.client());
    loop {
        let ready =
            api.get("load").await?.status.and_then(|status| status.ready_replicas).unwrap_or_default();
        eprint!("\r  {ready} of {pods} pods are ready ");
        if usize::try_from(ready).is_ok_and(|ready| ready >= pods) {
            eprintln!();
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    // The allocation does not refer to it yet: its pods would hold the address on a cordoned node.
    Ok(())
}

/// 50 of 100 nodes NotReady, 20 addresses, a cloud that takes 50 ms a call.
async fn half_of_a_hundred() -> Result<()> {
    let (stage, specs, addresses) = stage(100, 20).await?;
    let replica = stage.replica("bench", None, Duration::from_secs(15))?;
    attached(&stage, &addresses).await?;
    stage.cloud.memory().set_latency(Duration::from_millis(50));
    let mut holders: Vec<String> =
        addresses.iter().filter_map(|address| stage.cloud.holder(*address)).collect();
    let others = specs.iter().map(|spec| spec.provider_id.clone()).filter(|id| !holders.contains(id));
    let down: Vec<String> = others.take(30).collect();
    holders.extend(down);
    let calls = stage.cloud.memory().calls().len();
    let began = Instant::now();
    let names = specs.iter().filter(|spec| holders.contains(&spec.provider_id)).map(|spec| spec.name.clone());
    let nodes = stage.cluster.nodes();
    futures::future::try_join_all(names.map(|name| async move { nodes.mark_not_ready(&name).await })).await?;
    let marked = began.elapsed();
    eventually("all addresses on healthy nodes", async || {
        let sick =
            addresses.iter().filter(|a| stage.cloud.holder(**a).is_none_or(|id| holders.contains(&id)));
        let sick = sick.count();
        ensure!(sick == 0, "{sick} are not");
        Ok(())
    })
    .await?;
    let all = stage.cloud.memory().calls();
    let last = all.iter().rev().find(|call| call.verb == Verb::Attach).map_or(began, |call| call.at);
    let moves = all.iter().skip(calls).filter(|call| call.verb == Verb::Attach).count();
    println!(
        "50 of 100 nodes NotReady, 20 addresses, 50 ms a call: {moves} moves (aim 20), all attached {:.2} s after the first node fell (aim 1.5; the nodes took {:.2} s to fall)",
        (last - began).as_secs_f64(),
        marked.as_secs_f64()
    );
    let late = stage.cloud.late(&addresses.iter().copied().collect());
    ensure!(late.is_empty(), "{late:?}");
    replica.stop().await
}

/// From SIGTERM of the leader to the standby's leadership.
async fn hand_over() -> Result<()> {
    let (stage, _, addresses) = stage(10, 2).await?;
    let mut leader = stage.replica("first", None, Duration::from_secs(15))?;
    attached(&stage, &addresses).await?;
    let mut taken = Vec::new();
    for _ in 0..5 {
        let standby = stage.replica("next", None, Duration::from_secs(15))?;
        synced(&standby).await?;
        let began = Instant::now();
        let stopping = tokio::spawn(leader.stop());
        let mut pulse = standby.pulse.clone();
        while !pulse.borrow_and_update().leading {
            pulse.changed().await?;
        }
        taken.push(began.elapsed().as_secs_f64());
        stopping.await??;
        leader = standby;
    }
    println!("hand-over after a stop: {:.2} s (aim 1)", percentile(&mut taken, 0.5));
    leader.stop().await
}

async fn synced(replica: &Replica) -> Result<()> {
    eventually("the standby to know everything", async || {
        let pulse = replica.pulse.borrow().clone();
        ensure!(pulse.turns > 0 && pulse.missing.is_none(), "not yet");
        Ok(())
    })
    .await
}
