//! Kubernetes objects, decoded down to what the planner needs: the rest of them is skipped while parsing
//! and never held in memory.

use crds::{
    ANNOTATION_INJECTED, ANNOTATION_RESERVED_IP, NetIPAllocation, NetIPAllocationStatus, WorkloadKind,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Metadata without managed fields and foreign annotations.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Ours,
        owner_references: Option<Vec<OwnerReference>>,
        finalizers: Option<Vec<String>>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Ours {
        #[serde(rename = "netinfra.darkbrains.com/reserved-ip")]
        reserved_ip: Option<String>,
        #[serde(rename = "netinfra.darkbrains.com/injected")]
        injected: Option<String>,
    }
    let meta = Meta::deserialize(deserializer)?;
    let Ours { reserved_ip, injected } = meta.annotations;
    let annotations: BTreeMap<String, String> =
        [(ANNOTATION_RESERVED_IP, reserved_ip), (ANNOTATION_INJECTED, injected)]
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect();
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        labels: meta.labels,
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: meta.owner_references,
        finalizers: meta.finalizers,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// Makes a lean type stand for the full one in requests.
macro_rules! stands_for {
    ($lean:ty, $full:ty) => {
        impl Resource for $lean {
            type DynamicType = ();
            type Scope = <$full as Resource>::Scope;
            fn kind(_: &()) -> Cow<'_, str> {
                <$full as Resource>::kind(&())
            }
            fn group(_: &()) -> Cow<'_, str> {
                <$full as Resource>::group(&())
            }
            fn version(_: &()) -> Cow<'_, str> {
                <$full as Resource>::version(&())
            }
            fn plural(_: &()) -> Cow<'_, str> {
                <$full as Resource>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A NetIPAllocation whose spec may be anything.
#[derive(Clone, Debug, Deserialize)]
pub struct Allocation {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    status: Value,
}
stands_for!(Allocation, NetIPAllocation);

impl Allocation {
    /// For the planner. A status that does not decode is none: it is made anew.
    pub fn for_planner(&self) -> plan::Allocation {
        let meta = &self.metadata;
        plan::Allocation {
            uid: meta.uid.clone().unwrap_or_default(),
            created: created(meta),
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            has_finalizer: meta.finalizers.iter().flatten().any(|name| name == crds::FINALIZER),
            spec: self.spec().map(std::sync::Arc::new),
            status: self.status().into(),
        }
    }

    /// A name that no node can be labelled with is a fault of the object, like any in its spec.
    fn spec(&self) -> Result<plan::parse::Spec, Vec<plan::parse::Fault>> {
        let name = plan::parse::check_name(self.metadata.name.as_deref().unwrap_or_default());
        match (name, plan::parse::parse(&self.spec)) {
            (Ok(()), parsed) => parsed,
            (Err(fault), parsed) => {
                Err(std::iter::once(fault).chain(parsed.err().unwrap_or_default()).collect())
            }
        }
    }

    fn status(&self) -> NetIPAllocationStatus {
        NetIPAllocationStatus::deserialize(&self.status).unwrap_or_default()
    }
}

/// A node.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: Conditions,
}
stands_for!(Node, k8s_openapi::api::core::v1::Node);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: String,
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
    value: String,
    effect: String,
}

/// The conditions of a node or a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    conditions: Vec<Condition>,
    phase: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Conditions {
    fn ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

impl Node {
    /// For the planner.
    pub fn for_planner(self) -> plan::Node {
        let created = created(&self.metadata);
        let mut annotations = self.metadata.annotations.unwrap_or_default();
        plan::Node {
            created,
            uid: self.metadata.uid.unwrap_or_default(),
            provider_id: self.spec.provider_id,
            ready: self.status.ready(),
            labels: self.metadata.labels.unwrap_or_default().into(),
            reserved_ip: annotations.remove(ANNOTATION_RESERVED_IP),
            unschedulable: self.spec.unschedulable,
            deleting: self.metadata.deletion_timestamp.is_some(),
            taints: self.spec.taints.into_iter().map(Taint::for_planner).collect(),
        }
    }
}

impl Taint {
    fn for_planner(self) -> plan::Taint {
        plan::Taint { key: self.key, value: self.value, effect: self.effect }
    }
}

/// A pod.
#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: Conditions,
}
stands_for!(Pod, k8s_openapi::api::core::v1::Pod);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: Option<String>,
    affinity: Option<Value>,
}

