//! Pods and DaemonSets: which allocations they belong to, and what that adds to their affinity.

use crate::affinity;
use crate::index::Index;
use crds::WorkloadKind;
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation, TestOperation};
use plan::WorkloadKey;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The few fields of a pod that matter; the rest is not even decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanPod<'b> {
    #[serde(borrow, deserialize_with = "or_default")]
    metadata: LeanMeta<'b>,
    #[serde(borrow, deserialize_with = "or_default")]
    spec: LeanPodSpec<'b>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanMeta<'b> {
    #[serde(borrow, deserialize_with = "or_default")]
    labels: Labels<'b>,
    #[serde(borrow)]
    annotations: Option<Annotations<'b>>,
    #[serde(borrow, deserialize_with = "or_default")]
    owner_references: Vec<Owner<'b>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels<'b> {
    #[serde(rename = "pod-template-hash", borrow)]
    pod_template_hash: Option<Cow<'b, str>>,
}

/// The one annotation that is ours.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations<'b> {
    #[serde(rename = "netinfra.darkbrains.com/injected", borrow)]
    injected: Option<Cow<'b, str>>,
}

impl Annotations<'_> {
    /// As [`affinity`] looks at them: whether they are there, and ours among them.
    fn lean(&self) -> Value {
        match &self.injected {
            Some(injected) => json!({ crds::ANNOTATION_INJECTED: injected }),
            None => json!({}),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner<'b> {
    #[serde(borrow)]
    api_version: Cow<'b, str>,
    #[serde(borrow)]
    kind: Cow<'b, str>,
    #[serde(borrow)]
    name: Cow<'b, str>,
    #[serde(borrow)]
    uid: Cow<'b, str>,
    #[serde(deserialize_with = "or_default")]
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanPodSpec<'b> {
    #[serde(borrow)]
    node_name: Option<Cow<'b, str>>,
    // Raw: most pods are nobody's, and theirs is not looked into.
    #[serde(borrow)]
    affinity: Option<&'b RawValue>,
}

/// The same of a DaemonSet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeanDaemonSet<'b> {
    #[serde(borrow, deserialize_with = "or_default")]
    metadata: LeanName<'b>,
    #[serde(borrow, deserialize_with = "or_default")]
    spec: LeanDaemonSetSpec<'b>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeanName<'b> {
    #[serde(borrow)]
    name: Option<Cow<'b, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeanDaemonSetSpec<'b> {
    #[serde(borrow, deserialize_with = "or_default")]
    template: LeanTemplate<'b>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeanTemplate<'b> {
    #[serde(borrow)]
    metadata: Option<LeanTemplateMeta<'b>>,
    #[serde(borrow, deserialize_with = "or_default")]
    spec: LeanPodSpec<'b>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LeanTemplateMeta<'b> {
    #[serde(borrow)]
    annotations: Option<Annotations<'b>>,
}

impl LeanTemplate<'_> {
    fn lean(&self) -> Result<Value, serde_json::Error> {
        let mut template = json!({ "spec": self.spec.affinity_only()? });
        if let Some(metadata) = &self.metadata {
            template["metadata"] = with_annotations(metadata.annotations.as_ref());
        }
        Ok(template)
    }
}

fn with_annotations(annotations: Option<&Annotations<'_>>) -> Value {
    annotations.map_or(json!({}), |annotations| json!({ "annotations": annotations.lean() }))
}

/// `null` counts as absent, as it does for the API server.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl LeanPodSpec<'_> {
    /// A pod spec with nothing but the affinity in it.
    fn affinity_only(&self) -> Result<Value, serde_json::Error> {
        let mut spec = serde_json::Map::new();
        if let Some(raw) = self.affinity {
            spec.insert("affinity".to_owned(), serde_json::from_str(raw.get())?);
        }
        Ok(Value::Object(spec))
    }
}

impl LeanDaemonSet<'_> {
    /// The DaemonSet as allocations refer to it.
    pub fn key(&self, namespace: &str) -> WorkloadKey {
        let name = self.metadata.name.as_deref().unwrap_or_default().to_owned();
        WorkloadKey { kind: WorkloadKind::DaemonSet, namespace: namespace.to_owned(), name }
    }
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
pub fn ownership(pod: &LeanPod<'_>, namespace: &str, index: &Index) -> Ownership {
    if pod.spec.node_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return Ownership::Nobody;
    }
    let controller = pod.metadata.owner_references.iter().find(|owner| owner.controller);
    let Some(owner) = controller.filter(|owner| owner.api_version.starts_with("apps/")) else {
        return Ownership::Nobody;
    };
    let key = |kind, name: &str| WorkloadKey { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    match &*owner.kind {
        "StatefulSet" => Ownership::Workload(key(WorkloadKind::StatefulSet, &owner.name)),
        // ReplicaSets are watched where a Deployment is referred to; elsewhere there is nothing to wait for.
        "ReplicaSet" if index.refers_to_deployments_in(namespace) => {
            match index.deployment_of(namespace, &owner.uid) {
                Some(Some(deployment)) => Ownership::Workload(key(WorkloadKind::Deployment, deployment)),
                Some(None) => Ownership::Nobody,
                None => Ownership::ReplicaSet {
                    uid: owner.uid.clone().into_owned(),
                    guess: pod
                        .metadata
                        .labels
                        .pod_template_hash
                        .as_deref()
                        .and_then(|hash| deployment_name(&owner.name, hash))
                        .map(|name| key(WorkloadKind::Deployment, name)),
                },
            }
        }
        // A DaemonSet's pods get it from their template.
        _ => Ownership::Nobody,
    }
}

/// `web` of ReplicaSet `web-5d4f8c7b9` with that hash; exactly, so that `web` never matches `web-canary`.
fn deployment_name<'n>(replica_set: &'n str, hash: &str) -> Option<&'n str> {
    replica_set.strip_suffix(hash)?.strip_suffix('-').filter(|name| !hash.is_empty() && !name.is_empty())
}

