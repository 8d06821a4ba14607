//! Every manifest that a page shows is accepted; every example becomes Ready.

use crate::pages::{self, Block, ROOT};
use crate::stage::{Shared, Stage};
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use serde_json::Value;

/// The documents of a text in YAML.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = text.split("\n---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).with_context(|| document.to_owned())).collect()
}

fn is_manifest(document: &Value) -> bool {
    document.get("apiVersion").is_some() && document.get("kind").is_some()
}

/// Blocks in YAML are YAML; those with a kind are applied, and deleted again.
pub async fn those_on_pages_are_accepted(shared: Shared) -> Result<()> {
    let stage = shared.stage().await?;
    let blocks = pages::all_blocks()?;
    let yaml: Vec<_> = blocks.iter().filter(|block| block.language == "yaml").collect();
    ensure!(yaml.len() >= 10, "only {} blocks of YAML", yaml.len());
    let mut applied = 0;
    for block in yaml {
        let place = || format!("{}:{}", block.page, block.line);
        let manifests = documents(&block.text).with_context(place)?.iter().any(is_manifest);
        if manifests {
            apply_and_delete(stage, block).await.with_context(place)?;
            applied += 1;
        }
    }
    ensure!(applied >= 4, "only {applied} manifests");
    Ok(())
}

async fn apply_and_delete(stage: &Stage, block: &Block) -> Result<()> {
    let playground = &stage.playground;
    // The address of a manifest before may be held for another moment.
    eventually("it to be accepted", async || playground.apply(&block.text).await).await?;
    let delete = ["delete", "--timeout=60s", "-f", "-"];
    playground.cluster.kubectl_with_input(&delete, &block.text).await?.ok()?;
    Ok(())
}

/// The names of all examples.
pub fn examples() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(format!("{ROOT}/examples"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".yaml") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// An example is applied as it is, its addresses are attached, and its pods run where they are.
pub async fn becomes_ready(shared: Shared, name: String) -> Result<()> {
    let stage = shared.stage().await?;
    let file = format!("{ROOT}/examples/{name}.yaml");
    let manifests = documents(&std::fs::read_to_string(&file)?)?;
    let allocation =
        manifests.iter().find(|object| object["kind"] == "NetIPAllocation").context("no allocation")?;
    stage.pool_for(allocation).await?;
    // The allocation first, as examples/README.md advises: pods with an hour of grace do not move in a test.
    let first = manifests.iter().filter(|object| object["kind"] == "Namespace");
    for object in first.chain([allocation]) {
        stage.playground.apply(&object.to_string()).await?;
    }
    stage.ready(allocation["metadata"]["name"].as_str().context("no name")?).await?;
    let workload = &allocation["spec"]["workloadRef"];
    let text = |field: &str| workload[field].as_str().with_context(|| format!("no {field}"));
    let (kind, workload, namespace) = (text("kind")?, text("name")?, text("namespace")?);
    let target = format!("{}/{workload}", kind.to_lowercase());
    stage.watches(namespace).await?;
    stage.playground.kubectl(&["apply", "-f", &file]).await?;
    eventually(&format!("the pods of {name} to be at their addresses"), async || {
        stage.playground.kubectl(&["-n", namespace, "rollout", "status", &target, "--timeout=5s"]).await?;
        at_addresses(stage, allocation, namespace).await
    })
    .await
    .with_context(|| stage.controller.process.log_tail())
}

/// Every address is on a node, and all pods of the namespace run on these nodes.
async fn at_addresses(stage: &Stage, allocation: &Value, namespace: &str) -> Result<()> {
    let label = format!(
        "netinfra.darkbrains.com/allocation={}",
        allocation["metadata"]["name"].as_str().unwrap_or_default()
    );
    let nodes = stage.playground.json(&["get", "nodes", "-l", &label]).await?;
    let marked: Vec<_> =
        nodes["items"].as_array().context("no list")?.iter().map(|node| &node["metadata"]["name"]).collect();
    ensure!(marked.len() == allocation["spec"]["reservedIPs"].as_array().map_or(0, Vec::len), "{marked:?}");
    let pods = stage.playground.json(&["-n", namespace, "get", "pods"]).await?;
    let pods: Vec<_> =
        pods["items"].as_array().context("no list")?.iter().map(|pod| &pod["spec"]["nodeName"]).collect();
    ensure!(!pods.is_empty(), "no pods");
    ensure!(pods.iter().all(|node| marked.contains(node)), "pods on {pods:?}, addresses on {marked:?}");
    Ok(())
}

/// The table of examples/README.md names every file, and no other.
pub fn examples_are_listed() -> Result<()> {
    let page = std::fs::read_to_string(format!("{ROOT}/examples/README.md"))?;
    let examples = examples()?;
    ensure!(examples.len() >= 5, "{examples:?}");
    ensure!(
        page.matches(".yaml](").count() == examples.len(),
        "examples/README.md lists something else than {examples:?}"
    );
    for name in examples {
        ensure!(page.contains(&format!("[{name}.yaml]({name}.yaml)")), "examples/README.md lacks {name}");
    }
    Ok(())
}
