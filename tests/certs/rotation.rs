//! Starts, restarts and rotations.

use crate::kit::until;
use crate::load::Load;
use crate::replica::Replica;
use crate::scene::Scene;
use anyhow::{Result, ensure};
use cluster::harness::Bed;
use cluster::{Version, eventually};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub async fn two_replicas_that_start_at_once_share_one_authority(
    bed: Arc<Bed>,
    version: Version,
) -> Result<()> {
    let scene = Scene::set_on(&bed, version, "first-start").await?;
    let starts = (0..2).map(|_| Replica::join_with(&scene, scene.calm()));
    let replicas = futures::future::try_join_all(starts).await?;
    until("both to be ready", || replicas.iter().all(Replica::is_ready)).await?;
    ensure!(replicas[0].serial() == replicas[1].serial(), "they serve different certificates");
    let made: u64 = replicas.iter().map(|replica| replica.rotations("bootstrap")).sum();
    ensure!(made == 1, "{made} replicas made a CA");
    ensure!(scene.contents().await?.authorities().len() == 1);
    for _ in 0..20 {
        scene.write().await?;
    }
    for replica in &replicas {
        let rejected = replica.server.handshakes.with_label_values(&["rejected"]).get();
        ensure!(rejected == 0, "the API server did not trust a ready replica");
    }
    Ok(())
}

pub async fn a_rolling_restart_fails_no_write(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "rolling-restart").await?;
    let mut replicas = vec![
        Replica::join_with(&scene, scene.calm()).await?,
        Replica::join_with(&scene, scene.calm()).await?,
    ];
    scene.works().await?;
    let load = Load::start(&scene);
    for _ in 0..4 {
        let before = load.done();
        until("some writes", || load.done() > before + 50).await?;
        let newcomer = Replica::join_with(&scene, scene.calm()).await?;
        until("the newcomer to be ready", || newcomer.is_ready()).await?;
        replicas.push(newcomer);
        let drained = replicas.remove(0).end().await?;
        ensure!(drained.cut_off == 0, "{drained:?}");
    }
    load.end().await?;
    Ok(())
}

pub async fn three_rotations_of_authority_and_leaf_fail_no_write(
    bed: Arc<Bed>,
    version: Version,
) -> Result<()> {
    let scene = Scene::set_on(&bed, version, "three-rotations").await?;
    let replicas = [Replica::join(&scene).await?, Replica::join(&scene).await?];
    scene.works().await?;
    let load = Load::start(&scene);
    let (mut authorities, mut leaves) = (BTreeSet::new(), BTreeSet::new());
    eventually("four CAs to have signed", async || {
        authorities.insert(scene.authority().await?);
        leaves.extend(replicas.iter().filter_map(Replica::serial));
        ensure!(authorities.len() >= 4, "{authorities:?}");
        Ok(())
    })
    .await?;
    load.end().await?;
    println!("    {} CAs, {} leaves", authorities.len(), leaves.len());
    ensure!(leaves.len() > authorities.len(), "leaves are renewed between CAs: {leaves:?}");
    let sum = |kind: &str| replicas.iter().map(|replica| replica.rotations(kind)).sum::<u64>();
    ensure!(sum("promote") >= 3 && sum("stage_ca") >= 3, "{} {}", sum("promote"), sum("stage_ca"));
    ensure!(sum("bootstrap") == 1 && sum("restore") == 0, "nothing was lost on the way");
    ensure!(sum("retire") >= 1, "old CAs go out of the bundle");
    ensure!(scene.contents().await?.authorities().len() <= 4);
    Ok(())
}

/// The worst that a server can do to the API server, on purpose: closing connections just as they are
/// used. Without the answer that goes before the close, a few in a hundred of these writes fail.
pub async fn connections_closed_just_as_they_are_used_fail_no_write(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "crossing").await?;
    let mut options = scene.calm();
    options.limits.idle = Duration::from_millis(3);
    let replica = Replica::join_with(&scene, options).await?;
    scene.works().await?;
    let writers = (0..8).map(|_| async {
        for _ in 0..125 {
            scene.write().await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        anyhow::Ok(())
    });
    futures::future::try_join_all(writers).await?;
    let handshakes = replica.server.handshakes.with_label_values(&["ok"]).get();
    println!("    1000 writes by {handshakes} connections");
    ensure!(handshakes > 100, "connections were closed all the time: {handshakes}");
    Ok(())
}
