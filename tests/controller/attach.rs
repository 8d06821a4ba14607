//! How an address comes to a node.

use crate::memory::Verb;
use crate::scene::unmarked;
use crate::stage::Stage;
use anyhow::{Result, ensure};
use serde_json::json;

pub async fn an_address_is_attached_and_its_pods_follow(stage: &Stage) -> Result<()> {
    let scene = stage.scene("first-attach", 3, 1).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    scene.workload("Deployment", 2, true, 0).await?;
    let wait = ["wait", "--for=condition=Ready", "nia/first-attach", "--timeout=60s"];
    stage.cluster.kubectl(&wait).await?.ok()?;
    let places = scene.settled().await?;
    ensure!(places == [1], "by name, the first node: {places:?}");
    ensure!(scene.pods_ready(2).await? == [1, 1], "pods run where the address is");
    let writes = stage.cloud.writes(scene.addresses[0]);
    ensure!(writes == [(Verb::Attach, scene.instance(1))], "one call: {writes:?}");
    for other in [2, 3] {
        ensure!(unmarked(&scene.node(other).await?), "no other node is marked");
    }
    scene.moves(&[0]);
    scene.ends_on(&[1, 2, 3]);
    Ok(())
}

pub async fn what_is_attached_already_is_adopted_without_a_move(stage: &Stage) -> Result<()> {
    let scene = stage.scene("adopted", 3, 1).await?;
    scene.workload("Deployment", 1, false, 0).await?;
    stage.cloud.attach_by_hand(scene.addresses[0], &scene.instance(3))?;
    scene.pods_ready(1).await?;
    scene.allocate(scene.workload_ref("Deployment")).await?;
    ensure!(scene.settled().await? == [3], "it stays where it was");
    scene.reason(0, "Adopted").await?;
    ensure!(stage.cloud.writes(scene.addresses[0]).is_empty(), "no call at all");
    scene.moves(&[0]);
    Ok(())
}

pub async fn more_addresses_than_nodes_is_no_error(stage: &Stage) -> Result<()> {
    let scene = stage.scene("more-addresses", 2, 3).await?;
    scene.allocate(json!({})).await?;
    scene.condition("Ready", "False", "MoreAddressesThanNodes").await?;
    scene.condition("Degraded", "False", "").await?;
    let places = scene.places();
    ensure!(places.iter().flatten().count() == 2 && places[2].is_none(), "in order of the list: {places:?}");
    scene.reason(2, "WaitingForNode").await?;
    scene.add_node(3).await?;
    scene.settled().await?;
    scene.moves(&[0, 0, 0]);
    scene.ends_on(&[1, 2, 3]);
    Ok(())
}
