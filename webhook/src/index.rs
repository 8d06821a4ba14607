//! What requests are answered from: small maps, kept up to date by watches. No request waits for the API
//! server, and none looks at all objects.

use plan::WorkloadKey;
use plan::parse::{self, Spec};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// Who has which address, which workloads are referred to, and which Deployment a ReplicaSet is of.
#[derive(Debug, Default)]
pub struct Index {
    allocations: HashMap<String, Entry>,
    owners: HashMap<IpAddr, BTreeSet<String>>,
    workloads: BTreeMap<WorkloadKey, BTreeSet<String>>,
    replica_sets: HashMap<(String, String), String>,
}

/// What is kept of an allocation: enough to take it out again.
#[derive(Debug, Default)]
struct Entry {
    addresses: Vec<IpAddr>,
    workload: Option<WorkloadKey>,
}

impl Index {
    /// Takes in an allocation as it is stored now. One that is being deleted still holds its addresses,
    /// but pods are not sent to it any more. An invalid spec counts as far as it can be read.
    pub fn apply_allocation(&mut self, name: &str, spec: &Value, deleting: bool) {
        self.remove_allocation(name);
        let parsed = parse::parse(spec).ok();
        let acts = |spec: &Spec| spec.mode == crds::Mode::Enforce && !deleting;
        let workload = parsed.as_ref().filter(|spec| acts(spec)).and_then(|spec| spec.workload.clone());
        let listed = spec.get("reservedIPs").and_then(Value::as_array).into_iter().flatten();
        let addresses: Vec<IpAddr> =
            listed.filter_map(|text| parse::parse_address(text.as_str()?).ok()).collect();
        for address in &addresses {
            self.owners.entry(*address).or_default().insert(name.to_owned());
        }
        if let Some(workload) = &workload {
            self.workloads.entry(workload.clone()).or_default().insert(name.to_owned());
        }
        self.allocations.insert(name.to_owned(), Entry { addresses, workload });
    }

    /// Forgets an allocation that is gone.
    pub fn remove_allocation(&mut self, name: &str) {
        let Some(entry) = self.allocations.remove(name) else { return };
        for address in &entry.addresses {
            if let Some(owners) = self.owners.get_mut(address) {
                owners.remove(name);
                if owners.is_empty() {
                    self.owners.remove(address);
                }
            }
        }
        if let Some(workload) = &entry.workload
            && let Some(names) = self.workloads.get_mut(workload)
        {
            names.remove(name);
            if names.is_empty() {
                self.workloads.remove(workload);
            }
        }
    }

    /// Takes in a ReplicaSet (by namespace and UID) and the Deployment that controls it.
    pub fn apply_replica_set(&mut self, namespace: &str, uid: &str, deployment: &str) {
        self.replica_sets.insert((namespace.to_owned(), uid.to_owned()), deployment.to_owned());
    }

    /// Forgets a ReplicaSet.
    pub fn remove_replica_set(&mut self, namespace: &str, uid: &str) {
        self.replica_sets.remove(&(namespace.to_owned(), uid.to_owned()));
    }

    /// Another object that has an address; of several, the first by name.
    pub fn holder(&self, address: IpAddr, besides: &str) -> Option<&str> {
        self.owners.get(&address)?.iter().map(String::as_str).find(|name| *name != besides)
    }

    /// The acting allocations of a workload.
    pub fn allocations_of(&self, workload: &WorkloadKey) -> Option<&BTreeSet<String>> {
        self.workloads.get(workload)
    }

    /// The Deployment of a ReplicaSet, if the watch has shown it.
    pub fn deployment_of(&self, namespace: &str, replica_set_uid: &str) -> Option<&str> {
        self.replica_sets.get(&(namespace.to_owned(), replica_set_uid.to_owned())).map(String::as_str)
    }

    /// Namespaces with workloads that allocations refer to: pods elsewhere need not be looked at.
    pub fn namespaces(&self) -> BTreeSet<&str> {
        self.workloads.keys().map(|workload| workload.namespace.as_str()).collect()
    }

    /// How many allocations, addresses, workloads and ReplicaSets there are.
    pub fn sizes(&self) -> [usize; 4] {
        [self.allocations.len(), self.owners.len(), self.workloads.len(), self.replica_sets.len()]
    }
}
