//! Somebody who uses the cluster all the while: ten writes a second that the webhook has to answer.

use crds::NetIPAllocation;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use playground::Playground;
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How they went.
#[derive(Clone, Debug, Default)]
pub struct Count {
    pub answered: usize,
    pub failed: Vec<String>,
}

/// The user, until it is dropped.
pub struct Probe {
    count: Arc<Mutex<Count>>,
    task: JoinHandle<()>,
}

impl Probe {
    pub fn start(ground: &Playground) -> Self {
        let count = Arc::default();
        let api: Api<NetIPAllocation> = Api::all(ground.cluster.client());
        let cloud = ground.cloud().to_string();
        let task = tokio::spawn(ask(api.into_client(), cloud, Arc::clone(&count)));
        Self { count, task }
    }

    pub fn count(&self) -> Count {
        lock(&self.count).clone()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask(client: kube::Client, cloud: String, count: Arc<Mutex<Count>>) {
    // Nothing of it is stored: a dry run goes through admission like the real thing.
    let params = PatchParams { dry_run: true, ..PatchParams::apply("demo-probe").force() };
    let object = json!({
        "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
        "metadata": { "name": "probe" },
        "spec": { "reservedIPs": ["203.0.113.99"], "cloud": { "provider": cloud } },
    });
    let resource = kube::api::ApiResource::erase::<NetIPAllocation>(&());
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let answer = api.patch("probe", &params, &Patch::Apply(&object)).await;
        let mut count = lock(&count);
        match answer {
            Ok(_) => count.answered += 1,
            Err(error) => count.failed.push(error.to_string()),
        }
    }
}

fn lock(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}
