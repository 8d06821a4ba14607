//! The kubelet's part in the life of a pod: started, it runs; deleted, it ends after its grace period.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, Object};
use kube::{Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The few fields of a pod that matter here; the rest is not even decoded.
pub type LeanPod = Object<LeanSpec, LeanStatus>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanSpec {
    node_name: String,
    containers: Vec<LeanContainer>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct LeanContainer {
    name: String,
    image: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeanStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Vec<LeanCondition>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct LeanCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl LeanStatus {
    /// Not started yet, or marked NotReady by the node lifecycle controller while its node was away.
    fn wants_report(&self) -> bool {
        let ready = self.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        matches!(self.phase.as_str(), "Pending" | "Running") && !ready
    }
}

/// How [`LeanPod`] is asked for.
pub fn resource() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

/// What is remembered of a bound pod.
#[derive(Clone, Debug)]
pub struct BoundPod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub node: String,
    containers: Vec<LeanContainer>,
    wants_report: bool,
    ip: Option<String>,
    ends: Option<Timestamp>,
}

/// What a kubelet would do next with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    Run,
    EndAt(Timestamp),
}

impl BoundPod {
    /// `None` for a pod that is on no node yet.
    pub fn new(pod: LeanPod) -> Option<Self> {
        let (namespace, name) = (pod.namespace()?, pod.name_any());
        if pod.spec.node_name.is_empty() {
            return None;
        }
        let status = pod.status.unwrap_or_default();
        Some(Self {
            uid: pod.metadata.uid?,
            namespace,
            name,
            node: pod.spec.node_name,
            containers: pod.spec.containers,
            wants_report: status.wants_report(),
            ip: status.pod_ip,
            ends: pod.metadata.deletion_timestamp.map(|time| time.0),
        })
    }

    /// What is to be done with it while its node is well. The API server has already added the grace
    /// period to the deletion time.
    pub fn next(&self) -> Next {
        match self.ends {
            Some(time) => Next::EndAt(time),
            None if self.wants_report => Next::Run,
            None => Next::Nothing,
        }
    }

    /// Reports it as running and ready; `ip` is its address if it has none yet.
    pub async fn run(&self, client: &Client, ip: String) -> Result<()> {
        let ip = self.ip.clone().unwrap_or(ip);
        let now = Timestamp::now().to_string();
        let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"]
            .map(|type_| json!({ "type": type_, "status": "True", "lastTransitionTime": now }));
        let containers: Vec<_> = self
            .containers
            .iter()
            .map(|container| {
                json!({ "name": container.name, "image": container.image, "imageID": "simulated",
                        "ready": true, "started": true, "restartCount": 0,
                        "state": { "running": { "startedAt": now } } })
            })
            .collect();
        let patch = json!({
            // The UID makes this a no to a pod of the same name that came later.
            "metadata": { "uid": self.uid },
            "status": { "phase": "Running", "startTime": now, "podIP": ip, "podIPs": [{ "ip": ip }],
                        "conditions": conditions, "containerStatuses": containers },
        });
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        gone_is_fine(
            api.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop),
        )
    }

    /// Reports that its containers have ended, which removes it.
    pub async fn end(&self, client: &Client) -> Result<()> {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        gone_is_fine(api.delete(&self.name, &params).await.map(drop))
    }
}

fn gone_is_fine(result: kube::Result<()>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        other => Ok(other?),
    }
}
