//! Which pods are sent to the nodes of an allocation, and which are left alone.

use super::kit::{
    allocation, bare_pod, dry_run, forget, guarded, injects, merge, namespace, pod_of, reference, required,
    selector, selects,
};
use crate::requests::create;
use anyhow::{Context as _, Result, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod without what is different each time it is made.
fn essence(mut pod: Value) -> Result<Value> {
    let metadata = pod["metadata"].as_object_mut().context("no metadata")?;
    for field in ["name", "uid", "creationTimestamp", "namespace", "managedFields", "resourceVersion"] {
        metadata.remove(field);
    }
    // The service account's token has a random name.
    let text = pod.to_string();
    let volume = pod.pointer("/spec/volumes/0/name").and_then(Value::as_str).unwrap_or_default();
    Ok(serde_json::from_str(&if volume.is_empty() { text.clone() } else { text.replace(volume, "token") })?)
}

async fn same_in_both(cluster: &Cluster, pod: &Value, one: &str, other: &str) -> Result<()> {
    let (a, b) = (dry_run(cluster, one, pod).await?, dry_run(cluster, other, pod).await?);
    let (a, b) = (essence(a)?, essence(b)?);
    ensure!(a == b, "{a}\n{b}");
    Ok(())
}

/// Look-alikes, bare pods, Jobs, pods with a node: what comes out is what comes out of a namespace that
/// the webhook has nothing to do with.
pub async fn others_are_untouched(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    for name in ["ours", "elsewhere"] {
        namespace(cluster, name).await?;
    }
    create(cluster, &allocation("looked-at", &["198.51.100.11"], &reference("StatefulSet", "ours", "web")))
        .await?;
    injects(cluster, "ours", "web", &["looked-at"]).await?;
    let mut bound = pod_of("StatefulSet", "web");
    bound["spec"]["nodeName"] = json!("some-node");
    let mut foreign = pod_of("StatefulSet", "web");
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = json!("example.com/v1");
    let mut job = pod_of("Job", "web");
    job["metadata"]["ownerReferences"][0]["apiVersion"] = json!("batch/v1");
    let mut replica_set = pod_of("ReplicaSet", "web-abc");
    replica_set["metadata"]["labels"] = json!({ "pod-template-hash": "abc" });
    let mut mere_owner = pod_of("StatefulSet", "web");
    mere_owner["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    for pod in [
        bare_pod(),
        bound,
        foreign,
        job,
        replica_set,
        mere_owner,
        pod_of("StatefulSet", "web-canary"),
        pod_of("StatefulSet", "we"),
        pod_of("DaemonSet", "web"),
    ] {
        let dry = dry_run(cluster, "ours", &pod).await?;
        ensure!(dry["spec"].get("affinity").is_none(), "{}: {}", pod["metadata"], dry["spec"]["affinity"]);
        same_in_both(cluster, &pod, "ours", "elsewhere")
            .await
            .with_context(|| pod["metadata"].to_string())?;
    }
    let other = dry_run(cluster, "elsewhere", &pod_of("StatefulSet", "web")).await?;
    ensure!(required(&other).is_empty(), "the same name in another namespace");
    let audit = super::kit::selector(cluster).await?;
    ensure!(!audit.to_string().contains("elsewhere"), "{audit}");
    forget(cluster, &["looked-at"]).await
}

pub async fn two_allocations_of_a_workload_are_one_requirement(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    namespace(cluster, "shared").await?;
    let workload = reference("StatefulSet", "shared", "sip");
    create(cluster, &allocation("share-b", &["198.51.100.21"], &workload)).await?;
    create(cluster, &allocation("share-a", &["198.51.100.22"], &workload)).await?;
    injects(cluster, "shared", "sip", &["share-a", "share-b"]).await?;
    merge(cluster, "share-a", &json!({ "spec": { "mode": "Plan" } })).await?;
    injects(cluster, "shared", "sip", &["share-b"]).await?;
    merge(cluster, "share-b", &json!({ "metadata": { "finalizers": ["example.com/hold"] } })).await?;
    forget(cluster, &["share-a", "share-b"]).await?;
    // One that is being deleted sends nobody anywhere.
    injects(cluster, "shared", "sip", &[]).await?;
    merge(cluster, "share-b", &json!({ "metadata": { "finalizers": null } })).await?;
    Ok(())
}

/// What was there stays, every term gets the requirement, and an empty one stays empty.
pub async fn existing_affinity_is_kept(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    namespace(cluster, "kept").await?;
    create(cluster, &allocation("keeper", &["198.51.100.31"], &reference("StatefulSet", "kept", "db")))
        .await?;
    injects(cluster, "kept", "db", &["keeper"]).await?;
    let zone = json!({ "key": "zone", "operator": "In", "values": ["a"] });
    let field = json!({ "key": "metadata.name", "operator": "In", "values": ["n1"] });
    let preferred = json!([{ "weight": 5, "preference": { "matchExpressions": [zone] } }]);
    let spread = json!([{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "db" } } }]);
    let mut pod = pod_of("StatefulSet", "db");
    pod["spec"]["affinity"] = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [zone] }, { "matchFields": [field] }, {},
            ]},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": spread },
    });
    let ready = json!({ "key": "ip.ready", "operator": "In", "values": ["true"] });
    let ours = json!({ "key": "netinfra.darkbrains.com/allocation", "operator": "In", "values": ["keeper"] });
    let mut expected = pod["spec"]["affinity"].clone();
    expected["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = json!([
        { "matchExpressions": [ready, ours, zone] },
        { "matchFields": [field], "matchExpressions": [ready, ours] },
        {},
    ]);
    let once = dry_run(cluster, "kept", &pod).await?;
    ensure!(once["spec"]["affinity"] == expected, "{}", once["spec"]["affinity"]);
    ensure!(
        once["metadata"]["annotations"]["netinfra.darkbrains.com/injected"] == "keeper",
        "{}",
        once["metadata"]
    );
    pod["spec"]["affinity"] = expected.clone();
    pod["metadata"]["annotations"] = json!({ "netinfra.darkbrains.com/injected": "keeper" });
    let twice = dry_run(cluster, "kept", &pod).await?;
    ensure!(twice["spec"]["affinity"] == expected, "a second pass: {}", twice["spec"]["affinity"]);
    forget(cluster, &["keeper"]).await
}