/// What a pod of a workload needs; empty for workloads that no allocation refers to.
pub fn patch_pod(
    pod: &LeanPod<'_>,
    workload: &WorkloadKey,
    index: &Index,
) -> Result<Patch, serde_json::Error> {
    match index.allocations_of(workload) {
        Some(names) => {
            let metadata = with_annotations(pod.metadata.annotations.as_ref());
            let pod = json!({ "metadata": metadata, "spec": pod.spec.affinity_only()? });
            Ok(affinity::inject(&pod, "", names))
        }
        None => Ok(Patch::default()),
    }
}

/// Where the pod template is in a DaemonSet.
pub const TEMPLATE: &str = "/spec/template";

/// What a DaemonSet that a user writes needs. A new one has no pods to lose, so it gets the requirement
/// at once; a stored one keeps it if it had it. When a running one gets it is the controller's to say.
pub fn patch_daemon_set(
    object: &LeanDaemonSet<'_>,
    old: Option<&LeanDaemonSet<'_>>,
    namespace: &str,
    index: &Index,
) -> Result<Patch, serde_json::Error> {
    let Some(names) = index.allocations_of(&object.key(namespace)) else { return Ok(Patch::default()) };
    if let Some(old) = old
        && affinity::required(&old.spec.template.spec.affinity_only()?["affinity"]).is_none()
    {
        return Ok(Patch::default());
    }
    Ok(affinity::inject(&object.spec.template.lean()?, TEMPLATE, names))
}

/// What the controller does to a DaemonSet: exactly these names, or none. What it did not write stays.
pub fn set_daemon_set(object: &Value, names: &BTreeSet<String>) -> Patch {
    let nothing = Value::Null;
    let template = object.pointer(TEMPLATE).unwrap_or(&nothing);
    if names.is_empty() {
        affinity::remove(template, TEMPLATE)
    } else {
        affinity::inject(template, TEMPLATE, names)
    }
}

/// Gives up what a write of ours made us the owner of, by the object that it came back with. The fields
/// around the requirement are one atomic value: as its owner we would be in the way of whoever applies an affinity
/// of their own server-side. What nobody owns, anybody may apply.
pub fn disown(object: &Value) -> Patch {
    let managers = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let ours = |entry: &Value| entry["manager"] == crds::FIELD_MANAGER && entry["operation"] == "Update";
    let places = managers.into_iter().flatten().enumerate().filter(|(_, entry)| ours(entry));
    // The last goes first, so that the places of the others stay what they are.
    let mut places: Vec<usize> = places.map(|(place, _)| place).collect();
    places.reverse();
    let operations = places.into_iter().flat_map(|place| {
        let at = |tokens: &[&str]| {
            let place = place.to_string();
            PointerBuf::from_tokens(["metadata", "managedFields", &place].iter().chain(tokens).copied())
        };
        let manager = TestOperation { path: at(&["manager"]), value: json!(crds::FIELD_MANAGER) };
        [PatchOperation::Test(manager), PatchOperation::Remove(RemoveOperation { path: at(&[]) })]
    });
    Patch(operations.collect())
}
