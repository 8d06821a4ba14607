//! Rendering deploy/, and clusters to put it on.

use anyhow::{Context as _, Result, bail, ensure};
use cluster::{Binaries, Cluster, NodeSpec, Provider, Version, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

pub const NAMESPACE: &str = "ip-address-controller";
pub const RELEASE: &str = "ip-address-controller";
pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");
pub const BINARY: &str = env!("CARGO_BIN_EXE_ip-address-controller");

/// What can be installed: a folder of deploy/kustomize, or the chart with values of deploy/chart/ci.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Kustomize(&'static str),
    Chart(Option<&'static str>),
}

/// Overlays, and the values with which the chart makes the same objects.
pub const PAIRS: &[(&str, Option<&str>)] = &[
    ("base", None),
    ("overlays/gke", Some("gke")),
    ("overlays/eks", Some("eks")),
    ("overlays/aks", Some("aks")),
    ("overlays/production", Some("production")),
    ("overlays/host-network", Some("host-network")),
];

/// Values that no overlay is the same as.
pub const OTHER_VALUES: &[&str] = &["everything", "no-webhook"];

pub fn chart() -> String {
    format!("{ROOT}/deploy/chart")
}

pub fn values_file(name: &str) -> String {
    format!("{ROOT}/deploy/chart/ci/{name}-values.yaml")
}

/// The objects that a way makes, hooks of the chart among them.
pub async fn render(way: Way) -> Result<Vec<Value>> {
    let text = match way {
        Way::Kustomize(folder) => {
            let kubectl = tokio::task::spawn_blocking(|| Binaries::ensure(Version::Newest)).await??.kubectl;
            run(Command::new(kubectl).args(["kustomize", &format!("{ROOT}/deploy/kustomize/{folder}")]))
                .await?
        }
        Way::Chart(values) => {
            let file = values.map(values_file);
            // Helm's own idea of the newest Kubernetes is older than what we support.
            let mut args = vec!["template", RELEASE, "--namespace", NAMESPACE, "--kube-version", "1.33.0"];
            args.extend(file.iter().flat_map(|file| ["--values", file]));
            let chart = chart();
            args.push(&chart);
            helm(None, &args).await?
        }
    };
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(|| format!("{way:?}"))?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// Runs a command that has to work; its standard output.
pub async fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs helm, against a cluster if there is one.
pub async fn helm(cluster: Option<&Cluster>, args: &[&str]) -> Result<String> {
    let script = Path::new(ROOT).join("dev/cluster/helm/ensure");
    let helm = run(&mut Command::new(script)).await.context("there is no helm")?;
    let mut command = Command::new(helm.trim());
    command.args(args);
    if let Some(cluster) = cluster {
        let home = cluster.folder().join("helm");
        command.env("KUBECONFIG", cluster.admin_kubeconfig());
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, &home);
        }
    }
    run(&mut command).await
}

pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether Helm runs it at some event instead of installing it.
pub fn is_hook(object: &Value) -> bool {
    object["metadata"]["annotations"].get("helm.sh/hook").is_some()
}

/// A cluster with the CRDs of cert-manager and the Prometheus operator, and four nodes, the last of which
/// holds an address.
pub async fn cluster() -> Result<Cluster> {
    cluster_of(Version::Newest).await
}

pub async fn cluster_of(version: Version) -> Result<Cluster> {
    let cluster = Cluster::builder().version(version).start().await?;
    let folder = run(&mut Command::new(format!("{ROOT}/dev/cluster/crds/ensure"))).await?;
    cluster.kubectl(&["create", "-f", folder.trim()]).await?.ok()?;
    let all = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    cluster.kubectl(&all).await?.ok()?;
    let nodes = NodeSpec::pool(Provider::Gcp, "node", 4).into_iter().map(|node| {
        let node = node.label("kubernetes.io/os", "linux");
        if node.name == "node-4" { node.label(crds::LABEL_READY, "true") } else { node }
    });
    cluster.nodes().create_all(nodes).await?;
    Ok(cluster)
}

/// A namespace that admits only pods of the level.
pub async fn namespace(cluster: &Cluster, level: &str) -> Result<()> {
    let manifest = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": {
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/warn": level,
        } },
    });
    apply(cluster, &[manifest]).await
}

/// Applies as people do, with strict validation; a warning is a failure, and so is a conflict.
pub async fn apply(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
    let args = ["apply", "--server-side", "--validate=strict", "-f", "-"];
    let output = cluster.kubectl_with_input(&args, &list).await?;
    ensure!(output.success, "{}", output.stderr);
    ensure!(output.stderr.trim().is_empty(), "warnings: {}", output.stderr);
    Ok(())
}

/// Pods of a part of ours.
pub async fn pods(cluster: &Cluster, component: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let labels = format!("app.kubernetes.io/name={RELEASE},app.kubernetes.io/component={component}");
    Ok(api.list(&ListParams::default().labels(&labels)).await?.items)
}

/// Waits until so many pods of a part are admitted and run; their nodes.
pub async fn pods_run(cluster: &Cluster, component: &str, count: usize) -> Result<Vec<String>> {
    eventually(&format!("{count} pods of the {component} to run"), async || {
        let pods = pods(cluster, component).await?;
        let nodes: Vec<String> = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter(|pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running")))
            .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
            .collect();
        if nodes.len() == count {
            return Ok(nodes);
        }
        let events = cluster.kubectl(&["get", "events", "-n", NAMESPACE, "-o", "wide"]).await?.stdout;
        bail!("{} run: {events}", nodes.len())
    })
    .await
}

/// Runs the program with the rights of a deployed service account, as its pod would.
pub async fn program(cluster: &Cluster, account: &str, args: &[&str]) -> Result<std::process::Output> {
    let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account).await?;
    let mut command = Command::new(BINARY);
    command.args(args).env("KUBECONFIG", kubeconfig).env("POD_NAMESPACE", NAMESPACE);
    Ok(command.stdin(Stdio::null()).kill_on_drop(true).output().await?)
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/deploy/fixtures").join(name)
}
