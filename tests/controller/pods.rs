//! Pods in the wrong place, and DaemonSets.

use crate::stage::{Stage, is_ready};
use anyhow::{Result, ensure};
use cluster::eventually;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use serde_json::json;

pub async fn a_webhook_that_never_injects_ends_in_one_eviction(stage: &Stage) -> Result<()> {
    let scene = stage.scene("never-injected", 2, 1).await?;
    // Two pods that may go anywhere, and one node that holds the address.
    scene.workload("Deployment", 2, false, 0).await?;
    scene.pods_ready(2).await?;
    let before: Vec<_> = scene.pods().await?.into_iter().map(|pod| pod.metadata.uid).collect();
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.condition("Degraded", "True", "EvictionStopped").await?;
    let after = scene.pods().await?;
    let kept = after.iter().filter(|pod| before.contains(&pod.metadata.uid)).count();
    ensure!(kept + 1 >= before.len(), "more than one was evicted");
    scene.no_violations()
}

pub async fn pods_made_without_the_webhook_end_on_the_right_nodes(stage: &Stage) -> Result<()> {
    let scene = stage.scene("uninjected", 4, 3).await?;
    scene.workload("Deployment", 10, false, 0).await?;
    scene.pods_ready(10).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "uninjected" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "uninjected" } } },
    });
    scene.apply(&budget).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.settled().await?;
    // The webhook is back: new pods carry the requirement (a change of the template would replace all at
    // once, so the ReplicaSet's own template is changed, which replaces none).
    let requirement = webhook::affinity::inject(
        &json!({}),
        "/spec/template/spec",
        &std::collections::BTreeSet::from([scene.name.clone()]),
    );
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::namespaced(scene.client(), &scene.name);
    let set = sets.list(&kube::api::ListParams::default()).await?.items.remove(0);
    let patch = kube::api::Patch::Json::<()>(requirement);
    sets.patch(&set.metadata.name.unwrap_or_default(), &kube::api::PatchParams::default(), &patch).await?;
    let homes = scene.settled().await?;
    loop {
        let pods = scene.pods().await?;
        let up = pods.iter().filter(|pod| is_ready(pod)).count();
        ensure!(up >= 9, "more than one pod is down");
        let placed = pods.iter().filter(|pod| is_ready(pod) && homes.contains(&scene.number_of(pod))).count();
        if placed == 10 {
            break;
        }
        let degraded = scene.status().await?.conditions;
        let stopped = degraded.iter().any(|c| c.reason == "EvictionStopped");
        ensure!(!stopped, "evictions stopped: {}", scene.story().await?);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    scene.no_violations()
}

pub async fn a_running_daemon_set_loses_no_pod_before_a_node_is_marked(stage: &Stage) -> Result<()> {
    let scene = stage.scene("daemons", 2, 1).await?;
    scene.workload("DaemonSet", 0, false, 0).await?;
    let sets: Api<DaemonSet> = Api::namespaced(scene.client(), &scene.name);
    // It runs on every node of the stage; ours are two of them.
    let here = async || -> Result<Vec<usize>> {
        let pods = scene.pods().await?;
        let ours = |pod: &&k8s_openapi::api::core::v1::Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            node.starts_with("daemons-") && is_ready(pod)
        };
        let mut numbers: Vec<usize> = pods.iter().filter(ours).map(|pod| scene.number_of(pod)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    };
    eventually("a pod on both nodes", async || {
        let numbers = here().await?;
        ensure!(numbers == [1, 2], "{numbers:?}");
        Ok(())
    })
    .await?;
    scene.allocate(scene.workload_ref("DaemonSet")).await?;
    eventually("its pods only where the address is", async || {
        let numbers = here().await?;
        ensure!(numbers.contains(&1), "the node with the address lost its pod");
        ensure!(numbers == [1], "{numbers:?}");
        Ok(())
    })
    .await?;
    // Cordoned, it keeps the address while its pod lives, and says so.
    scene.cordon(1).await?;
    scene.reason(0, "WaitingForDaemonSetPod").await?;
    ensure!(scene.places() == [Some(1)], "it stays");
    scene.delete_allocation().await?;
    eventually("the template to be as it was", async || {
        let set = sets.get("web").await?;
        let pod = set.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
        ensure!(pod.affinity.is_none(), "{:?}", pod.affinity);
        Ok(())
    })
    .await?;
    scene.no_violations()
}

pub async fn a_stateful_set_follows_its_address(stage: &Stage) -> Result<()> {
    let scene = stage.scene("stateful", 2, 1).await?;
    scene.allocate(scene.workload_ref("StatefulSet")).await?;
    scene.workload("StatefulSet", 1, true, 0).await?;
    scene.settled().await?;
    ensure!(scene.pods_ready(1).await? == [1], "where the address is");
    scene.drain(1).await?;
    scene.arrives(0, 2).await?;
    ensure!(scene.pods_ready(1).await? == [2], "it follows");
    scene.no_violations()
}
