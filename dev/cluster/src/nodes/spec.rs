//! What a simulated node looks like.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::collections::BTreeMap;

/// Clouds whose provider IDs nodes can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Provider {
    #[default]
    Gcp,
    Aws,
    Azure,
}

impl Provider {
    /// The region that simulated nodes are in, and its zones.
    fn places(self) -> (&'static str, [&'static str; 3]) {
        match self {
            Self::Gcp => ("us-central1", ["us-central1-a", "us-central1-b", "us-central1-c"]),
            Self::Aws => ("eu-west-1", ["eu-west-1a", "eu-west-1b", "eu-west-1c"]),
            Self::Azure => ("westeurope", ["westeurope-1", "westeurope-2", "westeurope-3"]),
        }
    }

    /// The provider ID that this cloud's node controller would give to an instance.
    pub fn provider_id(self, zone: &str, name: &str) -> String {
        match self {
            Self::Gcp => format!("gce://dev-project/{zone}/{name}"),
            Self::Aws => format!("aws:///{zone}/i-{:017x}", fingerprint(name)),
            Self::Azure => format!(
                "azure:///subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/dev-nodes\
                 /providers/Microsoft.Compute/virtualMachines/{name}"
            ),
        }
    }
}

/// A node to be: its name, its place and its labels.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Name of the node.
    pub name: String,
    /// Provider ID; empty for a node that no cloud knows.
    pub provider_id: String,
    /// Region label.
    pub region: String,
    /// Zone label.
    pub zone: String,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
}

impl NodeSpec {
    /// A node of a cloud in its n-th zone.
    pub fn new(provider: Provider, name: &str, zone: usize) -> Self {
        let (region, zones) = provider.places();
        let zone = zones[zone % zones.len()];
        Self {
            provider_id: provider.provider_id(zone, name),
            name: name.to_owned(),
            region: region.to_owned(),
            zone: zone.to_owned(),
            labels: BTreeMap::new(),
        }
    }

    /// `count` nodes `PREFIX-1`, `PREFIX-2`… of a cloud, spread over three zones.
    pub fn pool(provider: Provider, prefix: &str, count: usize) -> Vec<Self> {
        (1..=count).map(|n| Self::new(provider, &format!("{prefix}-{n}"), n - 1)).collect()
    }

    /// The same node with one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same node with another provider ID.
    #[must_use]
    pub fn provider_id(mut self, provider_id: &str) -> Self {
        provider_id.clone_into(&mut self.provider_id);
        self
    }

    /// The Node object that a kubelet registers.
    pub(crate) fn node(&self) -> Node {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", &self.name),
            ("topology.kubernetes.io/region", &self.region),
            ("topology.kubernetes.io/zone", &self.zone),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.clone());
        }
        let mut node = Node::default();
        node.metadata.name = Some(self.name.clone());
        node.metadata.labels = Some(labels);
        if !self.provider_id.is_empty() {
            node.spec.get_or_insert_default().provider_id = Some(self.provider_id.clone());
        }
        node
    }

    /// The status that a kubelet reports.
    pub(crate) fn status(&self, ready: bool, now: &str) -> serde_json::Value {
        let room = json!({ "cpu": "32", "memory": "64Gi", "pods": "250", "ephemeral-storage": "100Gi" });
        let (status, reason) = if ready { ("True", "KubeletReady") } else { ("False", "KubeletNotReady") };
        let pressure = ["MemoryPressure", "DiskPressure", "PIDPressure"].map(|type_| {
            json!({ "type": type_, "status": "False", "reason": "Enough", "message": "simulated",
                    "lastHeartbeatTime": now, "lastTransitionTime": now })
        });
        let mut conditions = pressure.to_vec();
        conditions.push(json!({ "type": "Ready", "status": status, "reason": reason, "message": "simulated",
                                "lastHeartbeatTime": now, "lastTransitionTime": now }));
        json!({ "status": {
            "capacity": room, "allocatable": room, "conditions": conditions,
            "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.3",
                          "containerRuntimeVersion": "simulated://1", "kernelVersion": "6", "osImage": "simulated",
                          "bootID": "", "machineID": "", "systemUUID": "", "kubeProxyVersion": "" },
            "addresses": [{ "type": "Hostname", "address": self.name }],
        }})
    }
}

/// A number that depends on a name alone (FNV-1a), for instance ids.
fn fingerprint(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash & 0x0fff_ffff_ffff_ffff
}
