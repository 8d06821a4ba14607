//! When an address leaves its node, and when it does not.

use crate::memory::Verb;
use crate::scene::{Scene, unmarked};
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cluster::eventually;
use serde_json::json;

/// A scene with one address on node 1 and a Deployment of one pod there.
async fn with_deployment<'s>(stage: &'s Stage, name: &str, nodes: usize, grace: u32) -> Result<Scene<'s>> {
    let scene = stage.scene(name, nodes, 1).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.workload("Deployment", 1, true, grace).await?;
    ensure!(scene.settled().await? == [1], "it begins on the first node");
    ensure!(scene.pods_ready(1).await? == [1], "and so does the pod");
    Ok(scene)
}

/// A scene with one address on node 1 and no workload.
async fn bare<'s>(stage: &'s Stage, name: &str, nodes: usize) -> Result<Scene<'s>> {
    let scene = stage.scene(name, nodes, 1).await?;
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "it begins on the first node");
    Ok(scene)
}

impl Scene<'_> {
    /// The address moved once, from the first node to another, and nothing else was called; nor will it be.
    fn moved_once(&self, to: usize) -> Result<()> {
        let writes = self.stage.cloud.writes(self.addresses[0]);
        let expected = [
            (Verb::Attach, self.instance(1)),
            (Verb::Detach, self.instance(1)),
            (Verb::Attach, self.instance(to)),
        ];
        ensure!(writes == expected, "one move to node {to}: {writes:?}");
        self.moves(&[1]);
        self.ends_on(&[to]);
        Ok(())
    }
}

pub async fn a_cordoned_node_keeps_it_while_a_pod_runs(stage: &Stage) -> Result<()> {
    let scene = with_deployment(stage, "cordon", 2, 0).await?;
    scene.cordon(1).await?;
    scene
        .nothing_happens("the address stays while the pod runs", async || {
            ensure!(scene.places() == [Some(1)], "it left");
            Ok(())
        })
        .await?;
    ensure!(stage.cloud.writes(scene.addresses[0]).len() == 1, "no call");
    scene.moves(&[0]);
    Ok(())
}

pub async fn a_drained_node_loses_it_once_the_last_pod_is_really_gone(stage: &Stage) -> Result<()> {
    let scene = with_deployment(stage, "drain", 3, 20).await?;
    let drain = scene.drain(1);
    let watch = async {
        // As long as the pod takes its time to end, the address stays.
        eventually("the pod to be told to end", async || {
            let pods = scene.pods().await?;
            ensure!(pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some()), "not yet");
            Ok(())
        })
        .await?;
        loop {
            let place = scene.places()[0];
            let ending = scene.pods().await?.iter().any(|pod| crate::scene::number_of(pod) == 1);
            if !ending {
                return Ok::<_, anyhow::Error>(());
            }
            // Looked up before the pod: had it left before the pod was gone, this would see it.
            ensure!(place == Some(1), "it left while the pod was still ending");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::try_join!(drain, watch)?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)?;
    ensure!(scene.pods_ready(1).await? == [2], "the pod follows");
    ensure!(unmarked(&scene.node(1).await?), "the old node has no marks");
    let history = scene.status().await?.history;
    ensure!(history[0].cause == "NodeDrained", "the history says why: {history:?}");
    Ok(())
}

pub async fn an_autoscalers_taint_is_a_drain(stage: &Stage) -> Result<()> {
    for (name, taint) in
        [("scaled-down", "ToBeDeletedByClusterAutoscaler"), ("disrupted", "karpenter.sh/disrupted")]
    {
        let scene = with_deployment(stage, name, 2, 0).await?;
        scene.taint(1, taint, "NoSchedule").await?;
        scene
            .nothing_happens("the pod still runs", async || {
                ensure!(scene.places() == [Some(1)], "it left");
                Ok(())
            })
            .await?;
        let pod = scene.pods().await?.remove(0);
        let pod = pod.metadata.name.unwrap_or_default();
        stage.cluster.kubectl(&["delete", "pod", "-n", name, &pod]).await?.ok()?;
        scene.arrives(0, 2).await?;
        scene.moved_once(2)?;
    }
    Ok(())
}

pub async fn without_a_target_nothing_is_detached(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "no-target", 1).await?;
    scene.cordon(1).await?;
    scene.reason(0, "WaitingForTarget").await?;
    scene
        .nothing_happens("no node, no detach", async || {
            ensure!(scene.places() == [Some(1)], "it left");
            Ok(())
        })
        .await?;
    scene.add_node(2).await?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)
}

