//! What the webhook says to a manifest.

use crate::story::Story;
use anyhow::{Context as _, Result, ensure};

pub async fn a_bad_manifest(story: &Story) -> Result<()> {
    let screen = &story.screen;
    screen.act("A bad manifest is refused, with everything that is wrong with it")?;
    let manifest = include_str!("../../manifests/bad.yaml");
    screen.command("kubectl apply -f bad.yaml")?;
    screen.output(manifest)?;
    let said = story.ground.cluster.kubectl_with_input(&["apply", "-f", "-"], manifest).await?;
    ensure!(!said.success, "it was taken");
    let faults = ["spec.reservedIPs[0]", "spec.reservedIPs[1]", "spec.workloadRef.kind", "spec.cloud.region"];
    for fault in faults {
        ensure!(said.stderr.contains(fault), "nothing is said of {fault}: {}", said.stderr);
    }
    screen.output(&said.stderr)?;
    screen.checked(&format!("{} faults in one answer, each with its path", faults.len()))?;
    story.pause().await;
    Ok(())
}

pub async fn a_legacy_manifest(story: &Story) -> Result<()> {
    let screen = &story.screen;
    screen.act("A manifest of the predecessor's is taken as it is, and converted")?;
    let manifest = story.manifest(include_str!("../../manifests/legacy.yaml"));
    screen.command("kubectl apply -f legacy.yaml")?;
    screen.output(manifest.split("---").next().unwrap_or_default())?;
    let said = story.ground.cluster.kubectl_with_input(&["apply", "-f", "-"], &manifest).await?;
    ensure!(said.success, "{}", said.stderr);
    let warning =
        said.stderr.lines().find(|line| line.contains("deploymentRef")).context("no warning came")?;
    screen.output(warning)?;
    let stored = story.ground.json(&["get", "nia", "legacy-app-ips"]).await?;
    ensure!(stored["spec"].get("deploymentRef").is_none(), "deploymentRef was stored");
    ensure!(stored["spec"]["workloadRef"]["name"] == "legacy-app", "{}", stored["spec"]);
    story.settled("legacy-app-ips", "legacy-app", 1).await?;
    screen.checked("what is stored has workloadRef, the address is attached, the pod runs beside it")?;
    story.pause().await;
    Ok(())
}
