//! What must get in.

use crate::requests::{allocation, create, create_typed, read, remove, set};
use anyhow::{Context as _, Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use crds::{Cloud, CloudProvider, NetIPAllocation, NetIPAllocationSpec, ReservedIp};
use serde_json::{Value, json};
use std::sync::Arc;

/// The manifests that the predecessor's documentation shows: quick start, the full example, the three
/// workload kinds, and the form before and after its migration to workloadRef.
fn predecessor() -> Vec<Value> {
    let example = json!({
        "reservedIPs": ["34.123.45.67", "34.123.45.68"],
        "workloadRef": { "kind": "Deployment", "name": "my-app", "namespace": "default" },
        "nodeSelector": { "role": "external-ip-node" },
        "cloud": { "provider": "gcp", "region": "us-west1", "zones": ["us-west1-a", "us-west1-b"] },
        "reconcileInterval": 60,
    });
    let quick_start = json!({
        "reservedIPs": ["34.123.45.67"],
        "workloadRef": { "kind": "Deployment", "name": "my-app", "namespace": "default" },
        "nodeSelector": { "role": "public-node" },
        "cloud": { "provider": "gcp", "region": "us-central1" },
        "reconcileInterval": 30,
    });
    let mut specs = vec![example, quick_start.clone()];
    for (kind, name) in
        [("Deployment", "my-deployment"), ("StatefulSet", "my-statefulset"), ("DaemonSet", "my-daemonset")]
    {
        let mut spec = quick_start.clone();
        spec["workloadRef"] = json!({ "kind": kind, "name": name, "namespace": "default" });
        specs.push(spec);
    }
    let mut legacy = quick_start;
    legacy["deploymentRef"] = json!({ "name": "my-app", "namespace": "default" });
    let mut both_the_same = legacy.clone();
    if let Some(spec) = legacy.as_object_mut() {
        spec.remove("workloadRef");
    }
    both_the_same["workloadRef"] = json!({ "kind": "Deployment", "name": "my-app", "namespace": "default" });
    specs.extend([legacy, both_the_same]);
    let with_strategy: Vec<Value> = specs
        .iter()
        .cloned()
        .map(|mut spec| {
            spec["strategy"] = json!({ "maxSurge": 1, "maxUnavailable": 0 });
            spec
        })
        .collect();
    specs.into_iter().chain(with_strategy).collect()
}

pub async fn manifests_of_the_predecessor(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    for (number, spec) in predecessor().into_iter().enumerate() {
        let mut object = allocation(&format!("predecessor-{number}"));
        object["spec"] = spec.clone();
        let stored = create(cluster, &object).await.with_context(|| format!("{spec:#}"))?;
        for (field, value) in spec.as_object().context("no object")? {
            ensure!(&stored["spec"][field] == value, "{field}: {value} became {}", stored["spec"][field]);
        }
    }
    Ok(())
}

/// The predecessor's example has a namespace although the kind is cluster-scoped; kubectl sends it on.
pub async fn a_stray_namespace_is_no_obstacle(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let mut object = allocation("stray-namespace");
    set(&mut object, "/metadata/namespace", json!("default"));
    let manifest = object.to_string();
    for flags in [&["apply", "-f", "-"][..], &["apply", "--server-side", "--force-conflicts", "-f", "-"]] {
        cluster.kubectl_with_input(flags, &manifest).await?.ok()?;
    }
    let stored = read(cluster, "stray-namespace").await?;
    ensure!(stored.pointer("/metadata/namespace").is_none(), "{stored:#}");
    Ok(())
}

/// `workloadRef:` with nothing behind it, as templates leave it.
pub async fn an_empty_field_counts_as_absent(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let mut object = allocation("empty-fields");
    let optional = [
        "workloadRef",
        "deploymentRef",
        "nodeSelector",
        "nodeSelectorTerms",
        "tolerations",
        "reconcileInterval",
        "failover",
        "strategy",
        "eviction",
        "releasePolicy",
        "mode",
        "paused",
    ];
    for field in optional {
        object["spec"][field] = Value::Null;
    }
    object["spec"]["cloud"]["region"] = Value::Null;
    object["spec"]["cloud"]["zones"] = Value::Null;
    let stored = create(cluster, &object).await?;
    ensure!(stored.pointer("/spec/workloadRef").is_none(), "{stored:#}");
    ensure!(stored["spec"]["reconcileInterval"] == 30, "{stored:#}");
    ensure!(stored["spec"]["failover"]["notReadyGraceSeconds"] == 30, "{stored:#}");
    Ok(())
}

pub async fn the_largest_list_mixes_both_families(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let addresses: Vec<String> =
        (1..=128).flat_map(|n| [format!("203.0.113.{n}"), format!("2001:db8::{n:x}")]).collect();
    let mut object = allocation("largest");
    set(&mut object, "/spec/reservedIPs", json!(addresses));
    let stored = create(cluster, &object).await?;
    ensure!(stored["spec"]["reservedIPs"] == json!(addresses), "order or content changed");
    Ok(())
}

pub async fn every_field_at_once(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let spec = json!({
        "reservedIPs": ["198.51.100.1", "2001:db8::1"],
        "workloadRef": { "kind": "StatefulSet", "name": "sip", "namespace": "voice" },
        "nodeSelector": { "pool": "media", "empty": "" },
        "nodeSelectorTerms": [
            { "matchExpressions": [
                { "key": "disk", "operator": "In", "values": ["ssd", "nvme"] },
                { "key": "cores", "operator": "Gt", "values": ["3"] },
                { "key": "spot", "operator": "DoesNotExist" },
            ]},
            { "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-9"] }] },
        ],
        "tolerations": [
            { "key": "dedicated", "operator": "Equal", "value": "media", "effect": "NoSchedule" },
            { "key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60 },
            { "operator": "Exists" },
        ],
        "cloud": { "provider": "azure", "region": "westeurope", "zones": ["westeurope-1"] },
        "reconcileInterval": 5,
        "failover": { "notReadyGraceSeconds": 0, "drainTimeoutSeconds": 600, "minHoldSeconds": 60,
                      "stormThresholdPercent": 100 },
        "strategy": { "maxUnavailable": 3, "maxSurge": 1 },
        "eviction": "Disabled",
        "releasePolicy": "Retain",
        "mode": "Plan",
        "paused": true,
    });
    let mut object = allocation("every-field");
    object["spec"] = spec.clone();
    let stored = create(cluster, &object).await?;
    ensure!(stored["spec"] == spec, "stored: {:#}", stored["spec"]);
    // Our own types read what the API server stored, and write the same back.
    let typed: NetIPAllocation = serde_json::from_value(stored)?;
    ensure!(serde_json::to_value(&typed.spec)? == spec, "{:#}", serde_json::to_value(&typed.spec)?);
    remove(cluster, "every-field").await
}

