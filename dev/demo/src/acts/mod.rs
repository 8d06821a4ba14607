//! What is played, act by act. Whatever is told here was looked at first: an act fails if it is not so.

mod admission;
mod attach;
mod leader;
mod nodes;
mod rotation;

use crate::story::Story;
use anyhow::Result;

/// The whole story.
pub async fn all(story: &Story) -> Result<()> {
    attach::an_allocation(story).await?;
    admission::a_bad_manifest(story).await?;
    admission::a_legacy_manifest(story).await?;
    // It takes a minute, and everything else goes on.
    let rotation = rotation::begins(story).await?;
    nodes::drained(story).await?;
    nodes::dead(story).await?;
    leader::killed(story).await?;
    rotation.ends(story).await?;
    the_end(story).await
}

/// What moved, when, why and how long it took.
async fn the_end(story: &Story) -> Result<()> {
    story.screen.act("What moved, when, why, and how long it took")?;
    story.netip("history").await?;
    let probe = story.probe.count();
    anyhow::ensure!(probe.failed.is_empty(), "{} writes failed: {:?}", probe.failed.len(), probe.failed);
    story
        .screen
        .checked(&format!("of {} writes that somebody made all the while, none failed", probe.answered))?;
    story.screen.print_table();
    Ok(())
}
