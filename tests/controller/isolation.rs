//! One bad object, one failed read, one refused write never stops or harms the rest.

use crate::memory::{Fault, Verb};
use crate::proxy::{Proxy, Spoil};
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cloud::Class;
use cluster::eventually;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(15);

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// A workload whose pods nobody may list, one whose list is never answered, and one whose Deployment may not
/// be read: the neighbour fails over, and so do they when their node is lost.
pub async fn workloads_that_cannot_be_listed_cost_nobody_else() -> Result<()> {
    let stage = Stage::empty().await?;
    let proxy = Proxy::start(stage.config()).await?;
    let deployments = "/apis/apps/v1/namespaces/unreadable/deployments";
    proxy.spoil(None, &pods("forbidden"), usize::MAX, Spoil::Forbid);
    proxy.spoil(None, &pods("hanging"), usize::MAX, Spoil::Hang);
    proxy.spoil(None, deployments, usize::MAX, Spoil::Forbid);
    let replica = stage.replica_through(proxy.config()?, "controller", None, LEASE)?;
    let mut bad = Vec::new();
    for name in ["forbidden", "hanging", "unreadable"] {
        let scene = stage.scene(name, 2, 1).await?;
        scene.workload("Deployment", 1, true, 0).await?;
        scene.allocate(scene.workload_ref("Deployment")).await?;
        bad.push(scene);
    }
    eventually("all of them to have been asked for", async || {
        let hits = [pods("forbidden"), pods("hanging"), deployments.to_owned()].map(|path| proxy.hits(&path));
        ensure!(hits.iter().all(|hits| *hits > 0), "{hits:?}");
        Ok(())
    })
    .await?;
    let healthy = stage.scene("healthy", 2, 1).await?;
    healthy.allocate(healthy.workload_ref("Deployment")).await?;
    healthy.workload("Deployment", 1, true, 0).await?;
    let first = healthy.settled().await?[0];
    healthy.pods_ready(1).await?;
    healthy.drain(first).await?;
    healthy.arrives(0, 3 - first).await?;
    ensure!(replica.pulse.borrow().missing.is_none(), "ready: {:?}", replica.pulse.borrow());
    for scene in &bad {
        let first = scene.settled().await?[0];
        stage.cluster.nodes().delete(&scene.node_name(first)).await?;
        scene.leaves(0, first).await.context("an involuntary move goes on")?;
    }
    // The same for one who begins in this state.
    replica.stop().await?;
    let replica = stage.replica_through(proxy.config()?, "successor", None, LEASE)?;
    healthy.uncordon(first).await?;
    healthy.pods_ready(1).await?;
    healthy.drain(3 - first).await?;
    healthy.arrives(0, first).await?;
    replica.stop().await
}

/// A list that is never answered is given up and begun anew. Until then the workload's own allocation says
/// what it waits for, and a neighbour fails over; afterwards it drains like any other.
pub async fn a_list_that_hangs_once_is_begun_anew() -> Result<()> {
    let stage = Stage::empty().await?;
    let proxy = Proxy::start(stage.config()).await?;
    proxy.spoil(Some("GET"), &pods("once"), 1, Spoil::Hang);
    let replica = stage.replica_through(proxy.config()?, "controller", None, LEASE)?;
    let healthy = stage.scene("healthy", 2, 1).await?;
    healthy.workload("Deployment", 1, true, 0).await?;
    healthy.allocate(healthy.workload_ref("Deployment")).await?;
    let first = healthy.settled().await?[0];
    healthy.pods_ready(1).await?;
    let scene = stage.scene("once", 2, 1).await?;
    scene.workload("Deployment", 1, true, 0).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.condition("Degraded", "True", "WorkloadUnknown").await?;
    ensure!(proxy.hits(&pods("once")) == 1, "the list hangs");
    healthy.drain(first).await?;
    healthy.arrives(0, 3 - first).await?;
    scene.condition("Degraded", "False", "").await?;
    ensure!(proxy.hits(&pods("once")) == 1, "it hung once");
    let first = scene.settled().await?[0];
    scene.pods_ready(1).await?;
    scene.drain(first).await?;
    scene.arrives(0, 3 - first).await.context("a move by choice, which asks for the list")?;
    replica.stop().await
}

