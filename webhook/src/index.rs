//! What requests are answered from: small maps, kept up to date by watches. No request waits for the API
//! server, and none looks at all objects.

use crate::claims::Claims;
use crate::decide::Claim;
use crds::WorkloadKind;
use plan::WorkloadKey;
use plan::parse::{self, Spec};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Who has which address, which workloads are referred to, and which Deployment a ReplicaSet is of.
#[derive(Debug, Default)]
pub struct Index {
    excluded: BTreeSet<String>,
    allocations: HashMap<Arc<str>, Entry>,
    // Nearly always one name; a set of its own for each address would be ten times the memory.
    owners: HashMap<IpAddr, Vec<Arc<str>>>,
    workloads: BTreeMap<WorkloadKey, BTreeSet<String>>,
    // By namespace, then by UID; `None`: it is of no Deployment.
    replica_sets: HashMap<String, HashMap<String, Option<Box<str>>>>,
    // Namespaces whose ReplicaSets cannot be watched.
    failing: BTreeSet<String>,
    claims: Claims,
}

/// What is kept of an allocation: enough to take it out again.
#[derive(Debug, Default)]
struct Entry {
    addresses: Vec<IpAddr>,
    workload: Option<WorkloadKey>,
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sizes {
    pub allocations: usize,
    pub addresses: usize,
    pub workloads: usize,
    pub replica_sets: usize,
}

impl Index {
    /// An empty index. Workloads in excluded namespaces are never in it.
    pub fn new(excluded: BTreeSet<String>) -> Self {
        Self { excluded, ..Self::default() }
    }

    /// Namespaces whose pods are left alone.
    pub fn excluded(&self) -> &BTreeSet<String> {
        &self.excluded
    }

    /// Takes in an allocation as it is stored now. One that is being deleted still holds its addresses,
    /// but pods are not sent to it any more. An invalid spec counts as far as it can be read.
    pub fn apply_allocation(&mut self, name: &str, spec: &Value, deleting: bool) {
        self.forget(name);
        let name: Arc<str> = name.into();
        let parsed = parse::parse(spec).ok();
        let acts = |spec: &Spec| spec.mode == crds::Mode::Enforce && !deleting;
        // A name that is no label value would make every pod invalid that it is injected into.
        let workload = parsed
            .filter(|_| parse::check_name(&name).is_ok())
            .filter(acts)
            .and_then(|spec| spec.workload)
            .filter(|workload| !self.excluded.contains(&workload.namespace));
        let addresses = addresses(spec);
        self.claims.shown(&name, &addresses);
        for address in &addresses {
            let owners = self.owners.entry(*address).or_insert_with(|| Vec::with_capacity(1));
            if let Err(place) = owners.binary_search(&name) {
                owners.insert(place, name.clone());
            }
        }
        if let Some(workload) = &workload {
            self.workloads.entry(workload.clone()).or_default().insert(name.to_string());
        }
        self.allocations.insert(name, Entry { addresses, workload });
    }

    /// Forgets an allocation that is gone.
    pub fn remove_allocation(&mut self, name: &str) {
        self.claims.gone(name);
        self.forget(name);
    }

    /// Forgets the allocations that a new list does not have.
    pub fn retain_allocations(&mut self, listed: &BTreeSet<String>) {
        let gone: Vec<Arc<str>> =
            self.allocations.keys().filter(|name| !listed.contains(&***name)).cloned().collect();
        for name in gone {
            self.remove_allocation(&name);
        }
    }