/// Pods elsewhere never pay: the selector has the referenced namespaces and no others.
pub async fn the_selector_follows_the_allocations(_: Arc<Bed>) -> Result<()> {
    let guarded = super::kit::start(Version::Newest).await?;
    let cluster = &guarded.cluster;
    let nothing =
        json!({ "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "DoesNotExist" }] });
    eventually("a selector that matches nothing", async || {
        let now = selector(cluster).await?;
        ensure!(now == nothing, "{now}");
        Ok(())
    })
    .await?;
    for (name, address, space) in [
        ("one", "198.51.100.41", "a"),
        ("two", "198.51.100.42", "b"),
        ("three", "198.51.100.43", "kube-system"),
    ] {
        create(cluster, &allocation(name, &[address], &reference("Deployment", space, "web"))).await?;
    }
    selects(cluster, "a", true).await?;
    selects(cluster, "b", true).await?;
    ensure!(!selector(cluster).await?.to_string().contains("kube-system"), "an excluded namespace");
    forget(cluster, &["two"]).await?;
    selects(cluster, "b", false).await?;
    selects(cluster, "a", true).await?;
    // Somebody overwrites it.
    let everything =
        json!([{ "op": "replace", "path": "/webhooks/1/namespaceSelector", "value": {} }]).to_string();
    let configuration = "mutatingwebhookconfiguration/ip-address-controller";
    cluster.kubectl(&["patch", configuration, "--type=json", "-p", &everything]).await?.ok()?;
    selects(cluster, "a", true).await?;
    forget(cluster, &["one", "three"]).await?;
    eventually("a selector that matches nothing", async || {
        let now = selector(cluster).await?;
        ensure!(now == nothing, "{now}");
        Ok(())
    })
    .await?;
    watched_only(cluster, &["a", "b"])?;
    let writes = guarded.hook.log()?.matches("narrowing the pod webhook").count();
    ensure!((4..=12).contains(&writes), "the selector was written {writes} times");
    // WEBHOOK_UNREGISTER: nothing is left behind.
    guarded.hook.process.stop().await?;
    let left =
        cluster.kubectl(&["get", "mutatingwebhookconfigurations,validatingwebhookconfigurations"]).await?;
    ensure!(left.ok()?.trim().is_empty(), "configurations are left");
    Ok(())
}

/// Of ReplicaSets the webhook has asked for metadata, in these namespaces and nowhere else.
fn watched_only(cluster: &Cluster, namespaces: &[&str]) -> Result<()> {
    let log = std::fs::read_to_string(cluster.audit_log())?;
    let mut seen = std::collections::BTreeSet::new();
    for line in log.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let user = event["user"]["username"].as_str().unwrap_or_default();
        if user.ends_with(":ip-address-controller-webhook") && event["objectRef"]["resource"] == "replicasets"
        {
            seen.insert(event["objectRef"]["namespace"].as_str().unwrap_or("all of them").to_owned());
        }
    }
    ensure!(seen.iter().eq(namespaces), "ReplicaSets are watched in {seen:?}");
    Ok(())
}