pub async fn defaults_appear_on_read_back(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let mut object = allocation("defaults");
    set(&mut object, "/spec/workloadRef", json!({ "kind": "DaemonSet", "name": "edge" }));
    set(&mut object, "/spec/failover", json!({ "drainTimeoutSeconds": 9 }));
    set(&mut object, "/spec/strategy", json!({ "maxSurge": 1 }));
    set(&mut object, "/spec/tolerations", json!([{ "key": "k", "value": "v" }]));
    create(cluster, &object).await?;
    let spec = read(cluster, "defaults").await?["spec"].take();
    let expected = json!({
        "reservedIPs": ["203.0.113.10"],
        "cloud": { "provider": "gcp" },
        "workloadRef": { "kind": "DaemonSet", "name": "edge", "namespace": "default" },
        "tolerations": [{ "key": "k", "operator": "Equal", "value": "v" }],
        "reconcileInterval": 30,
        "failover": { "notReadyGraceSeconds": 30, "drainTimeoutSeconds": 9, "minHoldSeconds": 0,
                      "stormThresholdPercent": 55 },
        "strategy": { "maxSurge": 1, "maxUnavailable": 1 },
        "eviction": "Enabled",
        "releasePolicy": "Detach",
        "mode": "Enforce",
        "paused": false,
    });
    ensure!(spec == expected, "{spec:#}");
    // The defaults of the types are those of the schema.
    let minimal = NetIPAllocation::new(
        "typed-defaults",
        NetIPAllocationSpec {
            reserved_ips: vec![ReservedIp("203.0.113.11".into())],
            cloud: Cloud { provider: CloudProvider::Gcp, region: None, zones: vec![] },
            ..serde_json::from_value(json!({ "reservedIPs": [], "cloud": { "provider": "gcp" } }))?
        },
    );
    ensure!(create_typed(cluster, &minimal).await?.spec == minimal.spec);
    Ok(())
}
