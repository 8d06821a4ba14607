//! A part of a stage: nodes, addresses and a namespace that one test has for itself.

use crate::invariants::Record;
use crate::memory::{Fault, Verb};
use crate::played::Script;
use crate::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use cluster::{NodeSpec, eventually};
use crds::{NetIPAllocation, NetIPAllocationStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A part of the stage that one test has for itself.
pub struct Scene<'s> {
    pub stage: &'s Stage,
    pub name: String,
    pub addresses: Vec<IpAddr>,
    /// What it has and promises, for the checker of invariants.
    pub record: Arc<Record>,
}

impl Scene<'_> {
    pub fn client(&self) -> Client {
        self.stage.cluster.client()
    }

    pub fn node_name(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// What its n-th node looks like.
    pub fn spec(&self, number: usize) -> NodeSpec {
        NodeSpec::new(self.stage.cloud.provider(), &self.node_name(number), number - 1)
            .label("pool", &self.name)
    }

    pub fn instance(&self, number: usize) -> String {
        self.spec(number).provider_id
    }

    /// A node that was not there at the beginning.
    pub async fn add_node(&self, number: usize) -> Result<()> {
        self.record.node(&self.node_name(number), &self.instance(number));
        self.stage.cloud.add_instance(&self.instance(number))?;
        self.stage.cluster.nodes().create(self.spec(number)).await
    }

    /// Waits until a node is Ready and the control plane lets pods run there.
    pub async fn can_run(&self, number: usize) -> Result<()> {
        eventually(&format!("{} to be Ready", self.node_name(number)), async || {
            let node = self.node(number).await?;
            ensure!(node_is_ready(&node), "it is not");
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            ensure!(taints.is_empty(), "it has the taints {taints:?}");
            Ok(())
        })
        .await
    }

    /// The manifest of the scene's allocation: all its addresses on its nodes.
    pub fn manifest(&self) -> Value {
        json!({
            "apiVersion": "netinfra.darkbrains.com/v1alpha1",
            "kind": "NetIPAllocation",
            "metadata": { "name": self.name },
            "spec": {
                "reservedIPs": self.addresses,
                "nodeSelector": { "pool": self.name },
                "cloud": { "provider": self.stage.cloud.cloud().as_str() },
                "reconcileInterval": 5,
                "failover": { "notReadyGraceSeconds": 0, "stormThresholdPercent": 100 },
            },
        })
    }

    /// Creates the allocation, with parts of the spec replaced.
    pub async fn allocate(&self, changes: Value) -> Result<()> {
        let mut manifest = self.manifest();
        merge(&mut manifest["spec"], &changes);
        self.apply(&manifest).await
    }

    pub async fn apply(&self, manifest: &Value) -> Result<()> {
        if let ("NetIPAllocation", Some(name)) =
            (manifest["kind"].as_str().unwrap_or_default(), manifest["metadata"]["name"].as_str())
        {
            self.record.allocation(name);
        }
        let input = manifest.to_string();
        self.stage.cluster.kubectl_with_input(&["apply", "-f", "-"], &input).await?.ok()?;
        Ok(())
    }

    pub fn allocations(&self) -> Api<NetIPAllocation> {
        Api::all(self.client())
    }

    /// Changes the spec by a merge patch.
    pub async fn change(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.allocations().patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn status(&self) -> Result<NetIPAllocationStatus> {
        Ok(self.allocations().get(&self.name).await?.status.unwrap_or_default())
    }

    pub async fn delete_allocation(&self) -> Result<()> {
        self.allocations().delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Where each address is by the cloud's word, as numbers of the scene's nodes.
    pub fn places(&self) -> Vec<Option<usize>> {
        let number = |holder: String| (1..=99).find(|number| self.instance(*number) == holder);
        self.addresses.iter().map(|address| self.stage.cloud.holder(*address).and_then(number)).collect()
    }

    /// Waits until every address is on a node, every such node is marked for it and Ready is True.
    pub async fn settled(&self) -> Result<Vec<usize>> {
        eventually(&format!("{} to settle", self.name), async || {
            let places = self.places();
            ensure!(
                places.iter().all(Option::is_some),
                "addresses are at {places:?}: {}",
                self.story().await?
            );
            let status = self.status().await?;
            ensure!(condition(&status, "Ready") == "True", "not Ready: {}", self.story().await?);
            let moving = status.ips.iter().any(|ip| ip.operation.is_some());
            ensure!(!moving, "still moving: {}", self.story().await?);
            for (address, place) in self.addresses.iter().zip(&places) {
                let node = self.node(place.unwrap_or_default()).await?;
                ensure!(marked_for(&node, &self.name, *address), "{} is not marked", node.name_any());
            }
            Ok(places.into_iter().flatten().collect())
        })
        .await
    }

    /// Waits until an address is on that node and everything is settled.
    pub async fn arrives(&self, address: usize, node: usize) -> Result<()> {
        eventually(&format!("address {address} to arrive at {}", self.node_name(node)), async || {
            let places = self.places();
            ensure!(places[address] == Some(node), "addresses are at {places:?}: {}", self.story().await?);
            Ok(())
        })
        .await?;
        self.settled().await?;
        Ok(())
    }

    /// Waits until an address has left a node for whichever other, and everything is settled; for tests that
    /// hurt the API server, whose nodes may look NotReady for a while.
    pub async fn leaves(&self, address: usize, node: usize) -> Result<usize> {
        eventually(&format!("address {address} to leave {}", self.node_name(node)), async || {
            let places = self.places();
            let left = places[address].is_some_and(|place| place != node);
            ensure!(left, "addresses are at {places:?}: {}", self.story().await?);
            Ok(())
        })
        .await?;
        Ok(self.settled().await?[address])
    }

    /// Waits until the status of an address has that reason.
    pub async fn reason(&self, address: usize, reason: &str) -> Result<()> {
        let text = self.addresses[address].to_string();
        eventually(&format!("{text} to be {reason}"), async || {
            let status = self.status().await?;
            let ip = status.ips.iter().find(|ip| ip.address == text).context("not in status")?;
            ensure!(ip.reason.as_deref() == Some(reason), "it is {:?}: {:?}", ip.reason, ip.message);
            Ok(())
        })
        .await
    }

    /// Waits until a condition has that status and reason.
    pub async fn condition(&self, kind: &str, status: &str, reason: &str) -> Result<()> {
        eventually(&format!("{kind} to be {status} ({reason})"), async || {
            let conditions = self.status().await?.conditions;
            let condition = conditions.iter().find(|c| c.type_ == kind).context("no such condition")?;
            ensure!(
                condition.status == status && (reason.is_empty() || condition.reason == reason),
                "it is {} ({}): {}",
                condition.status,
                condition.reason,
                condition.message
            );
            Ok(())
        })
        .await
    }

    /// Lets ten audits' worth of events pass: whatever was going to happen has happened.
    pub async fn nothing_happens(&self, what: &str, check: impl AsyncFn() -> Result<()>) -> Result<()> {
        let since = jiff::Timestamp::now();
        // Longer than the time between two audits.
        for _ in 0..40 {
            check().await.with_context(|| what.to_owned())?;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        // Nor is anything called that changes something.
        self.record.was_still(since);
        Ok(())
    }

    /// What the status says, for messages.
    pub async fn story(&self) -> Result<String> {
        let status = self.status().await?;
        let ips = status.ips.iter().map(|ip| {
            let why = ip.reason.as_deref().unwrap_or_default();
            format!(
                "{} {} on {:?} ({why}: {})",
                ip.address,
                ip.state,
                ip.node,
                ip.message.as_deref().unwrap_or_default()
            )
        });
        let conditions = status.conditions.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.reason));
        Ok(ips.chain(conditions).collect::<Vec<_>>().join("; "))
    }

    pub async fn node(&self, number: usize) -> Result<Node> {
        let api: Api<Node> = Api::all(self.client());
        Ok(api.get(&self.node_name(number)).await?)
    }

    pub async fn patch_node(&self, number: usize, patch: Value) -> Result<()> {
        let api: Api<Node> = Api::all(self.client());
        api.patch(&self.node_name(number), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub async fn cordon(&self, number: usize) -> Result<()> {
        self.patch_node(number, json!({ "spec": { "unschedulable": true } })).await
    }

    pub async fn uncordon(&self, number: usize) -> Result<()> {
        self.patch_node(number, json!({ "spec": { "unschedulable": null } })).await
    }

    pub async fn taint(&self, number: usize, key: &str, effect: &str) -> Result<()> {
        self.patch_node(number, json!({ "spec": { "taints": [{ "key": key, "effect": effect }] } })).await
    }

    pub async fn drain(&self, number: usize) -> Result<()> {
        let node = self.node_name(number);
        let arguments = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"];
        self.stage.cluster.kubectl(&arguments).await?.ok()?;
        Ok(())
    }

    /// Creates a workload in the scene's namespace, whose pods carry what admission injects (or not).
    pub async fn workload(&self, kind: &str, replicas: usize, injected: bool, grace: u32) -> Result<()> {
        let mut template = json!({ "metadata": { "labels": { "app": self.name } }, "spec": {
            "terminationGracePeriodSeconds": grace,
            "containers": [{ "name": "web", "image": "registry.example/web" }],
        } });
        if injected {
            let names = BTreeSet::from([self.name.clone()]);
            let patch = webhook::affinity::inject(&template, "", &names);
            json_patch::patch(&mut template, &patch)?;
        }
        let mut spec = json!({ "selector": { "matchLabels": { "app": self.name } }, "template": template });
        if kind != "DaemonSet" {
            spec["replicas"] = json!(replicas);
        }
        if kind == "StatefulSet" {
            spec["serviceName"] = json!("web");
            spec["podManagementPolicy"] = json!("Parallel");
        }
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": { "name": "web", "namespace": self.name },
            "spec": spec,
        }))
        .await
    }

    pub fn workload_ref(&self, kind: &str) -> Value {
        json!({ "workloadRef": { "kind": kind, "name": "web", "namespace": self.name } })
    }

    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.client(), &self.name);
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Waits until so many pods are Ready; the numbers of their nodes.
    pub async fn pods_ready(&self, count: usize) -> Result<Vec<usize>> {
        eventually(&format!("{count} pods of {} to be Ready", self.name), async || {
            let pods = self.pods().await?;
            let ready: Vec<usize> = pods.iter().filter(|pod| is_ready(pod)).map(number_of).collect();
            let all =
                pods.iter().map(|pod| format!("{} {}", pod.name_any(), number_of(pod))).collect::<Vec<_>>();
            ensure!(
                ready.len() == count && pods.len() == count,
                "{ready:?} of {all:?}: {}",
                self.story().await.unwrap_or_default()
            );
            Ok(ready)
        })
        .await
    }

    /// The next so many calls of that kind for its first address go wrong like this.
    pub fn spoil(&self, verb: Verb, times: usize, fault: Fault) -> Script {
        self.stage.cloud.script(verb, self.addresses[0], &format!("/{}-", self.name), times, fault)
    }

    /// There was cause for so many moves of each address in the order of the list, and for no more.
    pub fn moves(&self, counts: &[usize]) {
        for (address, count) in self.addresses.iter().zip(counts) {
            self.record.moves(*address, *count);
        }
    }

    /// In the end these nodes can have an address, and have one as far as there are addresses.
    pub fn ends_on(&self, nodes: &[usize]) {
        self.record.ends_on(nodes.iter().map(|number| self.instance(*number)));
    }
}

