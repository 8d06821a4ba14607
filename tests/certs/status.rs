//! `ip-address-controller certs status`, as a person runs it.

use crate::kit::until;
use crate::replica::Replica;
use crate::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use certs::Kind;
use cluster::harness::Bed;
use cluster::{Version, eventually};
use kube::api::PostParams;
use serde_json::json;
use std::sync::Arc;
use tokio::process::Command;

async fn status(bed: &Bed, scene: &Scene) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_ip-address-controller"))
        .args(["certs", "status", "--namespace", &scene.name, "--secret", &scene.secret_name()])
        .args(["--configuration", &scene.name])
        .env("KUBECONFIG", bed.cluster(Version::Newest).await?.admin_kubeconfig())
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

pub async fn certs_status_tells_what_there_is_and_what_comes_next(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "status").await?;
    let report = status(&bed, &scene).await?;
    ensure!(report.contains("there is no Secret status/status-webhook-tls"), "{report}");
    ensure!(report.contains("ValidatingWebhookConfiguration/status: trusts no CA"), "{report}");
    let replica = Replica::join_with(&scene, scene.calm()).await?;
    until("it to be ready", || replica.is_ready()).await?;
    let report = status(&bed, &scene).await?;
    let contents = scene.contents().await?;
    let (ca, leaf) = (contents.current.context("no CA")?, contents.leaf.context("no leaf")?);
    for expected in [
        "own CA in Secret status/status-webhook-tls".to_owned(),
        format!("to {}, serial {}", ca.certificate.not_after, ca.certificate.serial),
        format!("to {}, serial {}", leaf.certificate.not_after, leaf.certificate.serial),
        "127.0.0.1".to_owned(),
        "none before ".to_owned(),
        "MutatingWebhookConfiguration/status: carries the bundle, 1 CA(s), written ".to_owned(),
    ] {
        ensure!(report.contains(&expected), "{expected:?} is not in\n{report}");
    }
    ensure!(!report.contains("PRIVATE"), "{report}");
    // Now with nobody to heal it.
    drop(replica);
    let mut secret = scene.secrets().get(&scene.secret_name()).await?;
    secret.data.get_or_insert_default().remove("tls.key");
    scene.secrets().replace(&scene.secret_name(), &PostParams::default(), &secret).await?;
    let remove = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]);
    scene.patch(Kind::Validating, &remove).await?;
    eventually("the report of the damage", async || {
        let report = status(&bed, &scene).await?;
        ensure!(report.contains("tls.crt: there is no key in it"), "{report}");
        ensure!(report.contains("renew_leaf: there is no usable leaf"), "{report}");
        ensure!(report.contains("ValidatingWebhookConfiguration/status: trusts no CA"), "{report}");
        Ok(())
    })
    .await
}
