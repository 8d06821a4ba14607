//! Leaving: nothing that blocks anybody stays behind.

use crate::kit::{
    BINARY, NAMESPACE, RELEASE, Way, apply, chart, cluster, helm, namespace, pods_run, program, render,
};
use crate::kubelet::play;
use crate::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Process, eventually};
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use std::sync::Arc;

/// A release with a controller that has attached two addresses. No webhook runs: it must not matter.
async fn installed<'c>(cluster: &'c Cluster, values: &[&str]) -> Result<(Scene<'c>, Process)> {
    namespace(cluster, "restricted").await?;
    let chart = chart();
    let args = ["install", RELEASE, &chart, "-n", NAMESPACE];
    let sets: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    helm(Some(cluster), &[&args[..], &sets].concat()).await?;
    pods_run(cluster, "controller", 2).await?;
    let scene = Scene::set(cluster).await?;
    allocate_without_webhook(&scene).await?;
    let controller = scene.controller().await?;
    scene.settled().await?;
    Ok((scene, controller))
}

/// The configurations would refuse it, as nobody answers: they come back afterwards.
async fn allocate_without_webhook(scene: &Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        cluster.kubectl(&["delete", kind, RELEASE]).await?.ok()?;
    }
    scene.allocate().await?;
    let mut objects = render(Way::Chart(None)).await?;
    objects.retain(|object| crate::kit::kind(object).ends_with("WebhookConfiguration"));
    apply(cluster, &objects).await
}

async fn helm_uninstall(cluster: &Cluster, controller: &Process) -> Result<()> {
    let args = ["uninstall", RELEASE, "-n", NAMESPACE, "--timeout", "110s"];
    tokio::select! {
        done = helm(Some(cluster), &args) => done.map(drop),
        played = play(cluster, Some(controller)) => played,
    }
}

async fn nothing_blocks(cluster: &Cluster) -> Result<()> {
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let left = cluster.kubectl(&["get", kind, "-o", "name"]).await?.ok()?;
        ensure!(!left.contains(RELEASE), "{left}");
    }
    // Neither hooks nor their rights stay.
    let kinds = "jobs,serviceaccounts,roles,rolebindings,deployments,services";
    let left = cluster.kubectl(&["get", kinds, "-n", NAMESPACE, "-o", "name"]).await?.ok()?;
    ensure!(!left.contains("ip-address-controller"), "{left}");
    let left = cluster.kubectl(&["get", "clusterroles,clusterrolebindings", "-o", "name"]).await?.ok()?;
    ensure!(!left.contains("ip-address-controller"), "{left}");
    let crd = "netipallocations.netinfra.darkbrains.com";
    cluster.kubectl(&["delete", "crd", crd, "--timeout=60s"]).await?.ok().context("the CRD cannot go")?;
    Ok(())
}

pub async fn helm_leaves_addresses_and_labels(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    let (scene, controller) = installed(&cluster, &[]).await?;
    let before = scene.marked().await?;
    helm_uninstall(&cluster, &controller).await?;
    let ObjectMeta { finalizers, deletion_timestamp, .. } = scene.allocations().get("voice").await?.metadata;
    ensure!(finalizers.unwrap_or_default().is_empty(), "the finalizer is there");
    ensure!(deletion_timestamp.is_none(), "it is being deleted");
    ensure!(scene.attached()? == 2 && scene.marked().await? == before, "something was released");
    nothing_blocks(&cluster).await?;
    ensure!(scene.attached()? == 2 && scene.marked().await? == before, "something was released");
    Ok(())
}

pub async fn helm_releases_everything_if_told_so(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    let (scene, controller) = installed(&cluster, &["uninstall.release=true"]).await?;
    helm_uninstall(&cluster, &controller).await?;
    ensure!(scene.allocations().get_opt("voice").await?.is_none(), "the allocation is there");
    ensure!(scene.attached()? == 0 && scene.marked().await?.is_empty(), "not everything was released");
    nothing_blocks(&cluster).await
}

/// A controller that is no pod of ours would put finalizers back. When it is gone, a second run goes on; a
/// third finds nothing to do; and so does one without a CRD.
pub async fn it_can_be_repeated_and_a_strange_controller_is_told(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    namespace(&cluster, "restricted").await?;
    let objects = render(Way::Kustomize("base")).await?;
    let parts = [
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ];
    let parts: Vec<_> =
        objects.into_iter().filter(|object| parts.contains(&crate::kit::kind(object))).collect();
    apply(&cluster, &parts).await?;
    let mut uninstall = render(Way::Kustomize("uninstall")).await?;
    uninstall.retain(|object| crate::kit::kind(object) != "Job");
    apply(&cluster, &uninstall).await?;
    let scene = Scene::set(&cluster).await?;
    scene.allocate().await?;
    let controller = scene.controller().await?;
    scene.settled().await?;

    let run = async |word: &str, code: i32| -> Result<()> {
        let output =
            program(&cluster, "ip-address-controller-uninstall", &["uninstall", "--timeout=60"]).await?;
        let said =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        ensure!(output.status.code() == Some(code) && said.contains(word), "{:?}: {said}", output.status);
        Ok(())
    };
    run("leads, and is no pod of Deployment", 1).await?;
    let held = scene.allocations().get("voice").await?;
    ensure!(held.finalizers().len() == 1, "finalizers were taken from a running controller");
    // Killed, not stopped: its lease has to run out.
    controller.kill().await?;
    run("finalizers: taken off 1 allocations", 0).await?;
    run("finalizers: taken off 0 allocations", 0).await?;
    cluster
        .kubectl(&["delete", "crd", "netipallocations.netinfra.darkbrains.com", "--timeout=60s"])
        .await?
        .ok()?;
    run("done", 0).await?;
    eventually("no request to be refused", async || {
        let refused = crate::scene::forbidden(&cluster.audit_log())?;
        ensure!(refused.is_empty(), "{refused:?}");
        Ok(())
    })
    .await
}

/// Told to release without a controller, it says what it waits for instead of leaving half of it behind.
pub async fn a_release_without_a_controller_is_told(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    let (scene, controller) = installed(&cluster, &[]).await?;
    controller.stop().await?;
    let kubeconfig = cluster.admin_kubeconfig();
    let output = tokio::process::Command::new(BINARY)
        .args(["uninstall", "--release", "--timeout=3", "--namespace", NAMESPACE])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && said.contains("voice"), "{:?}: {said}", output.status);
    ensure!(said.contains("does a controller run?") && said.contains("Retain"), "{said}");
    ensure!(scene.attached()? == 2, "nothing was released");
    Ok(())
}
