//! What autoscalers do to nodes that hold addresses.

use super::workloads::Workload;
use super::{Found, Level};
use crate::plugin::connect::Cluster;
use crate::plugin::status::workload_name;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use plan::World;

/// The autoscalers, and the annotation of pods by which each leaves their node alone.
const CLUSTER_AUTOSCALER: (&str, &str, &str) =
    ("Cluster Autoscaler", "cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
const KARPENTER: (&str, &str, &str) = ("Karpenter", "karpenter.sh/do-not-disrupt", "true");

/// Taints by which they announce that they remove a node.
const REMOVES: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"];

pub async fn check(cluster: &Cluster, world: &World, workloads: &[Workload]) -> Vec<Found> {
    let mut found = being_removed(world);
    for autoscaler in seen(cluster, world).await {
        found.extend(workloads.iter().filter_map(|workload| unprotected(workload, autoscaler)));
        found.extend(workloads.iter().filter_map(|workload| grows_for_nothing(workload, autoscaler.0)));
    }
    found
}

async fn seen(cluster: &Cluster, world: &World) -> Vec<(&'static str, &'static str, &'static str)> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-system");
    // Who may not read it is not told about an autoscaler that only this gives away.
    let reports = api.get_opt("cluster-autoscaler-status").await.is_ok_and(|found| found.is_some());
    let tainted = world
        .nodes
        .values()
        .flat_map(|node| &node.taints)
        .any(|taint| taint.key.ends_with("ClusterAutoscaler"));
    let karpenter = world.nodes.values().any(|node| node.labels.get("karpenter.sh/nodepool").is_some());
    let all = [(reports || tainted, CLUSTER_AUTOSCALER), (karpenter, KARPENTER)];
    all.into_iter().filter(|(seen, _)| *seen).map(|(_, autoscaler)| autoscaler).collect()
}

fn being_removed(world: &World) -> Vec<Found> {
    let announced =
        |node: &&plan::Node| node.taints.iter().any(|taint| REMOVES.contains(&taint.key.as_str()));
    let holders = world.nodes.iter().filter(|(_, node)| announced(node) && node.reserved_ip.is_some());
    holders
        .map(|(name, node)| {
            let address = node.reserved_ip.as_deref().unwrap_or_default();
            let message = format!("an autoscaler is about to remove node {name}, which holds {address}");
            (Level::Warning, message, format!("`kubectl netip why {address}` tells where it goes"))
        })
        .collect()
}

fn unprotected(workload: &Workload, (name, key, value): (&str, &str, &str)) -> Option<Found> {
    let metadata = workload.described()?.template.metadata.as_ref();
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    if annotations.and_then(|annotations| annotations.get(key)).is_some_and(|found| found == value) {
        return None;
    }
    let message = format!(
        "{name} may remove nodes under pods of {}: each time an address moves",
        workload_name(&workload.key)
    );
    let what_to_do = format!("to keep it from that, annotate the pod template with {key}: \"{value}\"");
    Some((Level::Warning, message, what_to_do))
}

fn grows_for_nothing(workload: &Workload, name: &str) -> Option<Found> {
    let message = format!(
        "{name} may add nodes for pods of {} that have no address to run on",
        workload_name(&workload.key)
    );
    let what_to_do = "never have more replicas than addresses where there is an autoscaler".to_owned();
    workload.has_too_many_replicas().then_some((Level::Warning, message, what_to_do))
}
