//! `NetIPAllocation`: a list of reserved addresses, the nodes that may hold them, and the workload
//! that has to run there.

use crate::rules;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Keeps reserved static public IPs attached to healthy nodes and makes the workload run there.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "netinfra.darkbrains.com",
    version = "v1alpha1",
    kind = "NetIPAllocation",
    plural = "netipallocations",
    singular = "netipallocation",
    shortname = "nia",
    status = "NetIPAllocationStatus",
    derive = "PartialEq",
    doc = "Keeps a list of reserved static public IPs attached to healthy cloud VM nodes, marks those nodes, and makes the referenced workload run there and nowhere else.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.cloud.provider"),
    printcolumn(name = "Reserved", type_ = "integer", json_path = ".status.reserved"),
    printcolumn(name = "Attached", type_ = "integer", json_path = ".status.attached"),
    printcolumn(name = "Unattached", type_ = "integer", json_path = ".status.unattached"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Workload", type_ = "string", json_path = ".spec.workloadRef.name", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = 1
    )
)]
#[schemars(extend("x-kubernetes-validations" = rules::one_workload()))]
pub struct NetIPAllocationSpec {
    /// The reserved public addresses, IPv4 or IPv6, that this allocation keeps attached. The order is
    /// the priority: when there are fewer nodes than addresses, the first ones are served first. An
    /// address may stand in one allocation only.
    #[serde(rename = "reservedIPs")]
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-list-type" = "set"))]
    pub reserved_ips: Vec<ReservedIp>,

    /// The workload that uses the addresses. Its pods get a node affinity for the nodes of this
    /// allocation, and an address does not leave a cordoned node while one of them still runs there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,

    /// Deprecated: use workloadRef. Admission rewrites it to a workloadRef of kind Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_ref: Option<DeploymentRef>,

    /// Labels that a node must have to hold an address. Empty: every node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, LabelValue>,

    /// Node selector terms in the form of core/v1: a node must match at least one of them, besides
    /// nodeSelector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_selector_terms: Vec<NodeSelectorTerm>,

    /// Taints that a target node may have. Absent: those that the workload's pod template tolerates;
    /// without a workload every taint but those of node.kubernetes.io/, of
    /// node.cloudprovider.kubernetes.io/ and of the autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,

    /// The cloud that the addresses are reserved in.
    pub cloud: Cloud,

    /// How often, in seconds, what the cloud says is compared with what should be. Reactions to node
    /// and pod events are driven by watches and never wait for this.
    #[serde(default = "defaults::reconcile_interval")]
    #[schemars(range(min = 5))]
    pub reconcile_interval: i32,

    /// When an address leaves a node.
    #[serde(default)]
    pub failover: Failover,

    /// How many addresses may be on the move at once.
    #[serde(default)]
    pub strategy: Strategy,

    /// Whether pods of the workload that run on a node without an address of this allocation are
    /// evicted (through the Eviction API, PodDisruptionBudgets honoured, one at a time).
    #[serde(default)]
    pub eviction: Eviction,

    /// What happens to an attached address when the allocation is deleted or the address is taken off
    /// the list. It may be changed to Retain while the object is being deleted, which lets it go
    /// without a call to the cloud.
    #[serde(default)]
    pub release_policy: ReleasePolicy,

    /// Enforce acts. Plan only writes what it would do into status.plan and touches nothing: no
    /// finalizer, no labels, no affinity, no eviction.
    #[serde(default)]
    pub mode: Mode,

    /// True: no moves and no evictions. Status and the affinity of new pods go on; deletion still
    /// carries out releasePolicy.
    #[serde(default)]
    pub paused: bool,
}

/// A public IPv4 or IPv6 address in canonical form, e.g. 203.0.113.10 or 2001:db8::10.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("minLength" = 1, "maxLength" = 45, "x-kubernetes-validations" = rules::reserved_ip()))]
pub struct ReservedIp(pub String);

/// A Kubernetes label value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, extend("maxLength" = 63, "pattern" = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))]
pub struct LabelValue(pub String);

/// A workload by kind, name and namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct WorkloadRef {
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the workload.
    #[serde(default = "defaults::namespace")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

/// Kinds of workloads that can be referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
}

/// A Deployment by name and namespace, the form that v1.0 of the API had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeploymentRef {
    /// Name of the Deployment.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the Deployment.
    #[serde(default = "defaults::namespace")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
}

/// Requirements on a node, all of which must hold. A term without any matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on the node's fields. Kubernetes knows one: metadata.name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// One requirement: a key, an operator and the values it is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NodeSelectorRequirement {
    /// Label key, or metadata.name in matchFields.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the key's value is compared.
    pub operator: SelectorOperator,
    /// Values for In and NotIn (at least one), Gt and Lt (exactly one integer); none for Exists and
    /// DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    pub values: Vec<String>,
}

/// Operators of core/v1 node selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum SelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// A taint that is accepted on a target node, in the form of core/v1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("x-kubernetes-validations" = rules::toleration()))]
pub struct Toleration {
    /// Taint key. Absent: every key (then the operator must be Exists).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// Exists accepts every value, Equal the one given.
    #[serde(default)]
    pub operator: TolerationOperator,
    /// Taint value for Equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Taint effect. Absent: every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// Accepted for the sake of manifests copied from pods; failover decides how long a node may be
    /// in trouble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Operators of core/v1 tolerations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TolerationOperator {
    #[default]
    Equal,
    Exists,
}

/// Effects of core/v1 taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// Where the addresses are reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Cloud {
    /// The cloud provider.
    pub provider: CloudProvider,
    /// Region of the addresses. Nodes outside are not eligible. Absent: every region.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub region: Option<String>,
    /// Zones whose nodes are eligible. Absent or empty: every zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub zones: Vec<String>,
}

