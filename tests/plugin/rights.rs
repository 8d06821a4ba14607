//! What the plugin may do, and does.

use crate::stage::{Stage, netip};
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use serde_json::Value;
use std::collections::BTreeSet;

/// The role that docs/plugin.md asks for.
fn role() -> Result<String> {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/plugin.md"))?;
    let role =
        docs.split("```yaml\n").find(|block| block.contains("kind: ClusterRole\n")).context("no role")?;
    Ok(role.split("```").next().unwrap_or_default().to_owned())
}

pub async fn it_only_reads() -> Result<()> {
    let stage = Stage::new().await?;
    stage.add_node("voice-1", 0, &[("pool", "voice")]).await?;
    let spec = "spec: { reservedIPs: [203.0.113.10], cloud: { provider: gcp }, \
                workloadRef: { kind: Deployment, name: sip } }";
    stage
        .apply(&format!(
            "apiVersion: netinfra.darkbrains.com/v1alpha1\nkind: NetIPAllocation\nmetadata: {{ name: voice }}\n{spec}\n"
        ))
        .await?;
    stage.kubectl(&["create", "serviceaccount", "reader"]).await?;
    let reader = stage.cluster.service_account_kubeconfig("default", "reader").await?;
    let said = netip(&reader, &["status"]).await?.refusal()?;
    ensure!(
        said.contains("cannot be listed: not allowed; docs/plugin.md lists the rights to ask for"),
        "{said}"
    );
    stage.apply(&role()?).await?;
    let bind = ["create", "clusterrolebinding", "reader", "--clusterrole=ip-address-controller-plugin"];
    stage.kubectl(&[bind.as_slice(), &["--serviceaccount=default:reader"]].concat()).await?;
    eventually("the role to be in force", async || netip(&reader, &["status"]).await?.ok().map(drop)).await?;
    for command in [&["status"][..], &["why", "voice-1"], &["plan"], &["history"]] {
        netip(&reader, command).await?.ok()?;
    }
    let doctor = netip(&reader, &["doctor"]).await?.stdout;
    ensure!(!doctor.contains("not allowed"), "{doctor}");
    ensure!(doctor.contains("WARNING  certificates"), "Secrets are not in the role: {doctor}");
    let verbs = verbs_of(
        &std::fs::read_to_string(stage.cluster.audit_log())?,
        "system:serviceaccount:default:reader",
    );
    let reading = ["get", "list", "watch"].map(str::to_owned);
    ensure!(!verbs.is_empty() && verbs.iter().all(|verb| reading.contains(verb)), "{verbs:?}");
    Ok(())
}

/// What an account has done, by the API server's own log, whose last line may be half written.
fn verbs_of(log: &str, account: &str) -> BTreeSet<String> {
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = events.filter(|event| event["user"]["username"] == account);
    ours.map(|event| event["verb"].as_str().unwrap_or_default().to_owned()).collect()
}
