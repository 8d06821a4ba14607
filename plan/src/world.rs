//! What is known: the input of the planner. Maps are ordered and keyed by identity, so that equal
//! worlds are equal whatever order their parts arrived in.

use crate::parse::{Fault, Spec};
use crate::{Labels, Reason, Time};
use crds::{Mode, NetIPAllocationStatus, WorkloadKind};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Everything that the planner may know.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Allocations by name.
    pub allocations: BTreeMap<String, Allocation>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Pods of referenced workloads by UID.
    pub pods: BTreeMap<String, Pod>,
    /// Workloads that allocations refer to, as far as they exist.
    pub workloads: BTreeMap<WorkloadKey, Workload>,
    /// Workloads that cannot be listed (yet), and why: nobody can say which pods they have, or where.
    pub unlisted: BTreeMap<WorkloadKey, String>,
    /// What the cloud last said of each address. An address that is missing was never read.
    pub addresses: BTreeMap<IpAddr, Seen<AddressView>>,
    /// What the cloud last said of each instance, by provider ID.
    pub instances: BTreeMap<String, Seen<InstanceView>>,
    /// Steps that the shell has started and not finished.
    pub in_flight: Vec<InFlight>,
    /// The last write for each address. A reading that began before it ended says nothing about what
    /// it did.
    pub last_write: BTreeMap<IpAddr, LastWrite>,
    /// Writes that failed, by address and provider ID; gone once one succeeds.
    pub failures: BTreeMap<(IpAddr, String), Failure>,
    /// Evictions that the API server refused (a PodDisruptionBudget, a missing right), by the pod's UID;
    /// gone once one succeeds, and with the pod.
    pub refused_evictions: BTreeMap<String, RefusedEviction>,
    /// Our last eviction of a pod of each workload that the API server granted.
    pub evicted: BTreeMap<WorkloadKey, LastEviction>,
    /// Since when something has been so, as the previous plan noticed it ([`crate::Plan::noticed`]).
    pub noticed: BTreeMap<Notice, Time>,
    /// The node that this process runs on.
    pub own_node: Option<String>,
    /// The lease was given up for the sake of the own node, and nobody took it.
    pub nobody_took_the_lease: bool,
    /// Namespaces whose pods are never touched (kube-system, kube-node-lease, our own).
    pub excluded_namespaces: BTreeSet<String>,
    /// How many seconds a node is a newcomer, which does not count for the storm guard.
    pub newcomer_seconds: i64,
    /// Term of leadership, written into operations.
    pub epoch: i64,
}

/// One NetIPAllocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// UID of the object.
    pub uid: String,
    /// When it was created, by the API server's clock; only compared with its like.
    pub created: Time,
    /// `metadata.generation`.
    pub generation: i64,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It has our finalizer.
    pub has_finalizer: bool,
    /// The spec, or what is wrong with it.
    pub spec: Result<Arc<Spec>, Vec<Fault>>,
    /// The status as it is stored: our only memory across restarts.
    pub status: Arc<NetIPAllocationStatus>,
}

impl Allocation {
    /// Whether it is valid and acts, as opposed to saying what it would do.
    pub fn acts(&self) -> bool {
        self.spec.as_ref().is_ok_and(|spec| spec.mode == Mode::Enforce)
    }
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// UID of the object: a node of the same name that came later is another one.
    pub uid: String,
    /// `spec.providerID`.
    pub provider_id: String,
    /// Labels.
    pub labels: Labels,
    /// Our annotation with the address it holds, as stored.
    pub reserved_ip: Option<String>,
    /// Its Ready condition is True.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// Taints.
    pub taints: Vec<Taint>,
    /// When it was created, by the API server's clock.
    pub created: Time,
}

/// A taint on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, possibly empty.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

/// A workload by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Kind.
    pub kind: WorkloadKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What matters of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Tolerations of its pod template.
    pub tolerations: Vec<crds::Toleration>,
    /// Allocation names in the requirement of its pod template, whoever wrote it (DaemonSets).
    pub injected: Option<BTreeSet<String>>,
    /// The requirement is marked as ours: only then may it be changed or removed.
    pub ours: bool,
}

