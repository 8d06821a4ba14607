//! One bad object, one namespace that cannot be listed: everything beside it goes on, also after a restart.

use super::kit::{
    Guarded, Hook, NAMESPACE, Registration, allocation, allow_all, dry_run, injects, merge, namespace,
    pod_of, reference, required, selector, selects, works,
};
use crate::requests::{create, read, refusal, remove};
use crate::schema::stored_before::store_under_lax_schema;
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use serde_json::{Value, json};
use std::sync::Arc;

/// What people really write, as it is stored where no rule was: name and workloadRef. Types were always
/// checked, by the predecessor too; a CEL rule on a value of another type cannot be ratcheted.
fn broken() -> Vec<(String, Value)> {
    let workload =
        |name: &str, namespace: &str| json!({ "kind": "Deployment", "name": name, "namespace": namespace });
    let mut objects = vec![
        ("bad-blank".to_owned(), workload("web", "prod ")),
        ("bad-slash".to_owned(), workload("web", "prod/web")),
        ("bad-template".to_owned(), workload("web", "{{ .Values.ns }}")),
        ("bad-name".to_owned(), workload("web,x=y", "fine")),
        ("bad-upper".to_owned(), workload("Web", "Prod")),
        ("bad-dots".to_owned(), workload("..", "..")),
    ];
    // Its name is no label value: pods with it could not be made.
    objects.push(("n".repeat(64), json!({ "kind": "StatefulSet", "name": "sip", "namespace": "fine" })));
    objects
}

fn specs() -> Vec<(String, Value)> {
    let spec = |(number, (name, workload)): (usize, (String, Value))| {
        let address = format!("192.0.2.{}", number + 1);
        (name, json!({ "reservedIPs": [address], "cloud": { "provider": "gcp" }, "workloadRef": workload }))
    };
    broken().into_iter().enumerate().map(spec).collect()
}

/// A cluster with broken objects in it, one namespace that is being deleted, one that may not be listed, and
/// the webhook.
async fn start() -> Result<Guarded> {
    let cluster = Cluster::builder().version(Version::Newest).start().await?;
    store_under_lax_schema(&cluster, &specs()).await?;
    for space in [NAMESPACE, "fine", "forbidden", "dying"] {
        namespace(&cluster, space).await?;
    }
    allow_all(&cluster).await?;
    only_in(&cluster, &["fine", "dying"]).await?;
    let held = json!({ "apiVersion": "v1", "kind": "ConfigMap",
                       "metadata": { "name": "held", "namespace": "dying", "finalizers": ["example.com/hold"] } });
    super::kit::apply(&cluster, &held).await?;
    cluster.kubectl(&["delete", "namespace", "dying", "--wait=false"]).await?.ok()?;
    for (name, address, space) in [
        ("of-forbidden", "198.51.100.1", "forbidden"),
        ("of-dying", "198.51.100.2", "dying"),
        ("of-fine", "198.51.100.3", "fine"),
    ] {
        create(&cluster, &allocation(name, &[address], &reference("Deployment", space, "web"))).await?;
    }
    let hook = Hook::start(&cluster, &Registration::Own).await?;
    Ok(Guarded { cluster, hook })
}

/// ReplicaSets may be listed in these namespaces and nowhere else.
async fn only_in(cluster: &Cluster, namespaces: &[&str]) -> Result<()> {
    let role = read_role(cluster).await?;
    let rules = role["rules"].as_array().context("no rules")?;
    let place = rules.iter().position(|rule| rule["resources"] == json!(["replicasets"]));
    let place = place.context("the role has no rule for ReplicaSets")?;
    let patch = json!([{ "op": "remove", "path": format!("/rules/{place}") }]).to_string();
    let name = "ip-address-controller-webhook";
    cluster.kubectl(&["patch", "clusterrole", name, "--type=json", "-p", &patch]).await?.ok()?;
    for space in namespaces {
        let role =
            ["create", "role", "sets", "-n", space, "--verb=list,watch", "--resource=replicasets.apps"];
        cluster.kubectl(&role).await?.ok()?;
        let account = format!("--serviceaccount={NAMESPACE}:{name}");
        cluster
            .kubectl(&["create", "rolebinding", "sets", "-n", space, "--role=sets", &account])
            .await?
            .ok()?;
    }
    Ok(())
}