/// The number of a pod's node; 0: none.
pub fn number_of(pod: &Pod) -> usize {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    node.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

pub fn is_ready(pod: &Pod) -> bool {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    !deleting && conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

pub fn node_is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

pub fn condition(status: &NetIPAllocationStatus, kind: &str) -> String {
    status.conditions.iter().find(|c| c.type_ == kind).map(|c| c.status.clone()).unwrap_or_default()
}

/// Whether a node carries all marks of an address.
pub fn marked_for(node: &Node, allocation: &str, address: IpAddr) -> bool {
    let (labels, annotations) = (node.labels(), node.annotations());
    labels.get(crds::LABEL_READY).map(String::as_str) == Some("true")
        && labels.get(crds::LABEL_ALLOCATION).map(String::as_str) == Some(allocation)
        && annotations.get(crds::ANNOTATION_RESERVED_IP) == Some(&address.to_string())
}

/// Whether a node carries no mark at all.
pub fn unmarked(node: &Node) -> bool {
    !node.labels().contains_key(crds::LABEL_READY)
        && !node.labels().contains_key(crds::LABEL_ALLOCATION)
        && !node.annotations().contains_key(crds::ANNOTATION_RESERVED_IP)
}

/// Merges as a JSON merge patch does.
fn merge(into: &mut Value, from: &Value) {
    json_patch::merge(into, from);
}
