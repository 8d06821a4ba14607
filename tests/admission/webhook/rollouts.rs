//! Real controllers and the real scheduler: referenced workloads run on nodes of their own allocation.

use super::kit::{
    allocation, api, apply, forget, guarded, injects, namespace, reference, required, running, selects,
};
use crate::requests::create;
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, NodeSpec, Provider, Version, eventually};
use serde_json::{Value, json};
use std::sync::Arc;

/// Three nodes of a test's own: `<name>-1` holds an address of the allocation, `<name>-2` one of
/// another, `<name>-3` none.
async fn nodes(cluster: &Cluster, name: &str, allocation: &str) -> Result<()> {
    let mut pool: Vec<NodeSpec> =
        NodeSpec::pool(Provider::Gcp, name, 3).into_iter().map(|node| node.label("pool", name)).collect();
    for (node, owner) in pool.iter_mut().zip([allocation, "somebody-else"]) {
        node.labels.insert("ip.ready".to_owned(), "true".to_owned());
        node.labels.insert("netinfra.darkbrains.com/allocation".to_owned(), owner.to_owned());
    }
    cluster.nodes().create_all(pool).await
}

fn workload(kind: &str, namespace: &str, name: &str, pool: &str, replicas: Option<u32>) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": {
                "nodeSelector": { "pool": pool }, "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": "none" }],
            }},
        },
    });
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = json!(replicas);
    }
    object
}

fn term(key: &str) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": "DoesNotExist" }] })
}

async fn runs_on(cluster: &Cluster, space: &str, app: &str, count: usize, node: &str) -> Result<Vec<Value>> {
    let pods = running(cluster, space, app, count).await?;
    for pod in &pods {
        ensure!(
            pod["spec"]["nodeName"] == node,
            "{} is on {}",
            pod["metadata"]["name"],
            pod["spec"]["nodeName"]
        );
    }
    Ok(pods)
}

/// Waits until the webhook knows that pods of a Deployment are to be sent somewhere: it is asked about one
/// whose ReplicaSet nobody has seen, so that the name decides.
async fn knows(cluster: &Cluster, space: &str, deployment: &str) -> Result<()> {
    let mut pod = super::kit::pod_of("ReplicaSet", &format!("{deployment}-abc"));
    pod["metadata"]["labels"] = json!({ "pod-template-hash": "abc" });
    eventually("the webhook to know", async || {
        ensure!(!required(&super::kit::dry_run(cluster, space, &pod).await?).is_empty());
        Ok(())
    })
    .await
}

/// All pods run on the allocation's node, with the requirement in every term; the Deployment itself is as
/// it was written.
async fn rolls_out(cluster: &Cluster, space: &str, name: &str, terms: &[Value]) -> Result<()> {
    let mut object = workload("Deployment", space, name, "dep", Some(3));
    if !terms.is_empty() {
        object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"] = json!(terms);
    }
    apply(cluster, &object).await?;
    for pod in runs_on(cluster, space, name, 3, "dep-1").await? {
        let injected = required(&pod);
        ensure!(injected.len() == terms.len().max(1), "{injected:?}");
        ensure!(injected.iter().all(|names| *names == ["fleet"]), "{injected:?}");
    }
    let stored = api(cluster.client(), space, "apps", "Deployment").get(name).await?;
    let written = object.pointer("/spec/template/spec/affinity");
    ensure!(stored.data.pointer("/spec/template/spec/affinity") == written, "{:?}", stored.data);
    Ok(())
}

/// With affinity of no, one and three terms: every pod of the first rollout and of the next.
pub async fn deployments(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    let space = "deployments";
    namespace(cluster, space).await?;
    nodes(cluster, "dep", "fleet").await?;
    create(cluster, &allocation("fleet", &["198.51.100.51"], &reference("Deployment", space, "web-0")))
        .await?;
    selects(cluster, space, true).await?;
    for (name, terms) in
        [("web-0", vec![]), ("web-1", vec![term("x")]), ("web-3", vec![term("x"), term("y"), term("z")])]
    {
        super::kit::merge(cluster, "fleet", &json!({ "spec": { "workloadRef": { "name": name } } })).await?;
        knows(cluster, space, name).await?;
        rolls_out(cluster, space, name, &terms).await?;
    }
    let restart = ["rollout", "restart", "deployment/web-3", "-n", space];
    cluster.kubectl(&restart).await?.ok()?;
    cluster.kubectl(&["rollout", "status", "deployment/web-3", "-n", space, "--timeout=120s"]).await?.ok()?;
    runs_on(cluster, space, "web-3", 3, "dep-1").await?;

    // A look-alike goes where it likes.
    apply(cluster, &workload("Deployment", space, "web-3-canary", "dep", Some(3))).await?;
    for pod in running(cluster, space, "web-3-canary", 3).await? {
        ensure!(pod["spec"].get("affinity").is_none(), "{}", pod["spec"]["affinity"]);
    }
    forget(cluster, &["fleet"]).await
}

pub async fn stateful_sets(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let space = "stateful";
    namespace(cluster, space).await?;
    nodes(cluster, "sts", "registrars").await?;
    create(cluster, &allocation("registrars", &["198.51.100.52"], &reference("StatefulSet", space, "sip")))
        .await?;
    injects(cluster, space, "sip", &["registrars"]).await?;
    apply(cluster, &workload("StatefulSet", space, "sip", "sts", Some(3))).await?;
    runs_on(cluster, space, "sip", 3, "sts-1").await?;
    forget(cluster, &["registrars"]).await
}

/// A new DaemonSet has the requirement in its template; a user's later writes do not take it away.
pub async fn daemon_sets(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let space = "daemons";
    namespace(cluster, space).await?;
    nodes(cluster, "dae", "edges").await?;
    let running_one = workload("DaemonSet", space, "older", "dae", None);
    apply(cluster, &running_one).await?;
    running(cluster, space, "older", 3).await?;
    for (name, address, set) in [("edges", "198.51.100.53", "edge"), ("older", "198.51.100.54", "older")] {
        create(cluster, &allocation(name, &[address], &reference("DaemonSet", space, set))).await?;
    }
    let sets = api(cluster.client(), space, "apps", "DaemonSet");
    let names = async |set: &str| -> Result<Vec<Vec<String>>> {
        let stored = sets.get(set).await?;
        let template = stored.data.pointer("/spec/template").context("no template")?;
        Ok(required(template))
    };
    let object = workload("DaemonSet", space, "edge", "dae", None);
    eventually("a new DaemonSet to get the requirement", async || {
        apply(cluster, &object).await?;
        if names("edge").await? != [["edges"]] {
            cluster.kubectl(&["delete", "daemonset", "edge", "-n", space]).await?.ok()?;
            anyhow::bail!("not known to the webhook yet");
        }
        Ok(())
    })
    .await?;
    runs_on(cluster, space, "edge", 1, "dae-1").await?;
    let mut changed = object.clone();
    changed["spec"]["template"]["metadata"]["annotations"] = json!({ "changed": "yes" });
    apply(cluster, &changed).await?;
    ensure!(names("edge").await? == [["edges"]], "a user's apply took it away");
    let replaced = cluster.kubectl_with_input(&["replace", "-f", "-"], &object.to_string()).await?;
    replaced.ok()?;
    ensure!(names("edge").await? == [["edges"]], "a user's replace took it away");

    let mut older = running_one.clone();
    older["spec"]["template"]["metadata"]["annotations"] = json!({ "changed": "yes" });
    apply(cluster, &older).await?;
    ensure!(names("older").await?.is_empty(), "a running one gets it from the controller, when it is time");
    forget(cluster, &["edges", "older"]).await
}
