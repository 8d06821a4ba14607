//! From what people have to what is here.

use crate::kit::{
    NAMESPACE, RELEASE, ROOT, Way, apply, chart, cluster, fixture, helm, kind, namespace, pods_run, render,
};
use crate::scene::{Scene, with_url};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, free_port};
use kube::ResourceExt as _;
use serde_json::Value;
use std::sync::Arc;

async fn predecessor(cluster: &Cluster) -> Result<()> {
    let path = |name: &str| fixture(name).display().to_string();
    cluster.kubectl(&["apply", "-f", &path("predecessor.yaml")]).await?.ok()?;
    let crd = "crd/netipallocations.netinfra.darkbrains.com";
    cluster.kubectl(&["wait", "--for=condition=Established", crd, "--timeout=60s"]).await?.ok()?;
    cluster.kubectl(&["apply", "-f", &path("predecessor-objects.yaml")]).await?.ok()?;
    Ok(())
}

/// The predecessor's objects are taken over as they are: the sound one is worked on, the broken one can be
/// read, written and deleted.
async fn taken_over(scene: &Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let controller = scene.controller().await?;
    scene.settled().await?;
    let spec = scene.allocations().get("voice").await?.spec;
    ensure!(spec.reserved_ips.len() == 2 && spec.cloud.region.as_deref() == Some("us-central1"), "{spec:?}");
    cluster.kubectl(&["annotate", "nia", "broken", "note=still-there"]).await?.ok()?;
    let columns = cluster.kubectl(&["get", "nia"]).await?.ok()?;
    ensure!(columns.contains("ATTACHED"), "{columns}");
    cluster.kubectl(&["delete", "nia", "broken", "--timeout=60s"]).await?.ok()?;
    controller.stop().await
}

pub async fn the_predecessors_objects_by_helm(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    predecessor(&cluster).await?;
    let scene = Scene::set(&cluster).await?;
    namespace(&cluster, "restricted").await?;
    let chart = chart();
    let plain = ["install", RELEASE, &chart, "-n", NAMESPACE];
    // The CRD is nobody's that Helm knows of; it says so, and how to go on.
    let refused = helm(Some(&cluster), &plain).await.err().context("Helm took what is not its own")?;
    ensure!(refused.to_string().contains("ownership"), "{refused:#}");
    helm(Some(&cluster), &[&plain[..], &["--take-ownership"]].concat()).await?;
    pods_run(&cluster, "controller", 2).await?;
    taken_over(&scene).await
}

pub async fn the_predecessors_objects_by_kustomize(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    predecessor(&cluster).await?;
    let scene = Scene::set(&cluster).await?;
    // Client-side, as the predecessor was installed.
    let folder = format!("{ROOT}/deploy/kustomize/base");
    let applied = cluster.kubectl(&["apply", "-k", &folder]).await?;
    ensure!(applied.success && applied.stderr.trim().is_empty(), "{}", applied.stderr);
    pods_run(&cluster, "controller", 2).await?;
    taken_over(&scene).await
}

/// A chart that makes what the first one made (tests/deploy/fixtures/first-chart.yaml), with an older CRD.
fn first_chart(cluster: &Cluster) -> Result<String> {
    let folder = cluster.folder().join("first-chart");
    std::fs::create_dir_all(folder.join("templates"))?;
    std::fs::write(
        folder.join("Chart.yaml"),
        "apiVersion: v2\nname: ip-address-controller\nversion: 0.0.1\n",
    )?;
    for name in ["first-chart.yaml", "predecessor.yaml"] {
        std::fs::copy(fixture(name), folder.join("templates").join(name))?;
    }
    Ok(folder.display().to_string())
}

