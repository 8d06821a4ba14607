//! An allocation, from nothing to pods that run.

use crate::story::{NAMESPACE, Story};
use anyhow::{Result, ensure};
use std::time::Instant;

pub async fn an_allocation(story: &Story) -> Result<()> {
    let screen = &story.screen;
    screen.act("An allocation: two addresses for a Deployment")?;
    let manifest = story.manifest(include_str!("../../manifests/voice.yaml"));
    screen.command("kubectl apply -f voice.yaml")?;
    let spec = manifest.split("---").next().unwrap_or_default();
    screen.output(spec)?;
    story.pause().await;
    let began = Instant::now();
    story.ground.apply(&manifest).await?;
    story.settled("voice", "sip", 2).await?;
    let took = began.elapsed().as_secs_f64();
    screen.command("kubectl wait --for=condition=Ready nia/voice")?;
    let waited =
        story.ground.kubectl(&["wait", "--for=condition=Ready", "nia/voice", "--timeout=60s"]).await?;
    screen.output(&waited)?;
    screen.checked(&format!(
        "after {took:.1} s both addresses are on nodes of the pool, by the cloud's own word"
    ))?;
    let running = story.pods("sip").await?;
    let elsewhere = story.ground.json(&["get", "pods", "-n", NAMESPACE]).await?;
    ensure!(elsewhere["items"].as_array().map(Vec::len) == Some(running.len()), "there are other pods");
    screen.checked("its pods run on exactly these nodes: the webhook gave them the affinity")?;
    story.netip("status").await?;
    screen.print_table();
    story.pause().await;
    Ok(())
}
