//! Pods and DaemonSets: which allocations they belong to, and what that adds to their affinity.

use crate::affinity;
use crate::index::Index;
use crds::WorkloadKind;
use json_patch::Patch;
use plan::WorkloadKey;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// The few fields of a pod that matter; the rest is not even decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanPod {
    metadata: LeanMeta,
    spec: LeanPodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanMeta {
    labels: Labels,
    owner_references: Vec<Owner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "pod-template-hash")]
    pod_template_hash: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanPodSpec {
    node_name: String,
    affinity: Option<Value>,
}

/// Who a pod is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This workload.
    Workload(WorkloadKey),
    /// A ReplicaSet (by UID) that the index does not know yet; if it does not turn up, its Deployment's
    /// name is taken from its own.
    ReplicaSet {
        /// UID of the ReplicaSet.
        uid: String,
        /// The Deployment, if the name of the ReplicaSet is made as Deployments make them.
        guess: Option<WorkloadKey>,
    },
    /// Nobody that an allocation could refer to; or it has a node already.
    Nobody,
}

/// Finds out who a pod is of, by its controlling owner.
pub fn ownership(pod: &LeanPod, namespace: &str, index: &Index) -> Ownership {
    if !pod.spec.node_name.is_empty() {
        return Ownership::Nobody;
    }
    let controller = pod.metadata.owner_references.iter().find(|owner| owner.controller);
    let Some(owner) = controller.filter(|owner| owner.api_version.starts_with("apps/")) else {
        return Ownership::Nobody;
    };
    let key = |kind, name: &str| WorkloadKey { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    match owner.kind.as_str() {
        "StatefulSet" => Ownership::Workload(key(WorkloadKind::StatefulSet, &owner.name)),
        "ReplicaSet" => match index.deployment_of(namespace, &owner.uid) {
            Some(deployment) => Ownership::Workload(key(WorkloadKind::Deployment, deployment)),
            None => Ownership::ReplicaSet {
                uid: owner.uid.clone(),
                guess: deployment_name(&owner.name, &pod.metadata.labels.pod_template_hash)
                    .map(|name| key(WorkloadKind::Deployment, name)),
            },
        },
        // A DaemonSet's pods get it from their template.
        _ => Ownership::Nobody,
    }
}

/// `web` of ReplicaSet `web-5d4f8c7b9` with that hash; exactly, so that `web` never matches `web-canary`.
fn deployment_name<'n>(replica_set: &'n str, hash: &str) -> Option<&'n str> {
    replica_set.strip_suffix(hash)?.strip_suffix('-').filter(|name| !hash.is_empty() && !name.is_empty())
}

/// What a pod of a workload needs; empty for workloads that no allocation refers to.
pub fn patch_pod(pod: &LeanPod, workload: &WorkloadKey, index: &Index) -> Patch {
    let Some(names) = index.allocations_of(workload) else { return Patch::default() };
    let mut spec = serde_json::Map::new();
    if let Some(affinity) = &pod.spec.affinity {
        spec.insert("affinity".to_owned(), affinity.clone());
    }
    affinity::inject(&Value::Object(spec), "/spec", names)
}

/// Where the pod spec is in a DaemonSet.
pub const TEMPLATE_SPEC: &str = "/spec/template/spec";

/// What a DaemonSet that a user writes needs. A new one has no pods to lose, so it gets the requirement
/// at once; a stored one keeps it if it had it. When a running one gets it is the controller's to say.
pub fn patch_daemon_set(object: &Value, old: Option<&Value>, workload: &WorkloadKey, index: &Index) -> Patch {
    let spec_of = |object: &Value| object.pointer(TEMPLATE_SPEC).cloned().unwrap_or_default();
    let due = old.is_none_or(|old| affinity::injected(&spec_of(old)).is_some());
    match index.allocations_of(workload) {
        Some(names) if due => affinity::inject(&spec_of(object), TEMPLATE_SPEC, names),
        _ => Patch::default(),
    }
}

/// What the controller does to a DaemonSet: exactly these names, or none.
pub fn set_daemon_set(object: &Value, names: &BTreeSet<String>) -> Patch {
    let spec = object.pointer(TEMPLATE_SPEC).cloned().unwrap_or_default();
    if names.is_empty() {
        affinity::remove(&spec, TEMPLATE_SPEC)
    } else {
        affinity::inject(&spec, TEMPLATE_SPEC, names)
    }
}
