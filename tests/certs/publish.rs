//! Bundles: where they are written, who else writes them, and what the API server makes of them.

use crate::kit::until;
use crate::replica::{Options, Replica};
use crate::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use certs::{Kind, Target};
use cluster::harness::Bed;
use cluster::{Version, eventually};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::sync::Arc;

async fn carried(scene: &Scene, kind: Kind) -> Result<()> {
    eventually("the bundle to be there", async || {
        let authority = scene.contents().await?.current.context("no CA")?.certificate;
        ensure!(scene.bundle(kind).await?.carries(&authority), "it does not carry the CA");
        Ok(())
    })
    .await
}

pub async fn a_bundle_overwritten_by_hand_comes_back(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "overwritten-bundle").await?;
    let replica = Replica::join_with(&scene, scene.calm()).await?;
    scene.works().await?;
    let injected =
        |kind| replica.certs.injections.with_label_values(&[&scene.target(kind).to_string()]).get();
    for kind in [Kind::Mutating, Kind::Validating] {
        ensure!(injected(kind) == 1, "written once, not again and again");
        let garbage = json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "bm90aGluZw==" }]);
        scene.patch(kind, &garbage).await?;
        carried(&scene, kind).await?;
        until("it to be counted", || injected(kind) == 2).await?;
    }
    scene.works().await?;
    let object = scene.targets_api(Kind::Validating).get(&scene.name).await?;
    let webhook = &object.data["webhooks"][0];
    ensure!(
        webhook["failurePolicy"] == "Fail" && webhook["timeoutSeconds"] == 10,
        "nothing else was touched"
    );
    Ok(())
}

pub async fn a_configuration_deleted_and_recreated_gets_the_bundle(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "recreated-configuration").await?;
    let replica = Replica::join_with(&scene, scene.calm()).await?;
    scene.works().await?;
    for kind in [Kind::Mutating, Kind::Validating] {
        scene.targets_api(kind).delete(&scene.name, &DeleteParams::default()).await?;
        scene.works().await?;
        ensure!(replica.is_ready(), "nobody calls, which is no fault of the certificate");
        ensure!(scene.targets_api(kind).get_opt(&scene.name).await?.is_none(), "it was not made anew by us");
        scene.configure(kind).await?;
        carried(&scene, kind).await?;
        scene.works().await?;
    }
    Ok(())
}

fn converted(name: &str) -> Value {
    let version = |name: &str, storage: bool| {
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true } } })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": name },
        "spec": {
            "group": "test.dev", "scope": "Cluster", "names": { "kind": "Thing", "plural": "things" },
            "versions": [version("v1", true), version("v2", false)],
            "conversion": { "strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": { "url": "https://127.0.0.1:1/convert" } } },
        },
    })
}

pub async fn a_conversion_stanza_gets_the_bundle(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "conversion").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(scene.admin.clone());
    crds.create(&PostParams::default(), &serde_json::from_value(converted("things.test.dev"))?).await?;
    let ours = Target { kind: Kind::Conversion, name: "netipallocations.netinfra.darkbrains.com".to_owned() };
    let theirs = Target { kind: Kind::Conversion, name: "things.test.dev".to_owned() };
    let options = Options { targets: vec![ours, theirs.clone()], ..scene.calm() };
    // The product's CRD has no conversion, so its role has no right to CRDs; the administrator has.
    let replica = Replica::start(scene.admin.clone(), options).await?;
    eventually("the stanza to have the bundle", async || {
        let crd = crds.get(&theirs.name).await?.spec.conversion.context("no conversion")?;
        let config = crd.webhook.context("no webhook")?.client_config.context("no config")?;
        let bundle = config.ca_bundle.context("no bundle")?.0;
        ensure!(
            String::from_utf8(bundle)? == certs::bundle(&scene.contents().await?, jiff::Timestamp::now())
        );
        ensure!(crd.strategy == "Webhook" && config.url.as_deref() == Some("https://127.0.0.1:1/convert"));
        Ok(())
    })
    .await?;
    until("it to be ready: a CRD without conversion needs nothing", || replica.is_ready()).await?;
    crds.delete(&theirs.name, &DeleteParams::default()).await?;
    Ok(())
}

pub async fn a_wrong_name_or_an_untrusted_authority_is_an_error_there_and_a_metric_here(
    bed: Arc<Bed>,
) -> Result<()> {
    let scene = Scene::set(&bed, "not-trusted").await?;
    let wrong_name = Options { names: vec!["elsewhere.test.svc".to_owned()], ..scene.calm() };
    let replica = Replica::join_with(&scene, wrong_name).await?;
    until("it to be ready", || replica.is_ready()).await?;
    let rejected = || replica.server.handshakes.with_label_values(&["rejected"]).get();
    eventually("the API server to refuse the name", async || {
        let error = scene.write().await.err().context("the write went through")?.to_string();
        ensure!(
            error.contains("doesn't contain any IP SANs") || error.contains("certificate is valid for"),
            "{error}"
        );
        Ok(())
    })
    .await?;
    until("it to be counted", || rejected() >= 1).await?;
    drop(replica);
    // Another CA, which nobody publishes.
    let options = Options { targets: Vec::new(), ..scene.calm() };
    scene.secrets().delete(&scene.secret_name(), &DeleteParams::default()).await?;
    let replica = Replica::join_with(&scene, options).await?;
    until("it to be ready", || replica.is_ready()).await?;
    eventually("the API server to refuse the CA", async || {
        let error = scene.write().await.err().context("the write went through")?.to_string();
        ensure!(error.contains("unknown authority"), "{error}");
        Ok(())
    })
    .await?;
    until("it to be counted", || replica.server.handshakes.with_label_values(&["rejected"]).get() >= 1).await
}

pub async fn the_role_gives_no_other_rights(bed: Arc<Bed>) -> Result<()> {
    let scene = Scene::set(&bed, "least-rights").await?;
    let cluster = bed.cluster(Version::Newest).await?;
    let user = format!("system:serviceaccount:{0}:{0}-webhook", scene.name);
    let can = async |verb: &str, what: &str, more: &[&str]| -> Result<bool> {
        let args = [&["auth", "can-i", verb, what, "--as", &user], more].concat();
        Ok(cluster.kubectl(&args).await?.stdout.trim() == "yes")
    };
    let own = format!("secrets/{}", scene.secret_name());
    for verb in ["get", "update"] {
        ensure!(can(verb, &own, &["-n", &scene.name]).await?, "{verb} its own Secret");
    }
    for (verb, what, more) in [
        ("get", "secrets/another", vec!["-n", scene.name.as_str()]),
        ("list", "secrets", vec!["-n", scene.name.as_str()]),
        ("list", "secrets", vec!["--all-namespaces"]),
        ("delete", own.as_str(), vec!["-n", scene.name.as_str()]),
        ("patch", "validatingwebhookconfigurations/another", vec![]),
        ("delete", "validatingwebhookconfigurations", vec![]),
        ("create", "mutatingwebhookconfigurations", vec![]),
    ] {
        ensure!(!can(verb, what, &more).await?, "{verb} {what} must not be allowed");
    }
    let others: Api<Secret> = Api::namespaced(scene.client.clone(), "kube-system");
    ensure!(others.list(&kube::api::ListParams::default()).await.is_err());
    Ok(())
}
