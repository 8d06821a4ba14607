//! Every rendering on a real control plane that holds pods to `restricted`.

use crate::kit::{
    NAMESPACE, OTHER_VALUES, PAIRS, Way, apply, cluster, cluster_of, is_hook, kind, name, namespace,
    pods_run, render,
};
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

pub async fn overlays_are_taken_and_their_pods_run(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = cluster_of(version).await?;
    for (folder, _) in PAIRS {
        let objects = render(Way::Kustomize(folder)).await?;
        let own = objects.iter().find(|object| kind(object) == "Namespace").context("no namespace")?;
        let level = &own["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
        let expected = if folder.ends_with("host-network") { "privileged" } else { "restricted" };
        ensure!(level == expected, "{folder} is {level}");
        installed(&cluster, &objects).await.with_context(|| (*folder).to_owned())?;
    }
    Ok(())
}

pub async fn charts_are_taken_and_their_pods_run(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = cluster_of(version).await?;
    let all = PAIRS.iter().map(|(_, values)| *values).chain(OTHER_VALUES.iter().copied().map(Some));
    for values in all {
        let level = if values == Some("host-network") { "privileged" } else { "restricted" };
        namespace(&cluster, level).await?;
        let objects = render(Way::Chart(values)).await?;
        installed(&cluster, &objects).await.with_context(|| format!("{values:?}"))?;
    }
    Ok(())
}

/// Applies everything, sees its pods run where they should, and makes room for the next.
async fn installed(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let objects: Vec<Value> = objects.iter().filter(|object| !is_hook(object)).cloned().collect();
    apply(cluster, &objects).await?;
    for object in objects.iter().filter(|object| kind(object) == "Deployment") {
        let count = usize::try_from(object["spec"]["replicas"].as_u64().context("no replicas")?)?;
        let component = object["metadata"]["labels"]["app.kubernetes.io/component"].as_str();
        let nodes = pods_run(cluster, component.context("no component")?, count).await?;
        if name(object) == "ip-address-controller" {
            ensure!(!nodes.contains(&"node-4".to_owned()), "a controller is on a node that holds an address");
        }
        let different: BTreeSet<&String> = nodes.iter().collect();
        ensure!(different.len() == nodes.len(), "{} shares a node: {nodes:?}", name(object));
    }
    for args in [
        ["delete", "deployments,poddisruptionbudgets", "--all", "-n", NAMESPACE].as_slice(),
        &["delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0"],
    ] {
        cluster.kubectl(args).await?.ok()?;
    }
    Ok(())
}

/// What the namespace's level is worth: a pod like ours that may write its files and be root is refused.
pub async fn a_pod_that_asks_for_more_is_refused(_: Arc<Bed>) -> Result<()> {
    let cluster = cluster().await?;
    let mut objects = render(Way::Kustomize("base")).await?;
    objects.retain(|object| ["Namespace", "ServiceAccount", "PriorityClass"].contains(&kind(object)));
    apply(&cluster, &objects).await?;
    let deployments = render(Way::Kustomize("overlays/host-network")).await?;
    let webhook =
        deployments.iter().find(|object| name(object).ends_with("webhook") && kind(object) == "Deployment");
    let mut pod = webhook.context("no webhook")?["spec"]["template"].clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = serde_json::json!({ "name": "too-much", "namespace": NAMESPACE });
    let said = cluster.kubectl_with_input(&["create", "-f", "-"], &pod.to_string()).await?;
    ensure!(!said.success && said.stderr.contains("PodSecurity \"restricted"), "{}", said.stderr);
    Ok(())
}
