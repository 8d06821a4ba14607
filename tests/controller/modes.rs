//! Pause, Plan mode, storms, and several allocations at once.

use crate::scene::unmarked;
use crate::stage::Stage;
use anyhow::{Result, ensure};
use cluster::eventually;
use kube::ResourceExt as _;
use serde_json::json;

pub async fn paused_moves_nothing_and_goes_on_afterwards(stage: &Stage) -> Result<()> {
    let scene = stage.scene("paused", 2, 1).await?;
    scene.allocate(json!({})).await?;
    scene.settled().await?;
    scene.change(json!({ "paused": true })).await?;
    scene.cordon(1).await?;
    scene.reason(0, "Paused").await?;
    ensure!(scene.places() == [Some(1)], "it stays");
    scene.change(json!({ "paused": false })).await?;
    scene.arrives(0, 2).await?;
    Ok(())
}

pub async fn plan_mode_says_and_touches_nothing(stage: &Stage) -> Result<()> {
    let scene = stage.scene("plan-mode", 2, 1).await?;
    scene.allocate(json!({ "mode": "Plan" })).await?;
    let planned = eventually("a plan", async || {
        let status = scene.status().await?;
        ensure!(!status.plan.is_empty(), "none yet");
        Ok(status.plan)
    })
    .await?;
    ensure!(planned.len() == 1, "{planned:?}");
    let object = scene.allocations().get(&scene.name).await?;
    ensure!(object.finalizers().is_empty(), "no finalizer");
    ensure!(stage.cloud.writes(scene.addresses[0]).is_empty(), "no call");
    ensure!(unmarked(&scene.node(1).await?) && unmarked(&scene.node(2).await?), "no marks");
    scene.change(json!({ "mode": "Enforce" })).await?;
    scene.settled().await?;
    Ok(())
}

pub async fn a_storm_is_waited_out_unless_the_cloud_confirms(stage: &Stage) -> Result<()> {
    let scene = stage.scene("storm", 4, 1).await?;
    // Long enough for all three to fall before the first is given up.
    let failover = json!({ "stormThresholdPercent": 55, "notReadyGraceSeconds": 15 });
    scene.allocate(json!({ "failover": failover })).await?;
    scene.settled().await?;
    for node in [1, 2, 3] {
        stage.cluster.nodes().mark_not_ready(&scene.node_name(node)).await?;
    }
    scene.reason(0, "StormGuard").await?;
    ensure!(scene.places() == [Some(1)], "it stays");
    stage.cloud.stop(&scene.instance(1))?;
    scene.arrives(0, 4).await?;
    Ok(())
}

pub async fn two_allocations_share_a_pool_and_no_node(stage: &Stage) -> Result<()> {
    let scene = stage.scene("sharing", 3, 3).await?;
    let mut first = scene.manifest();
    first["spec"]["reservedIPs"] = json!(scene.addresses[..2]);
    let mut second = scene.manifest();
    second["metadata"]["name"] = json!("sharing-other");
    second["spec"]["reservedIPs"] = json!(scene.addresses[2..]);
    scene.apply(&first).await?;
    scene.apply(&second).await?;
    eventually("every node to have one", async || {
        let mut places: Vec<usize> = scene.places().into_iter().flatten().collect();
        places.sort_unstable();
        ensure!(places == [1, 2, 3], "{places:?}");
        Ok(())
    })
    .await?;
    // Table A, row 1: neither takes the other's marks away.
    scene
        .nothing_happens("marks stay", async || {
            for number in 1..=3 {
                let node = scene.node(number).await?;
                let address = scene.places().iter().position(|place| *place == Some(number));
                let Some(address) = address else { continue };
                let name = if address < 2 { "sharing" } else { "sharing-other" };
                let marked = crate::scene::marked_for(&node, name, scene.addresses[address]);
                // The last one may be on its way at first.
                ensure!(marked || unmarked(&node), "{:?}", node.labels());
            }
            Ok(())
        })
        .await?;
    Ok(())
}

pub async fn the_same_address_in_two_objects_belongs_to_the_older(stage: &Stage) -> Result<()> {
    let scene = stage.scene("contested", 2, 2).await?;
    scene.allocate(json!({ "reservedIPs": [scene.addresses[0]] })).await?;
    scene.condition("Ready", "True", "").await?;
    // Creation times are of whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let mut younger = scene.manifest();
    younger["metadata"]["name"] = json!("contested-younger");
    scene.apply(&younger).await?;
    let api = scene.allocations();
    eventually("the conflict to be told, and the other address to work", async || {
        let status = api.get("contested-younger").await?.status.unwrap_or_default();
        let conflict = status.conditions.iter().find(|c| c.type_ == "Conflict" && c.status == "True");
        let message = conflict.map(|c| c.message.clone()).unwrap_or_default();
        ensure!(message.contains("contested"), "no conflict: {:?}", status.conditions);
        ensure!(status.attached == 1, "its other address works on: {:?}", status.ips);
        Ok(())
    })
    .await?;
    let before = scene.places();
    scene.delete_allocation().await?;
    eventually("the younger to have both", async || {
        let status = api.get("contested-younger").await?.status.unwrap_or_default();
        ensure!(status.attached == 2, "{:?}", status.ips);
        ensure!(crate::scene::condition(&status, "Conflict") == "False", "the conflict is over");
        Ok(())
    })
    .await?;
    ensure!(scene.places()[1] == before[1], "its own address did not move");
    Ok(())
}