    fn forget(&mut self, name: &str) {
        let Some(entry) = self.allocations.remove(name) else { return };
        for address in &entry.addresses {
            if let Some(owners) = self.owners.get_mut(address) {
                owners.retain(|owner| **owner != *name);
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

    /// Takes in a ReplicaSet (by namespace and UID) and the Deployment that controls it, if one does.
    pub fn apply_replica_set(&mut self, namespace: &str, uid: &str, deployment: Option<&str>) {
        let of_namespace = self.replica_sets.entry(namespace.to_owned()).or_default();
        of_namespace.insert(uid.to_owned(), deployment.map(Into::into));
    }

    /// Forgets a ReplicaSet.
    pub fn remove_replica_set(&mut self, namespace: &str, uid: &str) {
        if let Some(of_namespace) = self.replica_sets.get_mut(namespace) {
            of_namespace.remove(uid);
            if of_namespace.is_empty() {
                self.replica_sets.remove(namespace);
            }
        }
    }

    /// Forgets the ReplicaSets of a namespace that a new list does not have.
    pub fn retain_replica_sets(&mut self, namespace: &str, listed: &BTreeSet<String>) {
        if let Some(of_namespace) = self.replica_sets.get_mut(namespace) {
            of_namespace.retain(|uid, _| listed.contains(uid));
            if of_namespace.is_empty() {
                self.replica_sets.remove(namespace);
            }
        }
    }

    /// The ReplicaSets of a namespace cannot be watched, or can again.
    pub fn set_failing(&mut self, namespace: &str, failing: bool) {
        if failing {
            self.failing.insert(namespace.to_owned());
        } else {
            self.failing.remove(namespace);
        }
    }

    /// Whether it is in vain to wait for a ReplicaSet of a namespace to be shown.
    pub fn is_failing(&self, namespace: &str) -> bool {
        self.failing.contains(namespace)
    }

    /// Another object that has an address; of several, the first by name.
    pub fn holder(&self, address: IpAddr, besides: &str, now: Instant) -> Option<&str> {
        let owners = self.owners.get(&address).map(Vec::as_slice).unwrap_or_default();
        let stored = owners.iter().map(|name| &**name).find(|name| *name != besides);
        stored.or_else(|| self.claims.holder(address, besides, now))
    }

    /// An object is let through with these addresses, if they are still free: they count as its own
    /// from now on. False: somebody was faster.
    pub fn claim(&mut self, claim: &Claim, now: Instant) -> bool {
        let free = claim.addresses.iter().all(|address| self.holder(*address, &claim.name, now).is_none());
        if free {
            self.claims.claim(claim, now);
        }
        free
    }

    /// The acting allocations of a workload.
    pub fn allocations_of(&self, workload: &WorkloadKey) -> Option<&BTreeSet<String>> {
        self.workloads.get(workload)
    }

    /// The Deployment of a ReplicaSet, if the watch has shown it; `Some(None)`: it is of none.
    pub fn deployment_of(&self, namespace: &str, replica_set_uid: &str) -> Option<Option<&str>> {
        self.replica_sets.get(namespace)?.get(replica_set_uid).map(Option::as_deref)
    }

    /// Whether an allocation refers to a Deployment in this namespace.
    pub fn refers_to_deployments_in(&self, namespace: &str) -> bool {
        let first = WorkloadKey {
            kind: WorkloadKind::Deployment,
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        self.workloads
            .range(first..)
            .next()
            .is_some_and(|(key, _)| key.kind == WorkloadKind::Deployment && key.namespace == namespace)
    }

    /// Namespaces with workloads that allocations refer to: pods elsewhere need not be looked at.
    pub fn namespaces(&self) -> BTreeSet<String> {
        self.workloads.keys().map(|workload| workload.namespace.clone()).collect()
    }

    /// Namespaces with Deployments that allocations refer to: ReplicaSets elsewhere are not watched.
    pub fn namespaces_with_deployments(&self) -> BTreeSet<String> {
        let deployments = self.workloads.keys().filter(|key| key.kind == WorkloadKind::Deployment);
        deployments.map(|workload| workload.namespace.clone()).collect()
    }

    /// How much is in it.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            allocations: self.allocations.len(),
            addresses: self.owners.len(),
            workloads: self.workloads.len(),
            replica_sets: self.replica_sets.values().map(HashMap::len).sum(),
        }
    }
}

/// The addresses of a spec, as far as they can be read.
fn addresses(spec: &Value) -> Vec<IpAddr> {
    let listed = spec.get("reservedIPs").and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(|text| parse::parse_address(text.as_str()?).ok()).collect()
}
