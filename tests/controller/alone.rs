//! What needs a stage of its own: rest, and leaders that come and go.

use crate::memory::{Fault, Verb};
use crate::stage::{Replica, Stage};
use anyhow::{Context as _, Result, ensure};
use cloud::Class;
use cluster::eventually;
use serde_json::{Value, json};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(6);

/// Writes in the audit log that the controller made, leases aside.
fn writes_of_ours(stage: &Stage) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(stage.cluster.audit_log())?;
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = entries.filter(|entry| {
        let user = entry["user"]["username"].as_str().unwrap_or_default();
        let verb = entry["verb"].as_str().unwrap_or_default();
        let writes = !matches!(verb, "get" | "list" | "watch");
        let lease = entry["objectRef"]["resource"] == "leases";
        user == "system:serviceaccount:ip-address-controller:ip-address-controller" && writes && !lease
    });
    Ok(ours.map(|entry| format!("{} {}", entry["verb"], entry["requestURI"])).collect())
}

/// A reading that began in the same millisecond as the write ended would have to be repeated, and that
/// would cost each move seconds.
pub async fn each_write_is_read_back_once() -> Result<()> {
    let stage = Stage::empty().await?;
    let _replica = stage.replica("alone", None, Duration::from_secs(15))?;
    let scene = stage.scene("read-back", 2, 1).await?;
    scene.allocate(json!({ "reconcileInterval": 3600 })).await?;
    for _ in 0..5 {
        let from = scene.settled().await?[0];
        let before = stage.cloud.memory().calls().len();
        scene.cordon(from).await?;
        scene.arrives(0, 3 - from).await?;
        scene.uncordon(from).await?;
        // A node's own address comes back beside everything else.
        let calls = stage.cloud.memory().calls().split_off(before).into_iter().map(|call| call.verb);
        let calls: Vec<Verb> = calls.filter(|verb| *verb != Verb::Restore).collect();
        let written = [Verb::Preflight, Verb::Detach, Verb::Read, Verb::Attach, Verb::Read];
        ensure!(calls == written, "{calls:?}");
    }
    Ok(())
}

