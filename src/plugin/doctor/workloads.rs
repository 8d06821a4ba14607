//! Workloads that allocations refer to: are they there, how many replicas, and can they be drained.

use super::{Found, Level, cannot_tell};
use crate::plugin::connect::{Cluster, explain};
use crate::plugin::status::workload_name;
use crds::WorkloadKind;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};
use plan::{WorkloadKey, World};
use std::collections::{BTreeMap, BTreeSet};

/// A referenced workload.
pub struct Workload {
    pub key: WorkloadKey,
    /// How many addresses it can run on.
    addresses: usize,
    /// Pods of it that have no node.
    waiting: usize,
    /// What it says of itself; `None`: there is no such workload.
    found: Result<Option<Described>, String>,
}

pub struct Described {
    /// `None`: one pod per node.
    replicas: Option<i32>,
    pub template: PodTemplateSpec,
}

impl Workload {
    pub fn described(&self) -> Option<&Described> {
        self.found.as_ref().ok().and_then(Option::as_ref)
    }

    pub fn has_too_many_replicas(&self) -> bool {
        let replicas = self.described().and_then(|described| described.replicas).unwrap_or_default();
        usize::try_from(replicas).is_ok_and(|replicas| replicas > self.addresses)
    }
}

pub async fn read(cluster: &Cluster, world: &World) -> Vec<Workload> {
    let mut addresses: BTreeMap<&WorkloadKey, usize> = BTreeMap::new();
    for spec in world.allocations.values().filter_map(|object| object.spec.as_ref().ok()) {
        if let Some(key) = &spec.workload {
            *addresses.entry(key).or_default() += spec.addresses.len();
        }
    }
    let mut workloads = Vec::new();
    for (key, addresses) in addresses {
        let waits = |pod: &&plan::Pod| *pod.workload == *key && pod.node.is_none() && !pod.finished;
        workloads.push(Workload {
            key: key.clone(),
            addresses,
            waiting: world.pods.values().filter(waits).count(),
            found: describe(cluster, key).await.map_err(|error| {
                format!("{:#}", explain(error, &format!("{} cannot be read", workload_name(key))))
            }),
        });
    }
    workloads
}

async fn describe(cluster: &Cluster, key: &WorkloadKey) -> kube::Result<Option<Described>> {
    let (client, namespace, name) = (cluster.client.clone(), &key.namespace, &key.name);
    Ok(match key.kind {
        WorkloadKind::Deployment => {
            let found = Api::<Deployment>::namespaced(client, namespace).get_opt(name).await?;
            let spec = found.and_then(|object| object.spec);
            spec.map(|spec| Described { replicas: spec.replicas, template: spec.template })
        }
        WorkloadKind::StatefulSet => {
            let found = Api::<StatefulSet>::namespaced(client, namespace).get_opt(name).await?;
            let spec = found.and_then(|object| object.spec);
            spec.map(|spec| Described { replicas: spec.replicas, template: spec.template })
        }
        WorkloadKind::DaemonSet => {
            let found = Api::<DaemonSet>::namespaced(client, namespace).get_opt(name).await?;
            let spec = found.and_then(|object| object.spec);
            spec.map(|spec| Described { replicas: None, template: spec.template })
        }
    })
}

pub fn check(workloads: &[Workload]) -> Vec<Found> {
    let mut found = Vec::new();
    for workload in workloads {
        let name = workload_name(&workload.key);
        match &workload.found {
            Err(error) => found.push(cannot_tell(error)),
            Ok(None) => {
                let message = format!("{name} is referred to, and does not exist");
                found.push((Level::Warning, message, "create it, or correct spec.workloadRef".to_owned()));
            }
            Ok(Some(described)) if workload.has_too_many_replicas() => {
                found.push(too_many(workload, described, &name));
            }
            Ok(Some(_)) => {}
        }
    }
    found
}

/// Pods may share a node, so that more of them is wrong only where some wait.
fn too_many(workload: &Workload, described: &Described, name: &str) -> Found {
    let (replicas, addresses) = (described.replicas.unwrap_or_default(), workload.addresses);
    let message = format!("{name} has {replicas} replicas, and {addresses} addresses to run on");
    let what_to_do = format!("scale it to {addresses}, or reserve more addresses");
    match workload.waiting {
        0 => (Level::Warning, format!("{message}: some share a node"), what_to_do),
        waiting => (Level::Wrong, format!("{message}: {waiting} wait for a node"), what_to_do),
    }
}

/// Budgets that let no pod go: an address follows its pods, and these do not leave.
pub async fn budgets(cluster: &Cluster, workloads: &[Workload]) -> Vec<Found> {
    let namespaces: BTreeSet<&str> =
        workloads.iter().map(|workload| workload.key.namespace.as_str()).collect();
    let mut found = Vec::new();
    for namespace in namespaces {
        let api: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), namespace);
        let what = format!("PodDisruptionBudgets of {namespace} cannot be listed");
        match api.list(&ListParams::default()).await {
            Err(error) => found.push(cannot_tell(&format!("{:#}", explain(error, &what)))),
            Ok(budgets) => {
                let here = workloads.iter().filter(|workload| workload.key.namespace == namespace);
                let pairs =
                    here.flat_map(|workload| budgets.items.iter().map(move |budget| (workload, budget)));
                found.extend(pairs.filter_map(|(workload, budget)| hangs(workload, budget)));
            }
        }
    }
    found
}

fn hangs(workload: &Workload, budget: &PodDisruptionBudget) -> Option<Found> {
    let labels = workload.described()?.template.metadata.as_ref()?.labels.as_ref()?;
    let selector = Selector::try_from(budget.spec.as_ref()?.selector.clone()?).ok()?;
    let status = budget.status.as_ref()?;
    if !selector.matches(labels) || status.disruptions_allowed > 0 || status.expected_pods == 0 {
        return None;
    }
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    let (healthy, desired) = (status.current_healthy, status.desired_healthy);
    let of = workload_name(&workload.key);
    Some(if healthy >= desired {
        let message = format!(
            "PodDisruptionBudget {name} never lets a pod of {of} go ({healthy} healthy, {desired} wanted): a drain hangs"
        );
        (
            Level::Wrong,
            message,
            "set its maxUnavailable to 1, or run more replicas than minAvailable".to_owned(),
        )
    } else {
        let message = format!(
            "PodDisruptionBudget {name} lets no pod of {of} go at the moment: {healthy} are healthy, {desired} wanted"
        );
        (Level::Warning, message, "find out why pods are not Ready".to_owned())
    })
}
