//! What the controller can be told.

use super::GRACE;
use crate::leader::Timings;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a starting node may be NotReady without being taken for a part of a storm.
pub const NEWCOMER: Duration = Duration::from_mins(10);

/// What the controller can be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease, which is also ours.
    pub namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// Timings of the election.
    pub timings: Timings,
    /// Name of the pod, or of the machine.
    pub pod_name: String,
    /// Name of this candidate: no two processes have the same.
    pub identity: String,
    /// The node that this process runs on.
    pub own_node: Option<String>,
    /// The version that metrics show.
    pub version: String,
    /// How long the end of the process waits for what is under way.
    pub grace: Duration,
    /// Nodes that are younger do not count for the storm guard.
    pub newcomer: Duration,
}

impl Settings {
    /// Settings with the names that everybody has.
    pub fn new(namespace: &str, pod_name: &str, lease: Duration) -> Self {
        Self {
            namespace: namespace.to_owned(),
            lease_name: "ip-address-controller-leader".to_owned(),
            timings: Timings::of(lease),
            pod_name: pod_name.to_owned(),
            identity: format!("{pod_name}_{:016x}", fastrand::u64(..)),
            own_node: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            grace: GRACE,
            newcomer: NEWCOMER,
        }
    }

    /// Namespaces whose pods are never touched.
    pub(super) fn excluded_namespaces(&self) -> BTreeSet<String> {
        crate::process::excluded_namespaces(&self.namespace)
    }

    pub(super) fn recorder(&self, client: Client) -> Recorder {
        let instance = Some(self.pod_name.clone());
        Recorder::new(client, Reporter { controller: crds::FIELD_MANAGER.to_owned(), instance })
    }
}
