//! The predecessor's manifests: converted, told so, and workable for ever after.

use super::kit::{guarded, kubectl_with_env, merge};
use crate::requests::{read, remove};
use anyhow::{Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version};
use serde_json::{Value, json};
use std::sync::Arc;

/// As the predecessor's README has it.
fn manifest(name: &str, address: &str, deployment: &str) -> String {
    format!(
        "apiVersion: netinfra.darkbrains.com/v1alpha1\n\
         kind: NetIPAllocation\n\
         metadata:\n  name: {name}\n\
         spec:\n\
         \x20 reservedIPs:\n    - \"{address}\"\n\
         \x20 deploymentRef:\n    name: {deployment}\n    namespace: default\n\
         \x20 nodeSelector:\n    role: public-node\n\
         \x20 cloud:\n    provider: gcp\n    region: us-central1\n\
         \x20 reconcileInterval: 30\n\
         \x20 strategy:\n    maxUnavailable: 1\n    maxSurge: 1\n"
    )
}

async fn workload(cluster: &Cluster, name: &str) -> Result<String> {
    let stored = read(cluster, name).await?;
    ensure!(stored["spec"].get("deploymentRef").is_none(), "still there: {}", stored["spec"]);
    let reference = &stored["spec"]["workloadRef"];
    ensure!(reference["kind"] == "Deployment" && reference["namespace"] == "default", "{reference}");
    Ok(reference["name"].as_str().unwrap_or_default().to_owned())
}

pub async fn a_legacy_manifest_is_converted_and_the_client_is_told(
    _: Arc<Bed>,
    version: Version,
) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    let apply = async |flags: &[&str], deployment: &str| {
        let args = [&["apply", "-f", "-"], flags].concat();
        cluster.kubectl_with_input(&args, &manifest("legacy", "203.0.113.1", deployment)).await
    };
    let output = apply(&[], "my-app").await?;
    for words in ["spec.deploymentRef is deprecated", "maxSurge has no effect"] {
        ensure!(output.stderr.contains(words), "{words:?} is not in {}", output.stderr);
    }
    output.ok()?;
    ensure!(workload(cluster, "legacy").await? == "my-app");
    let spec: Value = read(cluster, "legacy").await?["spec"].take();
    ensure!(apply(&[], "my-app").await?.ok()?.contains("netipallocation"), "applied again");
    ensure!(read(cluster, "legacy").await?["spec"] == spec, "nothing changed");
    apply(&[], "other-app").await?.ok()?;
    ensure!(workload(cluster, "legacy").await? == "other-app", "kubectl apply");

    for deployment in ["third-app", "third-app", "fourth-app"] {
        let flags = ["--server-side", "--field-manager=legacy", "--force-conflicts"];
        apply(&flags, deployment).await?.ok()?;
        ensure!(workload(cluster, "legacy").await? == deployment, "server-side apply of {deployment}");
    }
    let patch = json!({ "spec": { "deploymentRef": { "name": "fifth-app", "namespace": "default" } } });
    merge(cluster, "legacy", &patch).await?;
    ensure!(workload(cluster, "legacy").await? == "fifth-app", "patch");
    let edited = [("KUBE_EDITOR", "sed -i s/fifth-app/sixth-app/")];
    kubectl_with_env(cluster, &["edit", "nia", "legacy"], &edited).await?;
    ensure!(workload(cluster, "legacy").await? == "sixth-app", "edit");
    remove(cluster, "legacy").await
}

/// Who applies server-side and nothing else never has to use force: not with a legacy manifest, and not to
/// go over to workloadRef.
pub async fn a_server_side_applier_needs_no_force(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let apply = async |manifest: &str| -> Result<()> {
        cluster.kubectl_with_input(&["apply", "--server-side", "-f", "-"], manifest).await?.ok()?;
        Ok(())
    };
    for deployment in ["first", "first", "second", "third"] {
        apply(&manifest("legacy-ssa", "203.0.113.3", deployment)).await?;
        ensure!(workload(cluster, "legacy-ssa").await? == deployment, "{deployment}");
    }
    for deployment in ["third", "fourth", "fifth"] {
        let legacy = manifest("legacy-ssa", "203.0.113.3", deployment);
        apply(&legacy.replace("deploymentRef:\n", "workloadRef:\n    kind: Deployment\n")).await?;
        ensure!(workload(cluster, "legacy-ssa").await? == deployment, "{deployment}");
    }
    remove(cluster, "legacy-ssa").await
}

/// Which of the two a user means is clear unless both are new and differ.
pub async fn two_references_are_one_if_they_can_be(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let name = "two-references";
    let mut object = crate::requests::allocation(name);
    object["spec"]["reservedIPs"] = json!(["203.0.113.2"]);
    object["spec"]["deploymentRef"] = json!({ "name": "app" });
    object["spec"]["workloadRef"] = json!({ "kind": "Deployment", "name": "app" });
    crate::requests::create(cluster, &object).await?;
    ensure!(workload(cluster, name).await? == "app", "both, and the same");
    let both = json!({ "spec": { "deploymentRef": { "name": "a" }, "workloadRef": { "name": "b" } } });
    let answer = crate::requests::refusal(merge(cluster, name, &both).await)?.message;
    ensure!(answer.contains("spec.deploymentRef: names another workload"), "{answer}");
    ensure!(answer.contains("denied the request"), "{answer}");
    remove(cluster, name).await
}