pub async fn a_drain_that_hangs_ends_with_its_timeout(stage: &Stage) -> Result<()> {
    let scene = with_deployment(stage, "drain-timeout", 2, 0).await?;
    scene.change(json!({ "failover": { "drainTimeoutSeconds": 3 } })).await?;
    scene.cordon(1).await?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)?;
    let history = scene.status().await?.history;
    ensure!(history[0].cause == "DrainTimeout", "{history:?}");
    Ok(())
}

pub async fn a_deleted_node_loses_it(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "node-deleted", 2).await?;
    stage.cluster.nodes().delete(&scene.node_name(1)).await?;
    scene.arrives(0, 2).await?;
    // The machine was still there, so the address had to be taken from it.
    scene.moved_once(2)
}

pub async fn a_node_and_its_machine_gone_at_once(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "machine-gone", 2).await?;
    stage.cloud.terminate(&scene.instance(1))?;
    stage.cluster.nodes().delete(&scene.node_name(1)).await?;
    scene.arrives(0, 2).await?;
    Ok(())
}

pub async fn a_node_that_is_not_ready_for_longer_than_the_grace(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "not-ready", 2).await?;
    scene.change(json!({ "failover": { "notReadyGraceSeconds": 2 } })).await?;
    stage.cluster.nodes().mark_not_ready(&scene.node_name(1)).await?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)?;
    // No failback.
    stage.cluster.nodes().revive(&scene.node_name(1)).await?;
    scene
        .nothing_happens("it stays where it is", async || {
            ensure!(scene.places() == [Some(2)], "it went back");
            Ok(())
        })
        .await
}

pub async fn a_node_that_is_not_ready_for_less_than_the_grace(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "blip", 2).await?;
    scene.change(json!({ "failover": { "notReadyGraceSeconds": 3600 } })).await?;
    stage.cluster.nodes().mark_not_ready(&scene.node_name(1)).await?;
    scene.reason(0, "WaitingForGrace").await?;
    stage.cluster.nodes().revive(&scene.node_name(1)).await?;
    scene.settled().await?;
    ensure!(stage.cloud.writes(scene.addresses[0]).len() == 1, "a blip moves nothing");
    scene.moves(&[0]);
    Ok(())
}

pub async fn a_silent_node_loses_address_and_pods_at_once(stage: &Stage) -> Result<()> {
    let scene = with_deployment(stage, "silent", 2, 0).await?;
    stage.cluster.nodes().silence(&scene.node_name(1)).await?;
    scene.arrives(0, 2).await?;
    // Without us the pod would wait for its toleration of 300 s.
    eventually("a pod on the new node", async || {
        let pods = scene.pods().await?;
        let there = pods.iter().any(|pod| crate::scene::number_of(pod) == 2 && crate::scene::is_ready(pod));
        ensure!(there, "pods are on {:?}", pods.iter().map(crate::scene::number_of).collect::<Vec<_>>());
        Ok(())
    })
    .await?;
    scene.moved_once(2)
}

pub async fn a_machine_that_was_terminated_while_its_node_looks_ready(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "terminated", 2).await?;
    stage.cloud.stop(&scene.instance(1))?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)
}

pub async fn a_node_that_was_created_anew_under_the_same_name_inherits_nothing(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "recreated", 2).await?;
    let other = format!("{}-again", scene.instance(1));
    stage.cloud.terminate(&scene.instance(1))?;
    stage.cloud.add_instance(&other)?;
    scene.record.instance(&other);
    stage.cluster.nodes().recreate(scene.spec(1).provider_id(&other)).await?;
    // Both nodes can have it now; what counts is that marks and address agree again.
    eventually("marks and address to agree", async || {
        let holder = stage.cloud.holder(scene.addresses[0]);
        let number = if holder.as_deref() == Some(&*other) { 1 } else { 2 };
        ensure!(holder.is_some(), "it is nowhere");
        let node = scene.node(number).await?;
        ensure!(crate::scene::marked_for(&node, &scene.name, scene.addresses[0]), "not marked");
        ensure!(unmarked(&scene.node(3 - number).await?), "the other is marked too");
        Ok(())
    })
    .await?;
    Ok(())
}

pub async fn an_untolerated_no_execute_taint_drives_it_off(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "no-execute", 2).await?;
    scene.change(json!({ "tolerations": [] })).await?;
    scene.taint(1, "example.com/maintenance", "NoExecute").await?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)
}

pub async fn a_tainted_pool_works_with_the_predecessors_manifest(stage: &Stage) -> Result<()> {
    let scene = stage.scene("tainted-pool", 2, 1).await?;
    for node in [1, 2] {
        scene.taint(node, "dedicated", "NoSchedule").await?;
    }
    scene.allocate(json!({})).await?;
    ensure!(scene.settled().await? == [1], "the predecessor ignored taints");
    Ok(())
}

