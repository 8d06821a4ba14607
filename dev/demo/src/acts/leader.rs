//! The leader is killed.

use crate::story::Story;
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use std::time::Instant;

pub async fn killed(story: &Story) -> Result<()> {
    let screen = &story.screen;
    let (mut leader, mut standby) = (None, None);
    for replica in &story.controllers {
        if replica.leads().await { leader = Some(replica) } else { standby = Some(replica) }
    }
    let (leader, standby) = leader.zip(standby).context("there are not one leader and one standby")?;
    let name = leader.process.name();
    screen.act(&format!("The leader, {name}, is killed"))?;
    let writes = story.cloud_writes();
    screen.command(&format!("kill -9 {}    # {name}", leader.process.id().unwrap_or_default()))?;
    let began = Instant::now();
    leader.process.kill().await?;
    screen.say("Its lease runs for 8 seconds; nobody writes to the cloud before it is over.")?;
    eventually("the standby to lead", async || {
        standby.process.check_running()?;
        ensure!(standby.leads().await, "not yet");
        Ok(())
    })
    .await?;
    let took = began.elapsed().as_secs_f64();
    screen.checked(&format!("{} leads after {took:.1} s", standby.process.name()))?;
    story.settled("voice", "sip", 2).await?;
    story.settled("legacy-app-ips", "legacy-app", 1).await?;
    let since = story.cloud_writes().split_off(writes.len());
    ensure!(since.is_empty(), "the hand-over changed something: {since:?}");
    screen.checked("nothing moved: not one call that changes anything went to the cloud")?;
    leader.process.spawn()?;
    leader.ready().await?;
    story.pause().await;
    Ok(())
}