async fn read_role(cluster: &Cluster) -> Result<Value> {
    let text =
        cluster.kubectl(&["get", "clusterrole", "ip-address-controller-webhook", "-o", "json"]).await?;
    Ok(serde_json::from_str(&text.ok()?)?)
}

pub async fn bad_objects_and_namespaces_harm_nobody_else(_: Arc<Bed>) -> Result<()> {
    let guarded = start().await?;
    let cluster = &guarded.cluster;
    goes_on(&guarded, "first", "198.51.100.11").await?;
    guarded.hook.process.kill().await?;
    guarded.hook.process.spawn()?;
    goes_on(&guarded, "second", "198.51.100.12").await?;
    let metrics = guarded.hook.metrics().await?;
    for (namespace, synced) in [("fine", 1), ("forbidden", 0)] {
        let line = format!("netipallocation_webhook_namespace_synced{{namespace=\"{namespace}\"}} {synced}");
        ensure!(metrics.contains(&line), "{line} is not in:\n{metrics}");
    }
    ensure!(guarded.hook.log()?.contains("cannot be watched here"), "nobody says so");
    for (name, _) in specs() {
        workable(cluster, &name).await.with_context(|| name.clone())?;
    }
    Ok(())
}

/// Readiness, allocations, selector and pods, with everything that is wrong beside them.
async fn goes_on(guarded: &Guarded, name: &str, address: &str) -> Result<()> {
    let cluster = &guarded.cluster;
    eventually("a webhook that is ready", async || {
        let (status, text) = guarded.hook.readyz().await?;
        ensure!(status == 200, "{status} {text}");
        Ok(())
    })
    .await?;
    works(cluster).await?;
    let set = format!("sip-{name}");
    create(cluster, &allocation(name, &[address], &reference("StatefulSet", "fine", &set))).await?;
    injects(cluster, "fine", &set, &[name]).await?;
    // And a namespace that nobody has referred to yet.
    let space = format!("new-{name}");
    namespace(cluster, &space).await?;
    merge(cluster, name, &json!({ "spec": { "workloadRef": { "namespace": space } } })).await?;
    selects(cluster, &space, true).await?;
    injects(cluster, &space, &set, &[name]).await?;
    let selector = selector(cluster).await?.to_string();
    for bad in ["prod", "Prod", "Values", ".."] {
        ensure!(!selector.contains(bad), "{bad} is in {selector}");
    }
    selects(cluster, "forbidden", true).await?;
    // Where ReplicaSets cannot be listed, their names do.
    let mut pod = pod_of("ReplicaSet", "web-5d4f");
    pod["metadata"]["labels"] = json!({ "pod-template-hash": "5d4f" });
    let pod = dry_run(cluster, "forbidden", &pod).await?;
    ensure!(required(&pod) == [["of-forbidden"]], "{}", pod["spec"]["affinity"]);
    // Pods of an allocation whose name is no label value can be made, and are left alone.
    let pod = dry_run(cluster, "fine", &pod_of("StatefulSet", "sip")).await?;
    ensure!(required(&pod).is_empty(), "{}", pod["spec"]["affinity"]);
    Ok(())
}

/// What is broken can be edited elsewhere, is judged when it is changed, can be mended and can be deleted.
async fn workable(cluster: &Cluster, name: &str) -> Result<()> {
    merge(cluster, name, &json!({ "spec": { "paused": true } })).await.context("an edit elsewhere")?;
    let worse = merge(cluster, name, &json!({ "spec": { "workloadRef": { "namespace": "a b" } } })).await;
    let answer = refusal(worse).context("a change for the worse")?.message;
    ensure!(answer.contains("spec.workloadRef.namespace"), "{answer}");
    ensure!(answer.contains("remove the white space"), "{answer}");
    let good = reference("Deployment", "fine", "web");
    merge(cluster, name, &json!({ "spec": { "workloadRef": good } })).await.context("mended")?;
    remove(cluster, name).await?;
    let gone = refusal(read(cluster, name).await)?;
    ensure!(gone.code == 404, "{gone:?}");
    Ok(())
}