/// Supported clouds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum CloudProvider {
    Gcp,
    Aws,
    Azure,
}

/// When an address leaves a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline)]
pub struct Failover {
    /// How long, in seconds, a node may be NotReady before its address moves. A node whose instance
    /// is stopped or gone by the cloud's own word gets no grace.
    #[schemars(range(min = 0))]
    pub not_ready_grace_seconds: i32,
    /// How long, in seconds, an address waits for the workload's pods to leave a cordoned node.
    /// 0: for ever.
    #[schemars(range(min = 0))]
    pub drain_timeout_seconds: i32,
    /// How long, in seconds, an address stays on a node before it may be moved again by choice.
    #[schemars(range(min = 0))]
    pub min_hold_seconds: i32,
    /// When more than two nodes and more than this percentage of the matching nodes are NotReady at
    /// once, involuntary moves wait: it is then likelier that the view is wrong than that the nodes
    /// are. 100 switches the guard off.
    #[schemars(range(min = 1, max = 100))]
    pub storm_threshold_percent: i32,
}

impl Default for Failover {
    fn default() -> Self {
        Self {
            not_ready_grace_seconds: 30,
            drain_timeout_seconds: 0,
            min_hold_seconds: 0,
            storm_threshold_percent: 55,
        }
    }
}

/// How many addresses may be on the move at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Strategy {
    /// How many addresses of this allocation may be on the move at once by choice. An address whose
    /// node has no pod of the workload left does not count. 0 counts as 1.
    #[serde(default = "defaults::max_unavailable")]
    #[schemars(range(min = 0))]
    pub max_unavailable: i32,
    /// Accepted for compatibility; it has no effect, since an address cannot be in two places.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_surge: Option<i32>,
}

impl Default for Strategy {
    fn default() -> Self {
        Self { max_unavailable: defaults::max_unavailable(), max_surge: None }
    }
}

/// Whether misplaced pods are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Eviction {
    #[default]
    Enabled,
    Disabled,
}

/// What a release does with an attached address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ReleasePolicy {
    #[default]
    Detach,
    Retain,
}

/// Whether the controller acts or only says what it would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Mode {
    #[default]
    Enforce,
    Plan,
}

/// What the controller found and did. It writes this; nobody else should.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(inline)]
pub struct NetIPAllocationStatus {
    /// The metadata.generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, Degraded and Conflict.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many addresses the spec lists.
    pub reserved: i32,
    /// How many of them are attached to a node.
    pub attached: i32,
    /// How many of them are not.
    pub unattached: i32,
    /// What is known of each address.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["address"]))]
    pub ips: Vec<IpStatus>,
    /// While an address waits for a node: why nodes cannot take it, most frequent reason first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub refusals: Vec<NodeRefusal>,
    /// The last ten moves, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<Move>,
    /// In mode Plan: what would be done now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlannedAction>,
}

/// What is known of one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct IpStatus {
    /// The address.
    pub address: String,
    /// The cloud's word on it: Attached, Free, HeldByOther, NotFound or Unknown.
    pub state: String,
    /// The node that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The provider ID of the instance that holds it.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Since when it has been so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it is where it is, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What is being done with it now. Written before the first call to the cloud, so that a
    /// successor of the controller knows what was under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

impl IpStatus {
    /// Provider IDs of the instances that this speaks of: where the address is, where it comes from and where
    /// it goes.
    pub fn instances(&self) -> impl Iterator<Item = &str> {
        let operation = self.operation.as_ref();
        let from = operation.and_then(|operation| operation.from_provider_id.as_deref());
        let to = operation.and_then(|operation| operation.to_provider_id.as_deref());
        [self.provider_id.as_deref(), from, to].into_iter().flatten()
    }
}

/// Nodes that cannot take an address, for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NodeRefusal {
    /// Why, in one word.
    pub reason: String,
    /// How many nodes.
    pub count: i32,
    /// Some of them, in order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub nodes: Vec<String>,
    /// What was said of the first of them, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A move that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Operation {
    /// Identity of the operation; the cloud's idempotency keys are derived from it.
    pub id: String,
    /// Why it is done.
    pub cause: String,
    /// The node that the address leaves; absent when it was free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Provider ID of the instance that the address leaves.
    #[serde(rename = "fromProviderID", default, skip_serializing_if = "Option::is_none")]
    pub from_provider_id: Option<String>,
    /// What the cloud calls the attachment that is being ended. Whoever takes over half-way can tell from
    /// it what the instance is to be given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The node that the address goes to; absent when it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Provider ID of the instance that the address goes to.
    #[serde(rename = "toProviderID", default, skip_serializing_if = "Option::is_none")]
    pub to_provider_id: Option<String>,
    /// When it was begun.
    pub started_at: Time,
    /// Term of the leader that began it (the Lease's leaseTransitions).
    pub epoch: i64,
}

/// A move that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Move {
    /// The address that moved.
    pub address: String,
    /// When the move ended.
    pub when: Time,
    /// The node it left; absent when it was free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The node it went to; absent when it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why it moved.
    pub cause: String,
    /// How long the move took, e.g. 1.8s.
    pub duration: String,
}

/// What mode Plan would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PlannedAction {
    /// The address concerned; absent when the action is about a node or a pod alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What would be done, e.g. Attach, Detach, Move, Label, Evict.
    pub action: String,
    /// The node it would leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The node it would go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why.
    pub cause: String,
}

mod defaults {
    pub fn reconcile_interval() -> i32 {
        30
    }
    pub fn namespace() -> String {
        "default".to_owned()
    }
    pub fn max_unavailable() -> i32 {
        1
    }
}