pub async fn an_earlier_chart(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    namespace(&cluster, "restricted").await?;
    let first = first_chart(&cluster)?;
    helm(Some(&cluster), &["install", RELEASE, &first, "-n", NAMESPACE]).await?;
    pods_run(&cluster, "controller", 2).await?;
    let objects = fixture("predecessor-objects.yaml").display().to_string();
    // The first chart's webhook is not there to ask: its configurations came last.
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        cluster.kubectl(&["delete", kind, RELEASE]).await?.ok()?;
    }
    cluster.kubectl(&["apply", "-f", &objects]).await?.ok()?;
    helm(Some(&cluster), &["upgrade", RELEASE, &chart(), "-n", NAMESPACE]).await?;
    let crd = cluster
        .kubectl(&["get", "crd", "netipallocations.netinfra.darkbrains.com", "-o", "json"])
        .await?
        .ok()?;
    let crd: Value = serde_json::from_str(&crd)?;
    let subresources = &crd["spec"]["versions"][0]["subresources"];
    ensure!(subresources.get("status").is_some(), "the CRD was not upgraded: {subresources}");
    let scene = Scene::set(&cluster).await?;
    taken_over(&scene).await
}

/// `helm upgrade` with nothing or something changed, while the webhook keeps its own fields in the
/// configurations.
pub async fn helm_upgrades_while_everything_runs(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    namespace(&cluster, "restricted").await?;
    let port = free_port()?;
    let folder = loopback_chart(&cluster, port).await?;
    helm(Some(&cluster), &["install", RELEASE, &folder, "-n", NAMESPACE]).await?;
    let scene = Scene::set(&cluster).await?;
    let (_webhook, _controller) = (scene.webhook(port).await?, scene.controller().await?);
    scene.allocate().await?;
    let before = scene.settled().await?;
    for change in ["logLevel=info", "logLevel=debug"] {
        helm(Some(&cluster), &["upgrade", RELEASE, &folder, "-n", NAMESPACE, "--set", change]).await?;
        crate::roles::bundles(&cluster).await.with_context(|| format!("after {change}"))?;
    }
    ensure!(scene.settled().await? == before, "something moved");
    tested(&cluster).await.context("helm test")?;
    let allocation = scene.allocations().get("voice").await?;
    ensure!(!allocation.finalizers().is_empty(), "the finalizer is gone");
    Ok(())
}

/// `helm test` finds the webhook trusted, and would have told if it were not.
async fn tested(cluster: &Cluster) -> Result<()> {
    let test = async || {
        tokio::select! {
            done = helm(Some(cluster), &["test", RELEASE, "-n", NAMESPACE, "--timeout", "90s"]) => done.map(drop),
            played = crate::kubelet::play(cluster, None) => played,
        }
    };
    test().await?;
    cluster.kubectl(&["delete", "validatingwebhookconfiguration", RELEASE]).await?.ok()?;
    ensure!(test().await.is_err(), "it does not see that the configuration is gone");
    Ok(())
}

/// The chart with a URL in place of the Service.
async fn loopback_chart(cluster: &Cluster, port: u16) -> Result<String> {
    let folder = cluster.folder().join("loopback-chart");
    let copied = tokio::process::Command::new("cp").arg("-r").arg(chart()).arg(&folder).status().await?;
    ensure!(copied.success(), "cannot copy the chart");
    let objects = with_url(&render(Way::Chart(None)).await?, port)?;
    for (name, wanted) in
        [("mutating", "MutatingWebhookConfiguration"), ("validating", "ValidatingWebhookConfiguration")]
    {
        let object = objects.iter().find(|object| kind(object) == wanted).context("no configuration")?;
        let file = folder.join("templates/generated").join(format!("{name}.yaml"));
        std::fs::write(file, serde_json::to_vec_pretty(object)?)?;
    }
    Ok(folder.display().to_string())
}

/// Server-side after client-side, and the other way round: people change their minds.
pub async fn client_side_and_server_side_in_turn(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    let folder = format!("{ROOT}/deploy/kustomize/base");
    for args in [
        ["apply", "-k", &folder].as_slice(),
        &["apply", "--server-side", "-k", &folder],
        &["apply", "-k", &folder],
    ] {
        let said = cluster.kubectl(args).await?;
        ensure!(said.success && said.stderr.trim().is_empty(), "{args:?}: {}", said.stderr);
    }
    apply(&cluster, &render(Way::Kustomize("base")).await?).await
}
