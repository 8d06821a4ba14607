//! Leaving: nothing that blocks anybody stays behind.

use crate::kit::{BINARY, NAMESPACE, RELEASE, Way, apply, chart, cluster, helm, namespace, pods, pods_run, program, render};
use crate::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Process, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{ResourceExt as _, core::ObjectMeta};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

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

/// The kubelets' part that simulated nodes do not play: the Job's pod runs the program, and deleted pods of the
/// controller end it.
async fn play(cluster: &Cluster, controller: &Process) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    loop {
        let controllers = pods(cluster, "controller").await?;
        if !controllers.is_empty() && controllers.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()) {
            controller.stop().await?;
            for pod in controllers {
                let at_once = DeleteParams::default().grace_period(0);
                // Its own kubelet may have been quicker.
                let _ = api.delete(&pod.name_any(), &at_once).await;
            }
        }
        for pod in pods(cluster, "uninstall").await? {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
            if phase == "Running" {
                run_in(cluster, &api, &pod).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Runs a pod's program with its arguments and the rights of its account, in the background, and reports its
/// end.
async fn run_in(cluster: &Cluster, api: &Api<Pod>, pod: &Pod) -> Result<()> {
    let spec = pod.spec.as_ref().context("no spec")?;
    let account = spec.service_account_name.as_deref().context("no account")?;
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account).await?;
    let mut command = tokio::process::Command::new(BINARY);
    command.args(spec.containers[0].args.iter().flatten());
    command.env("KUBECONFIG", kubeconfig).env("POD_NAMESPACE", NAMESPACE).kill_on_drop(true);
    let (api, name) = (api.clone(), pod.name_any());
    // Anything but Running, so that it is run once.
    report(&api, &name, "Unknown").await?;
    tokio::spawn(async move {
        let output = command.output().await?;
        eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        report(&api, &name, if output.status.success() { "Succeeded" } else { "Failed" }).await
    });
    Ok(())
}

async fn report(api: &Api<Pod>, name: &str, phase: &str) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
    api.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn helm_uninstall(cluster: &Cluster, controller: &Process) -> Result<()> {
    let args = ["uninstall", RELEASE, "-n", NAMESPACE, "--timeout", "110s"];
    tokio::select! {
        done = helm(Some(cluster), &args) => done.map(drop),
        played = play(cluster, controller) => played,
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
    let parts = ["CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    let parts: Vec<_> = objects.into_iter().filter(|object| parts.contains(&crate::kit::kind(object))).collect();
    apply(&cluster, &parts).await?;
    let mut uninstall = render(Way::Kustomize("uninstall")).await?;
    uninstall.retain(|object| crate::kit::kind(object) != "Job");
    apply(&cluster, &uninstall).await?;
    let scene = Scene::set(&cluster).await?;
    scene.allocate().await?;
    let controller = scene.controller().await?;
    scene.settled().await?;

    let run = async |word: &str, code: i32| -> Result<()> {
        let output = program(&cluster, "ip-address-controller-uninstall", &["uninstall", "--timeout=60"]).await?;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
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
    cluster.kubectl(&["delete", "crd", "netipallocations.netinfra.darkbrains.com", "--timeout=60s"]).await?.ok()?;
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
