//! Status belongs to the controller, spec to the user.

use crate::requests::{allocation, api, create, read, replace};
use anyhow::{Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;

pub async fn status_and_spec_are_written_apart(bed: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = bed.cluster(version).await?;
    create(cluster, &allocation("apart")).await?;

    let mut object = read(cluster, "apart").await?;
    object["status"] = json!({ "attached": 7 });
    object["spec"]["paused"] = json!(true);
    let stored = replace(cluster, &object).await?;
    ensure!(stored.get("status").is_none(), "status went in through the main resource: {stored:#}");
    ensure!(stored["spec"]["paused"] == true);

    let status = json!({
        "spec": { "paused": false, "reconcileInterval": 99 },
        "status": {
            "observedGeneration": 2, "reserved": 1, "attached": 1, "unattached": 0,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "AllAttached", "message": "1 of 1 attached",
                             "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2 }],
            "ips": [{
                "address": "203.0.113.10", "state": "Attached", "node": "node-1",
                "providerID": "gce://p/z/node-1", "since": "2026-01-01T00:00:00Z", "reason": "Attached",
                "message": "on node-1",
                "operation": { "id": "op-1", "cause": "NodeDrained", "from": "node-0", "to": "node-1", "epoch": 3,
                               "fromProviderID": "gce://p/z/node-0", "toProviderID": "gce://p/z/node-1",
                               "startedAt": "2026-01-01T00:00:00Z" },
            }],
            "history": [{ "address": "203.0.113.10", "when": "2026-01-01T00:00:00Z", "from": "node-0",
                          "to": "node-1", "cause": "NodeDrained", "duration": "1.8s" }],
            "plan": [{ "address": "203.0.113.10", "action": "Attach", "to": "node-1", "cause": "Free" }],
        },
    });
    api(cluster).patch_status("apart", &PatchParams::default(), &Patch::Merge(&status)).await?;
    let stored = read(cluster, "apart").await?;
    ensure!(stored["status"] == status["status"], "status lost something: {:#}", stored["status"]);
    ensure!(stored["spec"]["paused"] == true, "spec was changed through /status");
    ensure!(stored["spec"]["reconcileInterval"] == 30, "spec was changed through /status");
    // What the API server kept is what our types say.
    let typed: crds::NetIPAllocation = serde_json::from_value(stored)?;
    ensure!(serde_json::to_value(typed.status)? == status["status"]);
    Ok(())
}
