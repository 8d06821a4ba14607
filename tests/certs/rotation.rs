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
