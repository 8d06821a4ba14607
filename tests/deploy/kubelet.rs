//! The kubelets' part that simulated nodes do not play: pods of hooks run the program, and deleted pods of the
//! controller end it.

use crate::kit::{BINARY, NAMESPACE, pods};
use anyhow::{Context as _, Result};
use cluster::{Cluster, Process};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// Plays until it is dropped, or cannot go on. The process stands for the controller's pods.
pub async fn play(cluster: &Cluster, controller: Option<&Process>) -> Result<()> {
    loop {
        if let Some(controller) = controller {
            end_controllers(cluster, controller).await?;
        }
        for component in ["uninstall", "test"] {
            for pod in pods(cluster, component).await? {
                let phase =
                    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
                if phase == "Running" {
                    run_in(cluster, &pod).await?;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Once all pods of the controller are told to end, the process is, and then they are gone.
async fn end_controllers(cluster: &Cluster, process: &Process) -> Result<()> {
    let controllers = pods(cluster, "controller").await?;
    if controllers.iter().any(|pod| pod.metadata.deletion_timestamp.is_none()) || controllers.is_empty() {
        return Ok(());
    }
    process.stop().await?;
    for pod in controllers {
        // The simulated kubelet may have been quicker.
        let at_once = DeleteParams::default().grace_period(0);
        let _ = api(cluster).delete(&pod.name_any(), &at_once).await;
    }
    Ok(())
}

/// Runs a pod's program in the background, with its arguments and the rights of its account, and reports how
/// it ended.
async fn run_in(cluster: &Cluster, pod: &Pod) -> Result<()> {
    let spec = pod.spec.as_ref().context("no spec")?;
    let account = spec.service_account_name.as_deref().context("no account")?;
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account).await?;
    let mut command = tokio::process::Command::new(BINARY);
    command.args(spec.containers[0].args.iter().flatten());
    command.env("KUBECONFIG", kubeconfig).env("POD_NAMESPACE", NAMESPACE).kill_on_drop(true);
    let (api, name) = (api(cluster), pod.name_any());
    // Anything but Running, so that it is run once.
    report(&api, &name, "Unknown").await?;
    tokio::spawn(async move {
        let output = command.output().await?;
        eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        report(&api, &name, if output.status.success() { "Succeeded" } else { "Failed" }).await
    });
    Ok(())
}

fn api(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client(), NAMESPACE)
}

async fn report(api: &Api<Pod>, name: &str, phase: &str) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
    api.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}
