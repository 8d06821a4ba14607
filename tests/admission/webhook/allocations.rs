//! NetIPAllocations: refused with everything that is wrong at once, and made canonical.

use super::kit::{allocation, guarded};
use crate::requests::{count, create, read, refusal, remove, set};
use crate::schema::refused::{address_faults, other_faults};
use anyhow::{Context as _, Result, ensure};
use cluster::Version;
use cluster::harness::Bed;
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn five_faults_are_told_in_one_answer(_: Arc<Bed>, version: Version) -> Result<()> {
    let cluster = &guarded(version).await?.cluster;
    let mut object = allocation("five-faults", &["foo", "10.0.0.1"], &Value::Null);
    object["spec"]["cloud"]["provider"] = json!("ovh");
    object["spec"]["reconcileInterval"] = json!("30s");
    object["spec"]["workloadRef"] = json!({ "kind": "Job", "name": "x" });
    let paths = [
        "spec.reservedIPs[0]",
        "spec.reservedIPs[1]",
        "spec.workloadRef.kind",
        "spec.cloud.provider",
        "spec.reconcileInterval",
    ];
    let status = refusal(create(cluster, &object).await)?;
    ensure!(status.code == 422, "{}", status.code);
    let lines: Vec<&str> = status.message.lines().collect();
    ensure!(lines.len() == 6, "{}", status.message);
    for path in paths {
        ensure!(lines.iter().any(|line| line.trim_start().starts_with(path)), "{path}: {}", status.message);
    }
    let causes: Vec<String> = status.details.into_iter().flat_map(|d| d.causes).map(|c| c.field).collect();
    ensure!(causes.len() == 5 && paths.iter().all(|path| causes.iter().any(|c| c == path)), "{causes:?}");
    // And so does a person see them.
    let output = cluster.kubectl_with_input(&["create", "-f", "-"], &object.to_string()).await?;
    for path in paths {
        ensure!(output.stderr.contains(path), "{path}: {}", output.stderr);
    }
    Ok(())
}

pub async fn each_bad_spec_gets_the_webhooks_message(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    for (number, case) in address_faults().into_iter().chain(other_faults()).enumerate() {
        // Becomes canonical, or is refused before any webhook is asked.
        if case.says == "must be written in canonical form"
            || case.says == "unknown field"
            || case.to == json!(["203.0.113.9", "::ffff:1.2.3.4"])
        {
            continue;
        }
        let mut object = allocation(&format!("hooked-bad-{number}"), &["198.51.100.200"], &Value::Null);
        set(&mut object, case.set, case.to.clone());
        let what = format!("{} = {}", case.set, case.to);
        let answer = refusal(create(cluster, &object).await).with_context(|| what.clone())?.message;
        ensure!(answer.contains("denied the request: NetIPAllocation"), "{what}: {answer}");
        // A term or toleration is one thing to our parser; what is wrong in it is in the words.
        let field = case.field.split(".matchExpressions").next().unwrap_or_default();
        ensure!(answer.contains(field), "{what}: {field:?} is not in: {answer}");
    }
    ensure!(count(cluster, "hooked-bad-").await? == 0, "something that was refused was stored");
    Ok(())
}

pub async fn addresses_become_canonical(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let written = ["2001:DB8:0::ca:1", "::ffff:198.51.100.1", "198.51.100.2"];
    create(cluster, &allocation("canonical", &written, &Value::Null)).await?;
    let stored = read(cluster, "canonical").await?;
    let expected = json!(["2001:db8::ca:1", "198.51.100.1", "198.51.100.2"]);
    ensure!(stored["spec"]["reservedIPs"] == expected, "{}", stored["spec"]);
    remove(cluster, "canonical").await
}

pub async fn warnings_reach_the_client(_: Arc<Bed>) -> Result<()> {
    let cluster = &guarded(Version::Newest).await?.cluster;
    let workload = json!({ "kind": "DaemonSet", "name": "proxy", "namespace": "kube-system" });
    let mut object = allocation("warned", &["198.51.100.3"], &workload);
    object["spec"]["strategy"] = json!({ "maxUnavailable": 0, "maxSurge": 2 });
    let output = cluster.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).await?;
    for words in ["maxSurge has no effect", "maxUnavailable 0 counts as 1", "kube-system is excluded"] {
        ensure!(output.stderr.contains(words), "{words:?} is not in {}", output.stderr);
    }
    output.ok()?;
    remove(cluster, "warned").await
}

/// Metrics and logs say what was asked, and logs nothing of what is in objects.
pub async fn requests_are_counted_and_logged_by_uid(_: Arc<Bed>) -> Result<()> {
    let guarded = guarded(Version::Newest).await?;
    let bad = allocation("counted", &["no-address-at-all"], &Value::Null);
    refusal(create(&guarded.cluster, &bad).await)?;
    let metrics = guarded.hook.metrics().await?;
    for family in telemetry::webhook::FAMILIES
        .iter()
        .filter(|family| !family.name.contains("watch_errors") && !family.name.contains("namespace"))
    {
        ensure!(metrics.contains(family.name), "{} is not in:\n{metrics}", family.name);
    }
    for line in [
        r#"outcome="refused",webhook="mutate-allocations""#,
        r#"reason="invalid",webhook="mutate-allocations""#,
        r#"netipallocation_webhook_index_synced{index="allocations"} 1"#,
        r#"netipallocation_webhook_index_synced{index="replicasets"} 1"#,
    ] {
        ensure!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
    let log = guarded.hook.log()?;
    let mut refused = log.lines().filter(|line| line.contains("INFO") && line.contains("refused"));
    let line = refused.rfind(|line| line.contains("counted")).context("not logged")?;
    ensure!(line.contains("uid="), "{line}");
    ensure!(!line.contains("no-address-at-all"), "{line}");
    Ok(())
}
