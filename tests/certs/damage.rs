//! What people and backups do to the Secret.

use crate::kit::until;
use crate::load::Load;
use crate::replica::Replica;
use crate::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use certs::{Contents, Kind, Lifetimes, Settings, Step, carry_out};
use cluster::eventually;
use cluster::harness::Bed;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Data = BTreeMap<String, ByteString>;

/// A CA and a leaf that were made at another time.
fn made_at(now: Timestamp) -> Result<Data> {
    let settings = Settings { names: vec!["127.0.0.1".to_owned()], lifetimes: Lifetimes::default() };
    Ok(carry_out(Step::Bootstrap, &Contents::default(), &[], now, &settings)?.data())
}

type Damage = Box<dyn Fn(&mut Data)>;

fn damages() -> Result<Vec<(&'static str, Damage)>> {
    let year = Duration::from_hours(24 * 366);
    let past = made_at(Timestamp::now().checked_sub(2 * year)?)?;
    let future = made_at(Timestamp::now().checked_add(2 * year)?)?;
    let (other, expired, not_yet) = (made_at(Timestamp::now())?, past.clone(), future.clone());
    let garbage = || ByteString(b"-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n".to_vec());
    Ok(vec![
        ("emptied", Box::new(Data::clear)),
        (
            "mismatched",
            Box::new(move |data| drop(data.insert("tls.key".to_owned(), other["tls.key"].clone()))),
        ),
        ("garbage", Box::new(move |data| drop(data.insert("ca.crt".to_owned(), garbage())))),
        ("key gone", Box::new(|data| drop(data.remove("ca.key")))),
        ("expired", Box::new(move |data| data.clone_from(&expired))),
        ("from the future", Box::new(move |data| data.clone_from(&not_yet))),
        (
            "expired leaf",
            Box::new(move |data| {
                data.extend(["tls.crt", "tls.key"].map(|entry| (entry.to_owned(), past[entry].clone())));
            }),
        ),
        (
            "leaf from the future",
            Box::new(move |data| {
                data.extend(["tls.crt", "tls.key"].map(|entry| (entry.to_owned(), future[entry].clone())));
            }),
        ),
    ])
}

/// Waits until the Secret is whole, with that CA.
async fn healed(scene: &Scene, authority: &str) -> Result<()> {
    eventually("the Secret to be whole again", async || {
        let secret = scene.secrets().get(&scene.secret_name()).await?;
        let (contents, faults) = Contents::read(&secret.data.unwrap_or_default());
        ensure!(faults.is_empty(), "{faults:?}");
        ensure!(scene.authority().await? == authority, "another CA");
        let leaf = contents.leaf.context("no leaf")?;
        ensure!(leaf.certificate.valid_at(Timestamp::now()), "{leaf:?}");
        ensure!(leaf.signed_by(&contents.current.context("no CA")?.certificate));
        Ok(())
    })
    .await
}

pub async fn a_damaged_secret_heals_with_the_same_authority_and_is_reported(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "damaged-secret").await?;
    let replicas =
        [Replica::join_with(&scene, scene.calm()).await?, Replica::join_with(&scene, scene.calm()).await?];
    scene.works().await?;
    let authority = scene.authority().await?;
    let load = Load::start(&scene);
    scene.secrets().delete(&scene.secret_name(), &DeleteParams::default()).await?;
    healed(&scene, &authority).await.context("deleted")?;
    let restored = || replicas.iter().map(|replica| replica.rotations("restore")).sum::<u64>();
    ensure!(restored() >= 1, "a restored Secret is counted");
    for (what, damage) in damages()? {
        // A write whose answer got lost on a busy machine is counted as a failure.
        let others = |replica: &Replica| replica.rotations("renew_leaf") + replica.failures("write");
        let repairs = || restored() + replicas.iter().map(others).sum::<u64>();
        let before = repairs();
        let mut secret = scene.secrets().get(&scene.secret_name()).await?;
        damage(secret.data.get_or_insert_default());
        scene.secrets().replace(&scene.secret_name(), &PostParams::default(), &secret).await?;
        healed(&scene, &authority).await.context(what)?;
        until("the repair to be counted", || repairs() > before).await.context(what)?;
    }
    let reported: u64 = replicas.iter().map(|replica| replica.failures("damaged")).sum();
    ensure!(reported >= 3, "mismatch, garbage and a missing key are reported: {reported}");
    let before = load.done();
    until("writes after the last repair", || load.done() > before + 100).await?;
    load.end().await?;
    ensure!(replicas.iter().all(Replica::is_ready));
    Ok(())
}

pub async fn without_memory_a_damaged_secret_is_made_anew_and_the_bundle_stays_a_union(
    bed: Arc<Bed>,
) -> Result<()> {
    let scene = Scene::set(&bed, "damaged-at-rest").await?;
    let first = Replica::join_with(&scene, scene.calm()).await?;
    scene.works().await?;
    let before = scene.contents().await?.current.context("no CA")?.certificate;
    drop(first);
    let mut secret: Secret = scene.secrets().get(&scene.secret_name()).await?;
    secret.data.get_or_insert_default().remove("ca.key");
    scene.secrets().replace(&scene.secret_name(), &PostParams::default(), &secret).await?;
    let second = Replica::join_with(&scene, scene.calm()).await?;
    scene.works().await?;
    ensure!(second.rotations("bootstrap") == 1 && second.failures("damaged") == 1);
    ensure!(scene.authority().await? != before.serial);
    for kind in [Kind::Mutating, Kind::Validating] {
        ensure!(scene.bundle(kind).await?.carries(&before), "what others may still serve stays trusted");
    }
    Ok(())
}

/// The runbook's way to be rid of a CA whose key has leaked.
pub async fn a_leaked_authority_goes_with_secret_and_bundles_while_nobody_runs(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "leaked").await?;
    let first = Replica::join_with(&scene, scene.calm()).await?;
    scene.works().await?;
    let leaked = scene.contents().await?.current.context("no CA")?.certificate;
    drop(first);
    scene.secrets().delete(&scene.secret_name(), &DeleteParams::default()).await?;
    for kind in [Kind::Mutating, Kind::Validating] {
        scene.patch(kind, &json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }])).await?;
    }
    let _second = Replica::join_with(&scene, scene.calm()).await?;
    scene.works().await?;
    for kind in [Kind::Mutating, Kind::Validating] {
        ensure!(!scene.bundle(kind).await?.carries(&leaked), "it is trusted no more");
    }
    Ok(())
}
