//! What the API server refuses on its own: each with the field and a reason that a person understands.

use crate::requests::{allocation, count, create, read, refusal, remove, replace, set};
use anyhow::{Context as _, Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use serde_json::{Value, json};
use std::sync::Arc;

/// A fault: where it is set, to what, the field the answer must name and words it must have.
pub struct Fault {
    pub set: &'static str,
    pub to: Value,
    pub field: &'static str,
    pub says: &'static str,
}

fn fault(set: &'static str, to: Value, field: &'static str, says: &'static str) -> Fault {
    Fault { set, to, field, says }
}

pub fn address_faults() -> Vec<Fault> {
    let not_an_address =
        ["foo", "1.2.3.4.5", "010.0.0.1", "1.2.3.0/24", "node.example.com", "::ffff:1.2.3.4"];
    let not_unicast =
        ["127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "fe80::1", "ff02::1"];
    let private = ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fc00::1"];
    let address = |text: &str, says| {
        fault("/spec/reservedIPs", json!(["203.0.113.9", text]), "spec.reservedIPs[1]", says)
    };
    not_an_address
        .map(|text| address(text, "must be one IPv4 or IPv6 address"))
        .into_iter()
        .chain(not_unicast.map(|text| address(text, "must be a public unicast address")))
        .chain(private.map(|text| address(text, "are private")))
        .chain(
            ["2001:DB8::1", "2001:db8:0::1"].map(|text| address(text, "must be written in canonical form")),
        )
        .chain([
            fault("/spec/reservedIPs", Value::Null, "spec.reservedIPs", "Required value"),
            fault("/spec/reservedIPs", json!([]), "spec.reservedIPs", "at least 1 items"),
            fault(
                "/spec/reservedIPs",
                json!(["203.0.113.1", "203.0.113.1"]),
                "spec.reservedIPs[1]",
                "Duplicate value",
            ),
            fault("/spec/reservedIPs", json!(many(257)), "spec.reservedIPs", "at most 256 items"),
            fault("/spec/reservedIPs", json!("203.0.113.1"), "spec.reservedIPs", "must be of type array"),
            fault("/spec/reservedIPs", json!([7]), "spec.reservedIPs[0]", "must be of type string"),
        ])
        .collect()
}

fn many(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("2001:db8::{:x}", n + 1)).collect()
}

#[rustfmt::skip] // a table
pub fn other_faults() -> Vec<Fault> {
    let reference = |name: Value| json!({ "kind": "Deployment", "name": name, "namespace": "default" });
    let term = json!([{ "matchExpressions": [{ "key": "a", "operator": "Is" }] }]);
    vec![
        fault("/spec/cloud", Value::Null, "spec.cloud", "Required value"),
        fault("/spec/cloud", json!({}), "spec.cloud.provider", "Required value"),
        fault("/spec/cloud/provider", json!("ovh"), "spec.cloud.provider", "supported values: \"gcp\", \"aws\", \"azure\""),
        fault("/spec/cloud/provider", json!("GCP"), "spec.cloud.provider", "supported values"),
        fault("/spec/cloud/zones", json!([""]), "spec.cloud.zones[0]", "at least 1 chars"),
        fault("/spec/workloadRef", json!({ "kind": "Job", "name": "x" }), "spec.workloadRef.kind", "supported values"),
        fault("/spec/workloadRef", json!({ "kind": "Deployment" }), "spec.workloadRef.name", "Required value"),
        fault("/spec/workloadRef", json!({ "name": "x" }), "spec.workloadRef.kind", "Required value"),
        fault("/spec/workloadRef", reference(json!("")), "spec.workloadRef.name", "at least 1 chars"),
        fault("/spec/deploymentRef", json!({}), "spec.deploymentRef.name", "Required value"),
        fault("/spec/reconcileInterval", json!(4), "spec.reconcileInterval", "greater than or equal to 5"),
        fault("/spec/reconcileInterval", json!(-1), "spec.reconcileInterval", "greater than or equal to 5"),
        fault("/spec/reconcileInterval", json!("30s"), "spec.reconcileInterval", "must be of type integer"),
        fault("/spec/releasePolicy", json!("Delete"), "spec.releasePolicy", "\"Detach\", \"Retain\""),
        fault("/spec/mode", json!("DryRun"), "spec.mode", "\"Enforce\", \"Plan\""),
        fault("/spec/eviction", json!("Maybe"), "spec.eviction", "\"Enabled\", \"Disabled\""),
        fault("/spec/failover/notReadyGraceSeconds", json!(-1), "spec.failover.notReadyGraceSeconds", "greater than or equal to 0"),
        fault("/spec/failover/stormThresholdPercent", json!(101), "spec.failover.stormThresholdPercent", "less than or equal to 100"),
        fault("/spec/strategy/maxUnavailable", json!(-1), "spec.strategy.maxUnavailable", "greater than or equal to 0"),
        fault("/spec/nodeSelector", json!({ "pool": "a b" }), "spec.nodeSelector.pool", "should match"),
        fault("/spec/nodeSelectorTerms", term, "spec.nodeSelectorTerms[0].matchExpressions[0].operator", "supported values"),
        fault("/spec/tolerations", json!([{ "value": "x" }]), "spec.tolerations[0]", "without a key the operator must be Exists"),
        fault("/spec/tolerations", json!([{ "key": "k", "operator": "Exists", "value": "x" }]), "spec.tolerations[0]", "takes no value"),
        fault("/spec/typo", json!(1), "spec.typo", "unknown field"),
        fault("/spec/failover/graceSeconds", json!(1), "spec.failover.graceSeconds", "unknown field"),
        fault("/metadata/name", json!("n".repeat(64)), "metadata.name", "at most 63 characters"),
    ]
}

/// Both references, each time differing in one thing.
fn reference_faults() -> Vec<Value> {
    [
        ("Deployment", "other", "default"),
        ("StatefulSet", "my-app", "default"),
        ("Deployment", "my-app", "prod"),
    ]
    .map(|(kind, name, namespace)| json!({ "kind": kind, "name": name, "namespace": namespace }))
    .to_vec()
}

pub async fn each_bad_spec_with_its_field_and_a_reason(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    for (number, case) in address_faults().into_iter().chain(other_faults()).enumerate() {
        let mut object = allocation(&format!("bad-{number}"));
        set(&mut object, case.set, case.to.clone());
        let what = format!("{} = {}", case.set, case.to);
        let answer = refusal(create(cluster, &object).await).with_context(|| what.clone())?.message;
        ensure!(answer.contains(case.field), "{what}: {:?} is not in: {answer}", case.field);
        ensure!(answer.contains(case.says), "{what}: {:?} is not in: {answer}", case.says);
    }
    for workload in reference_faults() {
        let mut object = allocation("bad-references");
        set(&mut object, "/spec/deploymentRef", json!({ "name": "my-app", "namespace": "default" }));
        set(&mut object, "/spec/workloadRef", workload.clone());
        let answer = refusal(create(cluster, &object).await).with_context(|| workload.to_string())?.message;
        ensure!(answer.contains("spec.deploymentRef"), "{answer}");
        ensure!(answer.contains("name different workloads"), "{answer}");
    }
    ensure!(count(cluster, "bad-").await? == 0, "something that was refused was stored");
    Ok(())
}

/// On update it is an error only when the user changed both: otherwise it is clear which one is meant.
pub async fn both_references_changed_to_different_workloads(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let mut object = allocation("two-references");
    set(
        &mut object,
        "/spec/workloadRef",
        json!({ "kind": "Deployment", "name": "a", "namespace": "default" }),
    );
    create(cluster, &object).await?;
    let mut stored = read(cluster, "two-references").await?;
    set(&mut stored, "/spec/deploymentRef", json!({ "name": "b", "namespace": "default" }));
    let mut stored = replace(cluster, &stored).await.context("a changed deploymentRef alone")?;
    set(&mut stored, "/spec/paused", json!(true));
    let mut stored = replace(cluster, &stored).await.context("a change elsewhere")?;
    set(&mut stored, "/spec/deploymentRef/name", json!("c"));
    set(&mut stored, "/spec/workloadRef/name", json!("d"));
    let answer = refusal(replace(cluster, &stored).await).context("both changed")?.message;
    ensure!(answer.contains("name different workloads"), "{answer}");
    remove(cluster, "two-references").await
}

pub async fn an_object_of_a_mebibyte_gets_an_answer(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    let mut object = allocation("bad-mebibyte");
    set(&mut object, "/spec/reservedIPs", json!(many(70_000)));
    ensure!(object.to_string().len() > 1 << 20, "only {} bytes", object.to_string().len());
    let answer = refusal(create(cluster, &object).await)?;
    ensure!(answer.code == 422, "{answer:?}");
    ensure!(answer.message.contains("at most 256 items"), "{}", answer.message);
    let mut object = allocation("bad-name");
    set(&mut object, "/spec/cloud/region", json!("r".repeat(2 << 20)));
    let answer = refusal(create(cluster, &object).await)?;
    ensure!((400..500).contains(&answer.code), "{}", answer.code);
    Ok(())
}