pub async fn at_rest_nothing_is_written_and_reads_are_batches() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("alone", None, Duration::from_secs(15))?;
    let scene = stage.scene("rest", 6, 5).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.workload("Deployment", 5, true, 0).await?;
    scene.settled().await?;
    scene.pods_ready(5).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (writes, reads, calls) =
        (writes_of_ours(&stage)?.len(), stage.cloud.memory().reads(), stage.cloud.memory().calls().len());
    eventually("ten audits", async || {
        ensure!(
            stage.cloud.memory().reads() >= reads + 10,
            "{} so far",
            stage.cloud.memory().reads() - reads
        );
        Ok(())
    })
    .await?;
    let after = writes_of_ours(&stage)?;
    ensure!(after.len() == writes, "written at rest: {:?}", &after[writes..]);
    let calls = stage.cloud.memory().calls().len() - calls;
    ensure!(calls == stage.cloud.memory().reads() - reads, "only batch reads, one an audit: {calls} calls");
    for (name, labels, value) in [
        ("netipallocation_attached_ips_total", r#"crd_name="rest""#, 5),
        ("netipallocation_crd_status", r#"crd_name="rest""#, 1),
        ("netipallocation_controller_is_leader", r#"pod_name="alone""#, 1),
    ] {
        let metrics = replica.metrics();
        let line =
            metrics.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels));
        let line = line.with_context(|| format!("{name} is missing in\n{metrics}"))?;
        ensure!(line.contains(r#"cluster="test""#) && line.ends_with(&format!(" {value}")), "{line}");
    }
    scene.delete_allocation().await?;
    eventually("the series to go with the object", async || {
        let metrics = replica.metrics();
        let left = metrics.lines().find(|line| line.contains("ip_attached{"));
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    replica.stop().await
}

pub async fn a_leader_that_stops_hands_over_and_nothing_moves() -> Result<()> {
    let stage = Stage::empty().await?;
    let first = stage.replica("first", None, LEASE)?;
    eventually("the first to lead", async || {
        ensure!(first.is_leading(), "not yet");
        Ok(())
    })
    .await?;
    let second = stage.replica("second", None, LEASE)?;
    let scene = stage.scene("handover", 3, 2).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    ensure!(!second.is_leading(), "one leads");
    let before = stage.cloud.memory().calls().iter().filter(|call| call.verb != Verb::Read).count();
    first.stop().await.context("a leader that is told to stop ends well")?;
    eventually("the second to lead", async || {
        ensure!(second.is_leading(), "not yet");
        Ok(())
    })
    .await?;
    scene.cordon(1).await?;
    eventually("the second to act", async || {
        let places = scene.places();
        ensure!(places.iter().flatten().all(|place| *place != 1), "{places:?}");
        Ok(())
    })
    .await?;
    scene.settled().await?;
    let calls = stage.cloud.memory().calls();
    let after: Vec<_> = calls.iter().filter(|call| call.verb != Verb::Read).skip(before).collect();
    ensure!(after.iter().filter(|call| call.verb == Verb::Attach).count() == 1, "one move: {after:?}");
    second.stop().await
}

pub async fn a_leader_that_dies_in_the_middle_of_a_move_is_succeeded() -> Result<()> {
    let stage = Stage::empty().await?;
    let first = stage.replica("first", None, LEASE)?;
    let scene = stage.scene("died", 3, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    let second = stage.replica("second", None, LEASE)?;
    // The attach hangs, and the leader dies behind the detach.
    let hang = Fault::Delay(Duration::from_hours(1));
    stage.cloud.memory().script(Verb::Attach, Some(scene.addresses[0]), 1, hang);
    scene.cordon(1).await?;
    eventually("the address to be on its way", async || {
        let sent = !stage.cloud.memory().is_to_come(Verb::Attach, scene.addresses[0]);
        ensure!(scene.places() == [None] && sent, "not yet");
        Ok(())
    })
    .await?;
    first.kill();
    scene.arrives(0, 2).await?;
    ensure!(second.is_leading(), "the second did it");
    let restored = stage.cloud.memory().calls().iter().filter(|call| call.verb == Verb::Restore).count();
    ensure!(restored >= 1, "what the dead leader may not have given back is given back");
    let history = scene.status().await?.history;
    ensure!(history[0].from.as_deref() == Some("died-1"), "the move is told as one: {history:?}");
    second.stop().await
}

pub async fn an_api_server_that_is_gone_for_longer_than_the_lease_ends_the_leader() -> Result<()> {
    let stage = Stage::empty().await?;
    let leader = stage.replica("leader", None, LEASE)?;
    let scene = stage.scene("api-gone", 2, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    let before = stage.cloud.memory().calls().iter().filter(|call| call.verb != Verb::Read).count();
    stage.cluster.apiserver().kill().await?;
    let ended = tokio::time::timeout(Duration::from_mins(1), leader.ended()).await?;
    ensure!(ended.is_err(), "a lost lease is no good end");
    let after = stage.cloud.memory().calls().iter().filter(|call| call.verb != Verb::Read).count();
    ensure!(after == before, "nothing was written meanwhile");
    stage.cluster.apiserver().start().await?;
    let again = stage.replica("again", None, LEASE)?;
    scene.cordon(1).await?;
    scene.leaves(0, 1).await?;
    again.stop().await
}

pub async fn an_api_server_and_etcd_that_restart_change_nothing() -> Result<()> {
    let stage = Stage::empty().await?;
    let leader = stage.replica("leader", None, Duration::from_mins(1))?;
    let scene = stage.scene("restarts", 3, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    stage.cluster.apiserver().kill().await?;
    stage.cluster.apiserver().start().await?;
    scene.cordon(1).await?;
    let second = scene.leaves(0, 1).await?;
    stage.cluster.etcd().kill().await?;
    stage.cluster.etcd().start().await?;
    eventually("the API server to answer again", async || scene.cordon(second).await).await?;
    scene.leaves(0, second).await?;
    ensure!(leader.is_leading(), "it still leads");
    leader.stop().await
}

/// A watch that was cut off and finds its history compacted lists anew, and misses nothing.
pub async fn a_compacted_history_changes_nothing() -> Result<()> {
    let stage = Stage::empty().await?;
    let leader = stage.replica("leader", None, Duration::from_mins(1))?;
    let scene = stage.scene("compacted", 3, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    stage.cluster.apiserver().kill().await?;
    // What the controller knew last is older than anything that is left.
    stage.cluster.apiserver().start().await?;
    scene.cordon(1).await?;
    stage.cluster.compact().await?;
    let second = scene.leaves(0, 1).await?;
    stage.cluster.apiserver().kill().await?;
    stage.cluster.apiserver().start().await?;
    stage.cluster.nodes().delete(&scene.node_name(second)).await?;
    stage.cluster.compact().await?;
    scene.leaves(0, second).await?;
    leader.stop().await
}

pub async fn an_address_leaves_the_leaders_own_node_by_another_leader() -> Result<()> {
    let stage = Stage::empty().await?;
    let scene = stage.scene("own-node", 3, 1).await?;
    stage.cloud.attach_by_hand(scene.addresses[0], &scene.instance(1))?;
    let first = stage.replica("first", Some("own-node-1"), LEASE)?;
    eventually("the first to lead", async || {
        ensure!(first.is_leading(), "not yet");
        Ok(())
    })
    .await?;
    let second = stage.replica("second", Some("own-node-2"), LEASE)?;
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "adopted where it is");
    scene.cordon(1).await?;
    // Nor to the node that the new leader runs on.
    scene.arrives(0, 3).await?;
    ensure!(second.is_leading() && !first.is_leading(), "the lease was handed over first");
    let says = |replica: &Replica| replica.metrics().contains("ip_attached{");
    ensure!(says(&second) && !says(&first), "who does not lead says nothing of where addresses are");
    first.stop().await?;
    second.stop().await
}

pub async fn alone_it_moves_the_address_of_its_own_node_itself() -> Result<()> {
    let stage = Stage::empty().await?;
    let scene = stage.scene("lonely", 2, 1).await?;
    stage.cloud.attach_by_hand(scene.addresses[0], &scene.instance(1))?;
    let only = stage.replica("only", Some("lonely-1"), LEASE)?;
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "adopted where it is");
    scene.cordon(1).await?;
    scene.arrives(0, 2).await?;
    only.stop().await
}

/// How often a replica has begun to lead.
fn terms(replica: &Replica) -> Option<u64> {
    let metrics = replica.metrics();
    let line = metrics.lines().find(|line| line.starts_with("netipallocation_lease_transitions_total"))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Nobody takes the lease, and the cloud does not let the address go for longer than a lease lasts: others need a
/// leader meanwhile.
pub async fn alone_with_a_cloud_that_refuses_it_gives_the_lease_up_once() -> Result<()> {
    let stage = Stage::empty().await?;
    let scene = stage.scene("refused", 2, 1).await?;
    stage.cloud.attach_by_hand(scene.addresses[0], &scene.instance(1))?;
    let only = stage.replica("only", Some("refused-1"), LEASE)?;
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "adopted where it is");
    let beside = stage.scene("beside", 2, 1).await?;
    beside.allocate(json!({})).await?;
    let from = beside.settled().await?[0];
    let before = terms(&only).context("a term")?;
    let refused = scene.spoil(Verb::Detach, 5, Fault::Error(Class::Transient));
    scene.cordon(1).await?;
    eventually("the cloud to refuse", async || {
        let calls = stage.cloud.writes(scene.addresses[0]).len();
        ensure!(calls > 0, "not yet");
        Ok(())
    })
    .await?;
    beside.cordon(from).await?;
    beside.arrives(0, 3 - from).await.context("others go on")?;
    scene.arrives(0, 2).await?;
    ensure!(!stage.cloud.is_to_come(&refused), "it was refused five times");
    let terms = terms(&only).context("a term")?;
    ensure!(terms == before + 1, "the lease was given up {} times", terms - before);
    only.stop().await
}