/// One pod of a referenced workload. Workload and node are shared between the pods that have the same
/// ones: there are tens of thousands of pods, and the planner looks at all of them.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // facts that have nothing to do with one another
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The workload that owns it, by the chain of owner UIDs.
    pub workload: Arc<WorkloadKey>,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// Succeeded or Failed.
    pub finished: bool,
    /// Its Ready condition is True.
    pub ready: bool,
    /// It has a deletion timestamp. It still runs until it is gone.
    pub deleting: bool,
    /// When it was created, by the API server's clock; only compared with its like.
    pub created: Time,
    /// Allocation names in its requirement, whoever wrote it; absent if it has none.
    pub injected: Option<BTreeSet<String>>,
    /// The requirement is marked as ours: only then may the pod be deleted because of it.
    pub ours: bool,
}

/// A reading and when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// What was read.
    pub view: T,
    /// When the reading began.
    pub at: Time,
}

/// The cloud's word on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressView {
    /// On an instance.
    Attached {
        /// Provider ID of the instance.
        provider_id: String,
        /// What a conditional detach needs (association id, access-config name, ETag…).
        token: String,
    },
    /// Reserved and on nothing.
    Free {
        /// What a conditional attach needs.
        token: String,
    },
    /// On something that is no instance: a load balancer, a NAT gateway, a router.
    HeldByOther {
        /// What holds it.
        holder: String,
    },
    /// The account has no such address.
    NotFound,
    /// Nothing is known: an error, a throttle, a partial list.
    Unknown {
        /// Why.
        message: String,
    },
}

/// The cloud's word on an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceView {
    /// It runs. `refuses` says why it cannot take an address, if it cannot.
    Running {
        /// [`Reason::HoldsForeignAddress`], [`Reason::Unsupported`], and a sentence.
        refuses: Option<(Reason, String)>,
    },
    /// It is stopped or terminated.
    Stopped,
    /// There is no such instance.
    NotFound,
    /// Nothing is known.
    Unknown {
        /// What went wrong; empty: it has not been read yet.
        message: String,
    },
}

/// A step that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The address it concerns.
    pub address: IpAddr,
    /// The instance it concerns, by provider ID.
    pub provider_id: String,
}

/// An eviction of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastEviction {
    /// When, by our clock.
    pub at: Time,
    /// UIDs of the workload's pods that were there then: whoever is not among them came after. (Creation
    /// times are of another clock, and of whole seconds.)
    pub pods: BTreeSet<String>,
}

/// An eviction that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedEviction {
    /// When it was refused last, by our clock.
    pub at: Time,
    /// What the API server said.
    pub message: String,
}

/// A write that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWrite {
    /// When it ended.
    pub at: Time,
    /// What it was.
    pub kind: WriteKind,
    /// The instance it concerned, by provider ID.
    pub provider_id: String,
    /// The cloud said that it worked.
    pub succeeded: bool,
}

/// Kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WriteKind {
    Attach,
    Detach,
}

/// How a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When the last attempt ended.
    pub at: Time,
    /// How many attempts in a row failed.
    pub attempts: u32,
    /// What kind of failure.
    pub class: FailureClass,
    /// What the cloud said.
    pub message: String,
    /// Seconds that the cloud asked to wait.
    pub retry_after: Option<i64>,
}

/// Kinds of failures, as far as the planner treats them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Too many requests.
    Throttled,
    /// Might work next time.
    Transient,
    /// Somebody else was faster; the next reading tells who.
    Conflict,
    /// Will not work on this instance.
    Permanent,
    /// The credentials do not allow it.
    Denied,
}

/// Something that starts a waiting time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A node (UID) is NotReady.
    NotReady(String),
    /// A node (UID) is cordoned or about to be removed by an autoscaler.
    Draining(String),
    /// A pod (UID) runs on a node without an address of its allocations.
    Misplaced(String),
    /// A pod (UID) is not scheduled.
    Unscheduled(String),
    /// Too many nodes of an allocation (name) are NotReady at once.
    Storm(String),
    /// A workload cannot be listed.
    Unlisted(WorkloadKey),
    /// An address is said to be on its node since a time that lies ahead.
    HeldSince(IpAddr, Time),
    /// A pod (UID) may not be evicted.
    Refused(String),
}
