//! The webhook's CA is replaced while everything goes on.

use crate::story::Story;
use anyhow::{Context as _, Result, ensure};
use cluster::eventually;
use std::time::{Duration, Instant};

/// A rotation that has begun.
pub struct Rotation {
    before: String,
    began: Instant,
}

pub async fn begins(story: &Story) -> Result<Rotation> {
    let screen = &story.screen;
    screen.act("The webhook's CA is to be replaced")?;
    let before = leaf(story).await?;
    story.own("certs rotate").await?;
    screen.say("The API server is told of the next CA a minute before it signs. Meanwhile:")?;
    story.pause().await;
    Ok(Rotation { before, began: Instant::now() })
}

impl Rotation {
    pub async fn is_over(self, story: &Story) -> Result<()> {
        let screen = &story.screen;
        screen.act("The CA is replaced by now")?;
        let left = Duration::from_secs(65).saturating_sub(self.began.elapsed());
        if !left.is_zero() {
            screen.say(&format!("not quite: at most {} s to go", left.as_secs()))?;
        }
        let served = eventually("replicas to serve a certificate of the next CA", async || {
            let now = leaf(story).await?;
            ensure!(now != self.before, "it is still the old one");
            Ok(now)
        })
        .await?;
        story.own("certs status --check").await?;
        let failed = story.probe.count().failed;
        ensure!(failed.is_empty(), "{failed:?}");
        screen.checked(&format!(
            "another certificate is served (serial {served}), and no request has failed"
        ))?;
        story.pause().await;
        Ok(())
    }
}

/// The serial of the leaf that replicas share.
async fn leaf(story: &Story) -> Result<String> {
    let binary = story.quiet("certs status").await?;
    let line = binary.lines().find(|line| line.starts_with("leaf:")).context("no leaf")?;
    let serial = line.split("serial ").nth(1).and_then(|rest| rest.split(',').next());
    Ok(serial.context("no serial")?.to_owned())
}
