//! Certificates in files, as the kubelet mounts cert-manager's Secrets.

use crate::kit::until;
use crate::load::Load;
use crate::replica::{Options, Replica};
use crate::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use certs::{Contents, Files, Kind, Lifetimes, Settings, Source, Step, carry_out};
use cluster::eventually;
use cluster::harness::Bed;
use jiff::Timestamp;
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn make() -> Result<Contents> {
    make_for(Lifetimes::default())
}

fn make_for(lifetimes: Lifetimes) -> Result<Contents> {
    let settings = Settings { names: vec!["127.0.0.1".to_owned()], lifetimes };
    Ok(carry_out(Step::Bootstrap, &Contents::default(), &[], Timestamp::now(), &settings)?)
}

fn serial(contents: &Contents) -> Option<String> {
    contents.leaf.as_ref().map(|leaf| leaf.certificate.serial.clone())
}

/// The kubelet's way: a new folder, and a link that is renamed over the old one.
fn mount(folder: &Path, generation: &str, contents: &Contents) -> Result<()> {
    let data = contents.data();
    let (target, link) = (folder.join(generation), folder.join("..data"));
    std::fs::create_dir(&target)?;
    for entry in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::write(target.join(entry), &data[entry].0)?;
        // The link itself, not what it leads to.
        if folder.join(entry).symlink_metadata().is_err() {
            symlink(Path::new("..data").join(entry), folder.join(entry))?;
        }
    }
    symlink(generation, folder.join("..data_tmp"))?;
    std::fs::rename(folder.join("..data_tmp"), link)?;
    Ok(())
}

fn source(folder: &Path) -> Source {
    Source::Files(Files { interval: Duration::from_millis(100), ..Files::in_folder(folder) })
}

pub async fn files_swapped_half_written_and_removed_fail_no_write(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "files").await?;
    let folder = tempfile::tempdir()?;
    let (first, second) = (make()?, make()?);
    mount(folder.path(), "..1", &first)?;
    let options = || Options { source: source(folder.path()), ..scene.calm() };
    let replicas =
        [Replica::join_with(&scene, options()).await?, Replica::join_with(&scene, options()).await?];
    scene.works().await?;
    let all_serve = |contents: &Contents| replicas.iter().all(|replica| replica.serial() == serial(contents));
    let load = Load::start(&scene);
    // Another CA and another leaf, in one swap.
    mount(folder.path(), "..2", &second)?;
    until("the new certificate to be served", || all_serve(&second)).await?;
    // Half-written, in place: worse than the kubelet ever is.
    let file = folder.path().join("..2/tls.crt");
    let whole = std::fs::read(&file)?;
    std::fs::write(&file, &whole[..whole.len() / 2])?;
    until("it to be reported", || replicas.iter().all(|replica| replica.failures("files") >= 1)).await?;
    std::fs::remove_file(&file)?;
    until("that to be reported too", || replicas.iter().all(|replica| replica.failures("files") >= 2))
        .await?;
    ensure!(all_serve(&second) && replicas.iter().all(Replica::is_ready), "the old certificate serves on");
    mount(folder.path(), "..3", &first)?;
    until("it to heal", || all_serve(&first)).await?;
    load.end().await?;
    ensure!(scene.secrets().get_opt(&scene.secret_name()).await?.is_none(), "no Secret of ours was made");
    Ok(())
}

pub async fn with_somebody_elses_injector_nothing_is_written(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "other-injector").await?;
    let folder = tempfile::tempdir()?;
    let contents = make()?;
    mount(folder.path(), "..1", &contents)?;
    let source = Source::Files(Files {
        authority: None,
        interval: Duration::from_millis(100),
        ..Files::in_folder(folder.path())
    });
    let replica = Replica::join_with(&scene, Options { source, targets: Vec::new(), ..scene.calm() }).await?;
    until("it to be ready", || replica.is_ready()).await?;
    let bundle = k8s_openapi::ByteString(certs::bundle(&contents, Timestamp::now()).into_bytes());
    for kind in [Kind::Mutating, Kind::Validating] {
        scene
            .patch(
                kind,
                &json!([{ "op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle }]),
            )
            .await?;
    }
    scene.works().await?;
    for kind in [Kind::Mutating, Kind::Validating] {
        let object = scene.targets_api(kind).get(&scene.name).await?;
        let managers = object.metadata.managed_fields.context("no books")?;
        ensure!(managers.iter().all(|entry| entry.manager.as_deref() != Some(certs::FIELD_MANAGER)));
    }
    eventually("no Secret of ours", async || {
        ensure!(scene.secrets().get_opt(&scene.secret_name()).await?.is_none());
        Ok(())
    })
    .await
}

pub async fn an_expired_certificate_is_not_ready_until_it_is_mended(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "expired-file").await?;
    let folder = tempfile::tempdir()?;
    let short = Lifetimes { leaf: Duration::from_secs(5), ..Lifetimes::default() };
    mount(folder.path(), "..1", &make_for(short)?)?;
    let replica =
        Replica::join_with(&scene, Options { source: source(folder.path()), ..scene.calm() }).await?;
    until("it to be ready", || replica.is_ready()).await?;
    until("it to be not ready any more", || !replica.is_ready()).await?;
    let (_, text) = replica.health.readiness();
    ensure!(text.contains("[-] certificates: the certificate expired at"), "{text}");
    let mended = make()?;
    mount(folder.path(), "..2", &mended)?;
    until("it to be ready again", || replica.is_ready() && replica.serial() == serial(&mended)).await?;
    scene.works().await
}