impl Pod {
    /// The allocations that it requires, whoever wrote that.
    pub fn injected(&self) -> Option<BTreeSet<String>> {
        webhook::affinity::required(self.spec.affinity.as_ref()?)
    }

    /// Whether that requirement is marked as ours.
    pub fn is_ours(&self) -> bool {
        let mark = self.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_INJECTED));
        let affinity = self.spec.affinity.as_ref();
        affinity.is_some_and(|affinity| webhook::affinity::is_ours(mark.map(String::as_str), affinity))
    }

    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    pub fn finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn ready(&self) -> bool {
        self.status.ready()
    }
}

/// A ReplicaSet: only its owner matters.
#[derive(Clone, Debug, Deserialize)]
pub struct ReplicaSet {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
}
stands_for!(ReplicaSet, k8s_openapi::api::apps::v1::ReplicaSet);

/// What Deployments, StatefulSets and DaemonSets have in common.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WorkloadSpec {
    selector: Selector,
    template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: TemplateMeta,
    spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    #[serde(deserialize_with = "or_default")]
    annotations: Mark,
}

/// The annotation that says what is ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Mark {
    #[serde(rename = "netinfra.darkbrains.com/injected")]
    injected: Option<String>,
}

/// `null` counts as absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Template {
    /// For the planner.
    fn for_planner(&self) -> plan::Workload {
        let (mark, affinity) = (self.metadata.annotations.injected.as_deref(), self.spec.affinity.as_ref());
        plan::Workload {
            injected: affinity.and_then(webhook::affinity::required),
            ours: affinity.is_some_and(|affinity| webhook::affinity::is_ours(mark, affinity)),
            tolerations: self.spec.tolerations(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    affinity: Option<Value>,
    tolerations: Vec<Value>,
}

impl TemplateSpec {
    /// A toleration of a kind that we do not know tolerates nothing.
    fn tolerations(&self) -> Vec<crds::Toleration> {
        self.tolerations.iter().filter_map(|value| crds::Toleration::deserialize(value).ok()).collect()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Selector {
    /// As the API server takes it in `labelSelector`.
    fn text(&self) -> String {
        let labels = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|expression| {
            let (key, values) = (&expression.key, expression.values.join(","));
            match expression.operator.as_str() {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.clone(),
                _ => format!("!{key}"),
            }
        });
        labels.chain(expressions).collect::<Vec<_>>().join(",")
    }
}

macro_rules! workload {
    ($(#[$doc:meta])* $name:ident, $kind:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        pub struct $name {
            #[serde(deserialize_with = "metadata")]
            pub metadata: ObjectMeta,
            #[serde(default)]
            spec: WorkloadSpec,
        }
        stands_for!($name, k8s_openapi::api::apps::v1::$name);

        impl Workload for $name {
            const KIND: WorkloadKind = $kind;
            fn selector(&self) -> String {
                self.spec.selector.text()
            }
            fn for_planner(self) -> plan::Workload {
                self.spec.template.for_planner()
            }
        }
    };
}

/// Deployments, StatefulSets and DaemonSets.
pub trait Workload: Resource<DynamicType = ()> {
    const KIND: WorkloadKind;
    /// The selector of its pods.
    fn selector(&self) -> String;
    fn for_planner(self) -> plan::Workload;
}

workload!(
    /// A Deployment.
    Deployment,
    WorkloadKind::Deployment
);
workload!(
    /// A StatefulSet.
    StatefulSet,
    WorkloadKind::StatefulSet
);
workload!(
    /// A DaemonSet.
    DaemonSet,
    WorkloadKind::DaemonSet
);

/// When an object was created, by the API server's clock.
pub fn created(meta: &ObjectMeta) -> plan::Time {
    meta.creation_timestamp.as_ref().map(|time| plan::Time::from(time.0)).unwrap_or_default()
}

/// The owner that controls an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Versions of one object are ordered numbers; of two, the higher is the later.
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
#[path = "lean_tests.rs"]
mod tests;
