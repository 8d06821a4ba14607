//! What is to be done and written down: the output of the planner.

use crate::{Notice, Reason, Time, WorkloadKey};
use crds::NetIPAllocationStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Everything that follows from a [`crate::World`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Calls to the cloud to start now, at most one per address and per node.
    pub steps: Vec<Step>,
    /// Labels and annotation that a node should have, for nodes where they differ.
    pub labels: Vec<NodeMarks>,
    /// Pods to evict (through the Eviction API) or, if stranded, to delete.
    pub evictions: Vec<Eviction>,
    /// DaemonSet templates to change.
    pub daemon_sets: Vec<TemplateChange>,
    /// Finalizers to add or remove.
    pub finalizers: Vec<FinalizerChange>,
    /// The status that each allocation should have, by name. One that is right already is the very same object.
    pub statuses: BTreeMap<String, Arc<NetIPAllocationStatus>>,
    /// Give up the lease first: the next step takes the address from the node we run on.
    pub yield_lease: bool,
    /// Since when what has been so, for the next world.
    pub noticed: BTreeMap<Notice, Time>,
    /// Plan again then, even if nothing happens.
    pub wake_at: Option<Time>,
}

/// One call to the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The allocation that it is done for.
    pub allocation: String,
    /// The address.
    pub address: IpAddr,
    /// What to do.
    pub action: Action,
    /// Why.
    pub cause: Reason,
    /// Identity of the operation that it belongs to.
    pub operation: String,
    /// Idempotency key of the call: the same after a crash, another one for the next attempt.
    pub key: String,
}

impl Step {
    /// Whether the step is written down in its allocation's status: nothing is sent before, so that a
    /// successor knows what was under way.
    pub fn is_claimed_in(&self, status: &NetIPAllocationStatus) -> bool {
        let address = self.address.to_string();
        let ip = status.ips.iter().find(|ip| ip.address == address);
        let Some(operation) = ip.and_then(|ip| ip.operation.as_ref()) else { return false };
        let named = match &self.action {
            Action::Verify => return true,
            Action::Attach { to, .. } => operation.to_provider_id.as_ref() == Some(&to.provider_id),
            Action::Detach { from, .. } => operation.from_provider_id.as_ref() == Some(&from.provider_id),
        };
        operation.id == self.operation && named
    }
}

/// What to do with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read it again: what was read last is older than the last write.
    Verify,
    /// Attach it.
    Attach {
        /// Where to.
        to: Place,
        /// The token of the reading that showed it free.
        token: String,
    },
    /// Detach it.
    Detach {
        /// Where from.
        from: Place,
        /// The token of the reading that showed it there.
        token: String,
        /// Where it is to go next; to be checked before the detach. `None`: it is released.
        target: Option<Place>,
    },
}

/// An instance, and its node if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the node.
    pub node: Option<String>,
    /// Provider ID of the instance.
    pub provider_id: String,
}

/// The marks that a node should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMarks {
    /// The node.
    pub node: String,
    /// Its UID.
    pub uid: String,
    /// The allocation and the address to mark it with; `None`: all marks go.
    pub marks: Option<(String, IpAddr)>,
}

/// A pod that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// UID of the pod.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its workload.
    pub workload: WorkloadKey,
    /// Why: [`Reason::Misplaced`], [`Reason::NodeLost`] or [`Reason::Stranded`] (then it is deleted:
    /// it never ran).
    pub cause: Reason,
}

/// A DaemonSet whose pod template should have exactly this requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateChange {
    /// The DaemonSet.
    pub workload: WorkloadKey,
    /// Allocation names; empty: the requirement goes.
    pub names: BTreeSet<String>,
}

/// A finalizer to add or remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalizerChange {
    /// The allocation.
    pub allocation: String,
    /// Whether it should have it.
    pub present: bool,
}
