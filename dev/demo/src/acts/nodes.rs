//! Nodes that are drained, and nodes that die.

use crate::story::Story;
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant};

const ADDRESS: &str = "203.0.113.10";

pub async fn drained(story: &Story) -> Result<()> {
    let screen = &story.screen;
    let from = story.holder(ADDRESS).await?.context("it is nowhere")?;
    screen.act(&format!("{from} is cordoned, then drained: the address follows its pods"))?;
    screen.command(&format!("kubectl cordon {from}"))?;
    story.ground.kubectl(&["cordon", &from]).await?;
    // A wrong move would come at once.
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(story.holder(ADDRESS).await?.as_deref() == Some(&*from), "it left while a pod was there");
    screen.checked(&format!("{ADDRESS} stays while its pod runs; why is no secret:"))?;
    story.netip(&format!("why {ADDRESS}")).await?;
    story.pause().await;
    screen.command(&format!("kubectl drain {from} --ignore-daemonsets"))?;
    let began = Instant::now();
    story.ground.kubectl(&["drain", &from, "--ignore-daemonsets", "--timeout=60s"]).await?;
    let to = story.moved(ADDRESS, &from).await?;
    let homes = story.settled("voice", "sip", 2).await?;
    ensure!(homes.contains(&to), "{to} is no home of voice: {homes:?}");
    let took = began.elapsed().as_secs_f64();
    screen.checked(&format!(
        "{ADDRESS} is on {to}, and its pod runs there, {took:.1} s after the drain began"
    ))?;
    screen.print_table();
    story.pause().await;
    Ok(())
}

pub async fn dead(story: &Story) -> Result<()> {
    let screen = &story.screen;
    let from = story.holder(ADDRESS).await?.context("it is nowhere")?;
    screen.act(&format!("The machine of {from} dies"))?;
    let node = story.ground.json(&["get", "node", &from]).await?;
    let machine = node["spec"]["providerID"].as_str().context("no provider ID")?.to_owned();
    screen.say("No warning, no drain: the instance stops, the kubelet is silent.")?;
    let began = Instant::now();
    story.ground.sim.stop_instance(&machine)?;
    story.ground.cluster.nodes().silence(&from).await?;
    let to = story.moved(ADDRESS, &from).await?;
    let homes = story.settled("voice", "sip", 2).await?;
    ensure!(homes.contains(&to), "{to} is no home of voice: {homes:?}");
    let took = began.elapsed().as_secs_f64();
    screen.checked(&format!(
        "{ADDRESS} is on {to} and its pod runs there, {took:.1} s after the machine died"
    ))?;
    let history = story.status("voice").await?.history;
    let last = history.first().context("no history")?;
    screen.say(&format!("The move itself took {}; its cause: {}.", last.duration, last.cause))?;
    screen.print_table();
    story.pause().await;
    Ok(())
}