pub async fn selector_and_zones_can_change(stage: &Stage) -> Result<()> {
    let scene = bare(stage, "reshaped", 3).await?;
    scene.patch_node(2, json!({ "metadata": { "labels": { "tier": "edge" } } })).await?;
    scene.change(json!({ "nodeSelector": { "tier": "edge" } })).await?;
    scene.arrives(0, 2).await?;
    let zone = scene.spec(3).zone;
    scene.change(json!({ "nodeSelector": { "tier": null }, "cloud": { "zones": [zone] } })).await?;
    scene.arrives(0, 3).await?;
    scene.change(json!({ "cloud": { "region": "nowhere-1", "zones": null } })).await?;
    scene.reason(0, "WaitingForTarget").await?;
    ensure!(scene.places() == [Some(3)], "no node of the region: it stays");
    Ok(())
}

pub async fn addresses_come_and_go_and_change_places(stage: &Stage) -> Result<()> {
    let scene = stage.scene("relisted", 3, 3).await?;
    let list = |numbers: &[usize]| -> Vec<_> { numbers.iter().map(|n| scene.addresses[*n]).collect() };
    scene.allocate(json!({ "reservedIPs": list(&[0]) })).await?;
    eventually("the first", async || {
        ensure!(scene.places()[0].is_some(), "not yet");
        Ok(())
    })
    .await?;
    scene.change(json!({ "reservedIPs": list(&[0, 1, 2]) })).await?;
    let before = scene.settled().await?;
    scene.change(json!({ "reservedIPs": list(&[2, 1, 0]) })).await?;
    scene
        .nothing_happens("the order is no reason to move", async || {
            ensure!(scene.places().into_iter().flatten().eq(before.iter().copied()), "moved");
            Ok(())
        })
        .await?;
    scene.change(json!({ "reservedIPs": list(&[2, 0]) })).await?;
    eventually("the second to be released", async || {
        ensure!(stage.cloud.holder(scene.addresses[1]).is_none(), "still held");
        ensure!(unmarked(&scene.node(before[1]).await?), "still marked");
        let status = scene.status().await?;
        ensure!(status.ips.len() == 2, "status still lists it: {:?}", status.ips);
        Ok(())
    })
    .await?;
    Ok(())
}

pub async fn zones_are_kept_and_then_levelled(stage: &Stage) -> Result<()> {
    // Nodes 1 and 4 are in one zone.
    let scene = bare(stage, "zones", 4).await?;
    scene.cordon(1).await?;
    scene.arrives(0, 4).await?;
    scene.moved_once(4)
}

/// Table A, row 10: `web` is not `web-canary`, here or in another namespace.
pub async fn pods_with_similar_names_neither_hold_it_nor_are_touched(stage: &Stage) -> Result<()> {
    let scene = with_deployment(stage, "lookalike", 2, 0).await?;
    let other = "lookalike-other";
    stage.cluster.kubectl(&["create", "namespace", other]).await?.ok()?;
    for (name, namespace) in [("web-canary", "lookalike"), ("my-web", "lookalike"), ("web", other)] {
        scene
            .apply(&json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": name, "namespace": namespace },
                "spec": {
                    "selector": { "matchLabels": { "app": name } },
                    "template": {
                        "metadata": { "labels": { "app": name } },
                        "spec": {
                            "nodeName": scene.node_name(1),
                            "containers": [{ "name": "web", "image": "registry.example/web" }],
                        },
                    },
                },
            }))
            .await?;
    }
    eventually("the others to run there", async || {
        let pods = scene.pods().await?;
        ensure!(pods.iter().filter(|pod| crate::scene::is_ready(pod)).count() == 3, "not yet");
        Ok(())
    })
    .await?;
    let ours = scene.pods().await?.into_iter().find(|pod| {
        pod.metadata.labels.as_ref().is_some_and(|labels| labels.get("app") == Some(&scene.name))
    });
    let ours = ours.and_then(|pod| pod.metadata.name).unwrap_or_default();
    scene.cordon(1).await?;
    stage.cluster.kubectl(&["delete", "pod", "-n", "lookalike", &ours]).await?.ok()?;
    scene.arrives(0, 2).await?;
    scene.moved_once(2)?;
    let left = scene.pods().await?.iter().filter(|pod| crate::scene::number_of(pod) == 1).count();
    ensure!(left == 2, "the others were left alone");
    Ok(())
}
