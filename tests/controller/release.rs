//! Deletion, and what is left behind.

use crate::memory::{Fault, Verb};
use crate::scene::{Scene, unmarked};
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cloud::Class;
use cluster::eventually;
use serde_json::json;
use std::time::Duration;

impl Scene<'_> {
    async fn gone(&self) -> Result<()> {
        eventually(&format!("{} to be gone", self.name), async || {
            let object = self.allocations().get_opt(&self.name).await?;
            ensure!(object.is_none(), "{}", self.story().await.unwrap_or_default());
            Ok(())
        })
        .await
    }
}

pub async fn deletion_detaches(stage: &Stage) -> Result<()> {
    let scene = stage.scene("deleted", 2, 2).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    scene.delete_allocation().await?;
    scene.gone().await?;
    ensure!(scene.places() == [None, None], "detached before the object is gone");
    scene.moves(&[1, 1]);
    for node in [1, 2] {
        ensure!(unmarked(&scene.node(node).await?), "no marks are left");
    }
    Ok(())
}

pub async fn deletion_with_retain_leaves_the_addresses(stage: &Stage) -> Result<()> {
    let scene = stage.scene("retained", 1, 1).await?;
    scene.allocate(json!({ "releasePolicy": "Retain" })).await?;
    scene.settled().await?;
    scene.delete_allocation().await?;
    scene.gone().await?;
    ensure!(scene.places() == [Some(1)], "it stays");
    ensure!(stage.cloud.writes(scene.addresses[0]).len() == 1, "no call but the attach");
    scene.moves(&[0]);
    Ok(())
}

pub async fn deletion_when_node_and_machine_are_gone(stage: &Stage) -> Result<()> {
    let scene = stage.scene("deleted-late", 1, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    stage.cloud.terminate(&scene.instance(1))?;
    stage.cluster.nodes().delete(&scene.node_name(1)).await?;
    scene.delete_allocation().await?;
    scene.gone().await?;
    Ok(())
}

/// The attach lands when the node is gone already and the machine is not: nobody's node holds the address
/// by then, and still it is ours to take off.
pub async fn deletion_while_an_attach_is_on_its_way_to_a_node_that_goes(stage: &Stage) -> Result<()> {
    let scene = stage.scene("on-its-way", 1, 1).await?;
    let address = scene.addresses[0];
    let slow = Fault::Delay(Duration::from_secs(3));
    let slow = scene.spoil(Verb::Attach, 1, slow);
    scene.allocate(json!({})).await?;
    eventually("the attach to be on its way", async || {
        ensure!(!stage.cloud.is_to_come(&slow), "not yet");
        Ok(())
    })
    .await?;
    stage.cluster.nodes().delete(&scene.node_name(1)).await?;
    scene.delete_allocation().await?;
    scene.gone().await?;
    let writes = stage.cloud.writes(address);
    let machine = scene.instance(1);
    ensure!(writes == [(Verb::Attach, machine.clone()), (Verb::Detach, machine)], "on and off: {writes:?}");
    ensure!(scene.places() == [None], "detached before the object is gone");
    Ok(())
}

pub async fn a_cloud_that_refuses_everything_is_let_go_with_retain(stage: &Stage) -> Result<()> {
    let scene = stage.scene("refused", 1, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    scene.spoil(Verb::Detach, usize::MAX, Fault::Error(Class::Denied));
    scene.delete_allocation().await?;
    scene.reason(0, "PermissionDenied").await?;
    let status = scene.status().await?;
    let message = status.ips[0].message.clone().unwrap_or_default();
    ensure!(message.contains("Retain"), "it says how to let it go: {message}");
    scene.change(json!({ "releasePolicy": "Retain" })).await?;
    scene.gone().await?;
    Ok(())
}

pub async fn pods_that_wait_for_a_gone_allocation_come_back(stage: &Stage) -> Result<()> {
    let scene = stage.scene("stranded", 1, 1).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.settled().await?;
    // Its pods can run nowhere: the only node of the allocation is cordoned.
    scene.cordon(1).await?;
    scene.workload("Deployment", 1, true, 0).await?;
    let first = eventually("a pod that waits", async || {
        let pods = scene.pods().await?;
        ensure!(pods.len() == 1, "not yet");
        Ok(pods[0].metadata.uid.clone())
    })
    .await?;
    scene.delete_allocation().await?;
    scene.gone().await?;
    eventually("another pod in its place", async || {
        let pods = scene.pods().await?;
        ensure!(pods.iter().all(|pod| pod.metadata.uid != first), "it still waits");
        Ok(())
    })
    .await?;
    Ok(())
}