/// What is known of the nodes is old: that is said, and everything that can go on does.
pub async fn a_watch_of_nodes_that_fails_is_told_and_stops_nothing() -> Result<()> {
    let stage = Stage::empty().await?;
    let proxy = Proxy::start(stage.config()).await?;
    let replica = stage.replica_through(proxy.config()?, "controller", None, LEASE)?;
    let later = stage.scene("later", 2, 1).await?;
    let before = stage.scene("before", 2, 1).await?;
    before.allocate(json!({})).await?;
    // The nodes of the other one came first, so that they are known too.
    before.settled().await?;
    let outdated = || replica.pulse.borrow().outdated.clone();
    ensure!(outdated().is_none(), "{:?}", outdated());
    proxy.spoil(Some("GET"), "/api/v1/nodes", usize::MAX, Spoil::Forbid);
    proxy.cut();
    eventually("the watch of nodes to be named", async || {
        let named = outdated().is_some_and(|what| what.starts_with("nodes: 403"));
        ensure!(named, "{:?} after {} refusals", outdated(), proxy.hits("/api/v1/nodes"));
        Ok(())
    })
    .await?;
    let ready = |value: &str| {
        let metrics = replica.metrics();
        metrics
            .lines()
            .any(|line| line.starts_with("netipallocation_controller_ready{") && line.ends_with(value))
    };
    ensure!(ready(" 0"), "{}", replica.metrics());
    ensure!(replica.pulse.borrow().missing.is_none() && replica.is_leading(), "{:?}", replica.pulse.borrow());
    later.allocate(json!({})).await?;
    later.settled().await.context("with the nodes that were known")?;
    proxy.heal("/api/v1/nodes");
    eventually("nodes to be watched again", async || {
        ensure!(outdated().is_none() && ready(" 1"), "{:?}", outdated());
        Ok(())
    })
    .await?;
    replica.stop().await
}

/// A budget that refuses is told, and costs no more time than it refuses.
pub async fn an_eviction_that_a_budget_refuses_is_told_and_done_when_it_may_be() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, LEASE)?;
    let scene = stage.scene("budget", 2, 1).await?;
    scene.workload("Deployment", 1, false, 0).await?;
    scene
        .apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "web", "namespace": scene.name },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": scene.name } } },
        }))
        .await?;
    let misplaced = scene.pods_ready(1).await?[0];
    // The address goes to the other node.
    scene.cordon(misplaced).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.arrives(0, 3 - misplaced).await?;
    scene.condition("Degraded", "True", "EvictionRefused").await?;
    ensure!(scene.pods_ready(1).await? == [misplaced], "the budget is honoured");
    let budget = ["delete", "poddisruptionbudget", "web", "-n", &scene.name];
    stage.cluster.kubectl(&budget).await?.ok()?;
    eventually("the pod to be evicted once the budget is gone", async || {
        let here = scene.pods().await?.iter().any(|pod| crate::scene::number_of(pod) == misplaced);
        ensure!(!here, "it is still there: {}", scene.story().await?);
        Ok(())
    })
    .await?;
    replica.stop().await
}

/// The next reading is an hour away, and the one under way was begun before the address was asked for.
pub async fn an_address_added_during_an_audit_is_read_right_after_it() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, LEASE)?;
    let scene = stage.scene("meanwhile", 3, 2).await?;
    let first = scene.addresses[0];
    scene.allocate(json!({ "reservedIPs": [first], "reconcileInterval": 3600 })).await?;
    scene.condition("Ready", "True", "").await?;
    let memory = stage.cloud.memory();
    let slow = scene.spoil(Verb::Read, 1, Fault::Delay(Duration::from_secs(3)));
    let reads = memory.reads();
    scene.add_node(4).await?;
    eventually("the slow reading to begin", async || {
        ensure!(!stage.cloud.is_to_come(&slow), "not yet");
        Ok(())
    })
    .await?;
    scene.change(json!({ "reservedIPs": scene.addresses })).await?;
    ensure!(memory.reads() == reads, "it was still under way");
    scene.settled().await?;
    replica.stop().await
}

/// The address is on nothing while nobody knows; the next audit is an hour away.
pub async fn a_read_back_that_fails_is_repeated_in_seconds() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, LEASE)?;
    let scene = stage.scene("repeated", 2, 1).await?;
    scene.allocate(json!({ "reconcileInterval": 3600 })).await?;
    let mut from = scene.settled().await?[0];
    for (times, class) in [(1, Class::Transient), (3, Class::Transient), (1, Class::Denied)] {
        let fault = scene.spoil(Verb::Read, times, Fault::Error(class));
        scene.cordon(from).await?;
        scene.arrives(0, 3 - from).await?;
        ensure!(!stage.cloud.is_to_come(&fault), "the reading failed {times} times");
        stage.cloud.heal(&fault);
        scene.uncordon(from).await?;
        from = 3 - from;
    }
    replica.stop().await
}

/// A read that was lost once is no reason to say that nothing is known.
pub async fn one_throttled_read_changes_no_status() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, LEASE)?;
    let scene = stage.scene("once", 2, 1).await?;
    scene.allocate(json!({ "reconcileInterval": 5 })).await?;
    scene.settled().await?;
    let before = scene.allocations().get(&scene.name).await?.metadata.resource_version;
    let fault = scene.spoil(Verb::Read, 1, Fault::Error(Class::Throttled));
    eventually("an audit to fail", async || {
        ensure!(!stage.cloud.is_to_come(&fault), "not yet");
        Ok(())
    })
    .await?;
    let reads = stage.cloud.memory().reads();
    eventually("the next to succeed", async || {
        ensure!(stage.cloud.memory().reads() > reads, "not yet");
        Ok(())
    })
    .await?;
    let after = scene.allocations().get(&scene.name).await?.metadata.resource_version;
    ensure!(before == after, "the status was written: {}", scene.story().await?);
    replica.stop().await
}

