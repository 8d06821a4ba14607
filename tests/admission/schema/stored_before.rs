//! Objects that an earlier, laxer schema let in stay workable under ours: no rule may freeze them.

use crate::requests::{allocation, api, create, read, refusal, remove};
use anyhow::{Context as _, Result, bail, ensure};
use cluster::harness::Bed;
use cluster::{Cluster, Version, eventually};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;

/// The predecessor's schema as far as it checked anything.
fn lax_schema() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn broken_objects() -> Vec<(String, Value)> {
    let cloud = json!({ "provider": "gcp" });
    let specs = [
        ("private", json!({ "reservedIPs": ["10.0.0.1"], "cloud": cloud })),
        ("malformed", json!({ "reservedIPs": ["foo", "010.0.0.1"], "cloud": cloud })),
        ("twice", json!({ "reservedIPs": ["203.0.113.5", "203.0.113.5"], "cloud": cloud })),
        ("none", json!({ "reservedIPs": [], "cloud": cloud })),
        ("no-provider", json!({ "reservedIPs": ["203.0.113.5"], "cloud": {} })),
        (
            "odd-workload",
            json!({ "reservedIPs": ["203.0.113.5"], "cloud": cloud,
                                 "workloadRef": { "kind": "Job", "name": "x" } }),
        ),
        ("often", json!({ "reservedIPs": ["203.0.113.5"], "cloud": cloud, "reconcileInterval": 1 })),
        (
            "two-workloads",
            json!({ "reservedIPs": ["203.0.113.5"], "cloud": cloud,
                                  "deploymentRef": { "name": "a" },
                                  "workloadRef": { "kind": "Deployment", "name": "b" } }),
        ),
        (
            "tolerant",
            json!({ "reservedIPs": ["203.0.113.5"], "cloud": cloud,
                             "tolerations": [{ "value": "x" }] }),
        ),
    ];
    let bad = |what: &str, field: &str, value: Value| {
        let mut spec = json!({ "reservedIPs": ["203.0.113.5"], "cloud": cloud });
        spec[field] = value;
        (format!("old-{what}"), spec)
    };
    let term = |key: &str, value: &str| {
        json!([{ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }],
                 "matchFields": [{ "key": "spec.x", "operator": "In", "values": ["A B"] }] }])
    };
    let names = [
        bad("blank", "workloadRef", json!({ "kind": "Deployment", "name": "web", "namespace": "prod " })),
        bad("slash", "workloadRef", json!({ "kind": "Deployment", "name": "web", "namespace": "prod/web" })),
        bad(
            "template",
            "deploymentRef",
            json!({ "name": "{{ .Values.name }}", "namespace": "{{ .Values.ns }}" }),
        ),
        bad(
            "comma",
            "workloadRef",
            json!({ "kind": "DaemonSet", "name": "web,x=y", "namespace": "default" }),
        ),
        bad("key", "nodeSelector", json!({ "Example.COM/a b": "x", "pool": "a b" })),
        bad("terms", "nodeSelectorTerms", term("A..b/c", "x y")),
        bad("taint", "tolerations", json!([{ "key": "a b", "value": "x y" }])),
        bad("zones", "cloud", json!({ "provider": "gcp", "region": "eu west", "zones": ["a b", ""] })),
    ];
    let mut objects: Vec<_> = specs.map(|(name, spec)| (format!("old-{name}"), spec)).to_vec();
    objects.extend(names);
    let long = "n".repeat(64);
    objects.push((long, json!({ "reservedIPs": ["203.0.113.5"], "cloud": cloud })));
    objects
}

pub async fn broken_objects_stay_workable(_: Arc<Bed>, version: Version) -> Result<()> {
    // A cluster of its own: swapping the CRD would disturb the other tests.
    let cluster = &Cluster::builder().version(version).start().await?;
    store_under_lax_schema(cluster, &broken_objects()).await?;
    for (name, spec) in broken_objects() {
        let done = work_with(cluster, &name).await.with_context(|| format!("{name}: {spec}"));
        done?;
    }
    Ok(())
}

/// Stores objects as a schema without rules let them in, and puts ours in its place.
pub async fn store_under_lax_schema(cluster: &Cluster, objects: &[(String, Value)]) -> Result<()> {
    let mut crd = crds::manifests().remove(0).crd;
    let lax = serde_json::from_value(lax_schema())?;
    let schema = crd.spec.versions[0].schema.as_mut().context("no schema")?;
    let properties =
        schema.open_api_v3_schema.as_mut().and_then(|s| s.properties.as_mut()).context("none")?;
    properties.insert("spec".into(), lax);
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let params = PatchParams::apply("predecessor");
    api.patch("netipallocations.netinfra.darkbrains.com", &params, &Patch::Apply(&without_rules(crd)?))
        .await?;
    for (name, spec) in objects {
        let mut object = allocation(name);
        object["spec"] = spec.clone();
        eventually("the lax schema to be served", async || create(cluster, &object).await).await?;
    }
    cluster.install_crds().await?;
    // Our schema is in force once it refuses something.
    eventually("our schema to be in force", async || {
        let mut bad = allocation("probe");
        bad["spec"]["reservedIPs"] = json!(["foo"]);
        match create(cluster, &bad).await {
            Ok(_) => {
                remove(cluster, "probe").await?;
                bail!("still lax")
            }
            refused => refusal(refused).map(drop),
        }
    })
    .await
}

fn without_rules(crd: CustomResourceDefinition) -> Result<Value> {
    let mut crd = serde_json::to_value(crd)?;
    let root = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").context("no schema")?;
    root.as_object_mut().context("no object")?.remove("x-kubernetes-validations");
    Ok(crd)
}

/// Everything that the controller and the user need to be able to do with any object.
async fn work_with(cluster: &Cluster, name: &str) -> Result<()> {
    let api = api(cluster);
    let params = PatchParams::default();
    let patch = async |what: &'static str, patch: Value| -> Result<()> {
        api.patch(name, &params, &Patch::Merge(&patch)).await.context(what)?;
        Ok(())
    };
    patch("annotation", json!({ "metadata": { "annotations": { "a": "b" } } })).await?;
    patch("finalizer", json!({ "metadata": { "finalizers": [crds::FINALIZER] } })).await?;
    let status =
        json!({ "status": { "reserved": 1, "attached": 0, "unattached": 1, "ips": [], "conditions": [] } });
    api.patch_status(name, &params, &Patch::Merge(&status)).await.context("status")?;
    patch("an edit elsewhere", json!({ "spec": { "paused": true, "failover": { "minHoldSeconds": 9 } } }))
        .await?;
    patch("Retain", json!({ "spec": { "releasePolicy": "Retain" } })).await?;
    remove(cluster, name).await?;
    let dying = read(cluster, name).await?;
    ensure!(dying.pointer("/metadata/deletionTimestamp").is_some(), "{dying:#}");
    patch("the finalizer's removal", json!({ "metadata": { "finalizers": null } })).await?;
    let gone = refusal(read(cluster, name).await)?;
    ensure!(gone.code == 404, "still there: {gone:?}");
    Ok(())
}
