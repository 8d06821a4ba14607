//! What the real binary takes in a large cluster: memory, time until it is ready, what it does at rest, and
//! how long nobody leads when the leader is killed.

use crate::played::Played;
use crate::processes::Replica;
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cloud::Cloud;
use cluster::{NodeSpec, eventually};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const LEASE_SECONDS: u64 = 15;
const REST: Duration = Duration::from_mins(1);

pub async fn run(stage: &Stage, nodes: &[NodeSpec], addresses: &[IpAddr]) -> Result<()> {
    let cloud = Played::sim(Cloud::Gcp).await?;
    nodes.iter().try_for_each(|node| cloud.add_instance(&node.provider_id))?;
    addresses.iter().try_for_each(|address| cloud.add_address(*address))?;
    let leader = ready(stage, &cloud, "apart", "pods that do not matter").await?;
    rest(stage, &cloud, &leader).await?;
    refer(stage).await?;
    let standby = ready(stage, &cloud, "referred", "pods of its workload").await?;
    leader.leads().await.context("the machine is too busy: it has lost its lease")?;
    leader.signal(rustix::process::Signal::KILL)?;
    let killed = Instant::now();
    while standby.metric("netipallocation_controller_is_leader").await? < 0.5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("hand-over after SIGKILL: {:.1} s (lease {LEASE_SECONDS} s)", killed.elapsed().as_secs_f64());
    Ok(())
}

/// Starts a replica and tells how long it took to be ready, and its memory a while later.
async fn ready(stage: &Stage, cloud: &Played, name: &str, pods: &str) -> Result<Replica> {
    let began = Instant::now();
    let replica = Replica::start_with(stage, cloud, LEASE_SECONDS, name)?;
    while !replica.is_ready().await {
        replica.process.check_running()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let id = replica.process.id().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let mebibytes = |key: &str| -> Option<f64> {
        let line = status.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse().ok().map(|kibibytes: f64| kibibytes / 1024.0)
    };
    println!(
        "the binary, {pods}: ready after {:.2} s (aim 0.5), {:.0} MiB resident, {:.0} at most (aim 64)",
        took.as_secs_f64(),
        mebibytes("VmRSS:").context("no VmRSS")?,
        mebibytes("VmHWM:").context("no VmHWM")?
    );
    Ok(replica)
}

/// What the leader does in a minute in which nothing happens.
async fn rest(stage: &Stage, cloud: &Played, leader: &Replica) -> Result<()> {
    leader.leads().await?;
    eventually("the address to be attached", async || {
        ensure!(!cloud.simulator().snapshot().holds.is_empty(), "not yet");
        Ok(())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = (requests(stage)?, calls(cloud), cpu_seconds(leader)?);
    tokio::time::sleep(REST).await;
    let after = (requests(stage)?, calls(cloud), cpu_seconds(leader)?);
    println!(
        "at rest, a minute: {} requests to the API server (the lease, watches begun anew), {} to the cloud, {:.2} CPU seconds",
        after.0 - before.0,
        after.1 - before.1,
        after.2 - before.2
    );
    Ok(())
}

/// Requests of the controller's account so far.
fn requests(stage: &Stage) -> Result<usize> {
    let log = std::fs::read_to_string(stage.cluster.audit_log())?;
    let ours = r#""username":"system:serviceaccount:ip-address-controller:ip-address-controller""#;
    let done = r#""stage":"ResponseComplete""#;
    Ok(log.lines().filter(|line| line.contains(ours) && line.contains(done)).count())
}

fn calls(cloud: &Played) -> usize {
    cloud.simulator().events(0).iter().filter(|event| event.kind == sim::Kind::Call).count()
}

/// User and system time so far.
fn cpu_seconds(replica: &Replica) -> Result<f64> {
    let id = replica.process.id().context("it does not run")?;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields = stat.rsplit_once(')').context("no such format")?.1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

/// From now on the 10,000 pods are those of the allocation's workload.
async fn refer(stage: &Stage) -> Result<()> {
    let api: Api<crds::NetIPAllocation> = Api::all(stage.cluster.client());
    let reference = json!({ "kind": "Deployment", "name": "load", "namespace": "default" });
    let patch = Patch::Merge(json!({ "spec": { "workloadRef": reference } }));
    api.patch("bench", &PatchParams::default(), &patch).await?;
    Ok(())
}