/// A bug in what talks to a cloud costs the step or the reading that it strikes. What was done before the panic is
/// read back, and not done twice.
pub async fn a_panic_costs_one_step_or_one_reading() -> Result<()> {
    let stage = Stage::empty().await?;
    let replica = stage.replica("controller", None, LEASE)?;
    let scene = stage.scene("bug", 2, 1).await?;
    let beside = stage.scene("beside", 2, 1).await?;
    scene.allocate(json!({})).await?;
    beside.allocate(json!({})).await?;
    let (mut from, mut other) = (scene.settled().await?[0], beside.settled().await?[0]);
    for verb in [Verb::Preflight, Verb::Detach, Verb::Attach, Verb::Read] {
        let before = stage.cloud.writes(scene.addresses[0]).len();
        let fault = scene.spoil(verb, 1, Fault::Panic);
        scene.cordon(from).await?;
        scene.arrives(0, 3 - from).await.with_context(|| format!("a panic in {verb:?}"))?;
        ensure!(!stage.cloud.is_to_come(&fault), "nothing panicked in {verb:?}");
        stage.cloud.heal(&fault);
        let writes = stage.cloud.writes(scene.addresses[0]).split_off(before);
        ensure!(writes.len() == 2, "{verb:?}: one detach and one attach, and not {writes:?}");
        beside.cordon(other).await?;
        beside.arrives(0, 3 - other).await?;
        for (scene, node) in [(&scene, &mut from), (&beside, &mut other)] {
            scene.uncordon(*node).await?;
            *node = 3 - *node;
        }
    }
    ensure!(replica.is_leading(), "the same process leads on");
    replica.stop().await
}

/// However much there is to write, few writes are under way at once, and a throttled one is repeated.
pub async fn many_allocations_are_written_a_few_at_a_time() -> Result<()> {
    const ALLOCATIONS: usize = 200;
    let stage = Stage::empty().await?;
    let scene = stage.scene("urgent", 2, 1).await?;
    let manifests: Vec<_> = (0..ALLOCATIONS)
        .map(|number| {
            let (high, low) = (number / 250, number % 250 + 1);
            json!({
                "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
                "metadata": { "name": format!("idle-{number}") },
                "spec": {
                    "reservedIPs": [format!("203.0.{high}.{low}")], "cloud": { "provider": "gcp" },
                    "nodeSelector": { "pool": "nobody" },
                },
            })
        })
        .collect();
    scene.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": manifests })).await?;
    scene.allocate(json!({})).await?;
    let proxy = Proxy::start(stage.config()).await?;
    let path = "/apis/netinfra.darkbrains.com/v1alpha1/netipallocations/idle-";
    proxy.spoil(Some("PATCH"), path, 5, Spoil::Throttle);
    let replica = stage.replica_through(proxy.config()?, "controller", None, LEASE)?;
    scene.settled().await?;
    eventually("every status to be written", async || {
        let all = scene.allocations().list(&kube::api::ListParams::default()).await?.items;
        let bare = all.iter().filter(|object| object.status.is_none()).count();
        ensure!(bare == 0, "{bare} have none");
        Ok(())
    })
    .await?;
    ensure!(proxy.hits(path) == 5, "throttled {} times", proxy.hits(path));
    let most = proxy.most_writing();
    ensure!((2..=8).contains(&most), "{most} writes were under way at once");
    ensure!(replica.is_leading(), "the lease was renewed all the while");
    replica.stop().await
}

/// What the controller tells two kinds of 422 apart by.
pub async fn a_failed_test_of_a_patch_and_an_invalid_object_are_told_apart() -> Result<()> {
    let stage = Stage::empty().await?;
    let scene = stage.scene("patches", 1, 0).await?;
    let nodes: Api<Node> = Api::all(scene.client());
    let causes = async |operations: serde_json::Value| -> Result<Vec<String>> {
        let patch = Patch::Json::<()>(serde_json::from_value(operations)?);
        match nodes.patch(&scene.node_name(1), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) => {
                ensure!(status.code == 422, "{status:?}");
                let causes = status.details.into_iter().flat_map(|details| details.causes);
                Ok(causes.map(|cause| cause.reason).collect())
            }
            other => anyhow::bail!("{other:?}"),
        }
    };
    let test = json!([{ "op": "test", "path": "/metadata/uid", "value": "another" }]);
    ensure!(causes(test.clone()).await?.is_empty(), "{:?}", causes(test).await?);
    let gone = json!([{ "op": "remove", "path": "/metadata/labels/ip.ready" }]);
    ensure!(causes(gone.clone()).await?.is_empty(), "{:?}", causes(gone).await?);
    let long = "x".repeat(64);
    let invalid = json!([{ "op": "add", "path": "/metadata/labels/ip.ready", "value": long }]);
    ensure!(!causes(invalid).await?.is_empty(), "the fields are named");
    Ok(())
}
