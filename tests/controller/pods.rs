//! Pods in the wrong place, and DaemonSets.

use crate::scene::is_ready;
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cluster::eventually;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

pub async fn a_webhook_that_never_injects_ends_in_one_eviction(stage: &Stage) -> Result<()> {
    let scene = stage.scene("never-injected", 2, 1).await?;
    // Two pods that never come to the node of the address: one that did by chance would show that evictions help.
    scene
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": scene.name },
            "spec": { "replicas": 2, "selector": { "matchLabels": { "app": scene.name } }, "template": {
                "metadata": { "labels": { "app": scene.name } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": scene.node_name(2) },
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{ "name": "web", "image": "registry.example/web" }],
                },
            } },
        }))
        .await?;
    scene.pods_ready(2).await?;
    let before: Vec<_> = scene.pods().await?.into_iter().map(|pod| pod.metadata.uid).collect();
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.condition("Degraded", "True", "EvictionStopped").await?;
    ensure!(scene.places() == [Some(1)], "{:?}", scene.places());
    let after = scene.pods().await?;
    let kept = after.iter().filter(|pod| before.contains(&pod.metadata.uid)).count();
    ensure!(kept + 1 >= before.len(), "more than one was evicted");
    let events: Api<Event> = Api::namespaced(scene.client(), &scene.name);
    eventually("the pod's event to tell why it had to go", async || {
        let told = events.list(&ListParams::default().fields("reason=Misplaced")).await?.items;
        let gone = told.first().and_then(|event| event.regarding.clone()?.uid);
        ensure!(told.len() == 1 && before.contains(&gone), "{told:?}");
        Ok(())
    })
    .await?;
    Ok(())
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
        let mut numbers: Vec<usize> = pods.iter().filter(ours).map(crate::scene::number_of).collect();
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
        // The change of the template replaces the pod that stays, too.
        let set = sets.get("web").await?;
        let status = set.status.unwrap_or_default();
        let current = status.observed_generation == set.metadata.generation;
        let rolled_out = status.updated_number_scheduled == Some(1) && status.number_ready == 1;
        ensure!(current && rolled_out, "{status:?}");
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
    Ok(())
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
    Ok(())
}
