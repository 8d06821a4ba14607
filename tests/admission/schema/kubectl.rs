//! What a person sees: kubectl itself is run.

use crate::requests::{allocation, api, create};
use anyhow::{Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;

fn ready_status() -> serde_json::Value {
    json!({ "status": {
        "reserved": 3, "attached": 2, "unattached": 1, "ips": [],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "AllAttached", "message": "",
                         "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    }})
}

pub async fn columns_are_printed(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let mut object = allocation("columns");
    object["spec"]["workloadRef"] = json!({ "kind": "Deployment", "name": "my-app" });
    create(cluster, &object).await?;
    api(cluster).patch_status("columns", &PatchParams::default(), &Patch::Merge(&ready_status())).await?;

    let words = |text: String| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let table = words(cluster.kubectl(&["get", "nia", "columns"]).await?.ok()?);
    ensure!(
        table[0] == ["NAME", "READY", "PROVIDER", "RESERVED", "ATTACHED", "UNATTACHED", "AGE"],
        "{table:?}"
    );
    ensure!(table[1][..6] == ["columns", "True", "gcp", "3", "2", "1"], "{table:?}");
    let wide = words(cluster.kubectl(&["get", "nia", "columns", "-o", "wide"]).await?.ok()?);
    ensure!(wide[0][7..] == ["WORKLOAD", "REASON"], "{wide:?}");
    ensure!(wide[1][7..] == ["my-app", "AllAttached"], "{wide:?}");
    Ok(())
}

pub async fn wait_sees_the_ready_condition(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    create(cluster, &allocation("waited-for")).await?;
    let wait = async |timeout: &str| {
        cluster.kubectl(&["wait", "--for=condition=Ready", "nia/waited-for", "--timeout", timeout]).await
    };
    ensure!(!wait("1s").await?.success, "there is no condition yet");
    api(cluster).patch_status("waited-for", &PatchParams::default(), &Patch::Merge(&ready_status())).await?;
    wait("60s").await?.ok()?;
    Ok(())
}

pub async fn explain_describes_the_fields(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let failover = cluster.kubectl(&["explain", "nia.spec.failover"]).await?.ok()?;
    for words in ["notReadyGraceSeconds", "drainTimeoutSeconds", "0: for ever", "stormThresholdPercent"] {
        ensure!(failover.contains(words), "{words:?} is not in:\n{failover}");
    }
    let spec = cluster.kubectl(&["explain", "nia.spec", "--recursive"]).await?.ok()?;
    for field in ["reservedIPs", "workloadRef", "deploymentRef", "tolerations", "releasePolicy", "required"] {
        ensure!(spec.contains(field), "{field:?} is not in:\n{spec}");
    }
    Ok(())
}

/// `kubectl apply -f crds/`, as the README says, leaves the crate in that folder alone.
pub async fn the_crds_folder_is_applied_as_it_is(bed: Arc<Bed>) -> Result<()> {
    let cluster = bed.cluster(Version::Newest).await?;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/");
    let flags = ["apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", folder];
    let output = cluster.kubectl(&flags).await?;
    ensure!(output.stderr.is_empty(), "warnings: {}", output.stderr);
    let lines = output.ok()?;
    ensure!(lines.lines().count() == crds::manifests().len(), "{lines}");
    cluster.kubectl(&["apply", "-f", folder]).await?.ok()?;
    Ok(())
}
