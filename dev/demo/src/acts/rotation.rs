//! The webhook's CA is replaced while everything goes on.

use crate::story::Story;
use anyhow::{Result, ensure};
use cluster::eventually;
use std::time::{Duration, Instant};

/// A rotation that has begun.
pub struct Rotation {
    before: Vec<f64>,
    began: Instant,
}

pub async fn begins(story: &Story) -> Result<Rotation> {
    let screen = &story.screen;
    screen.act("The webhook's CA is to be replaced")?;
    let before = served(story).await?;
    story.own("certs rotate").await?;
    screen.say("The API server is told of the next CA a minute before it signs. Meanwhile:")?;
    story.pause().await;
    Ok(Rotation { before, began: Instant::now() })
}

impl Rotation {
    pub async fn ends(self, story: &Story) -> Result<()> {
        let screen = &story.screen;
        screen.act("The CA is replaced by now")?;
        // The margin, and what it takes to sign and to read.
        let due = self.began + Duration::from_secs(65);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if served(story).await? != self.before {
                break;
            }
            screen.say(&format!("not quite: at most {} s to go", left.as_secs()))?;
            tokio::time::sleep(left.min(Duration::from_secs(10))).await;
        }
        eventually("both replicas to serve a certificate of the next CA", async || {
            let now = served(story).await?;
            let other = now.iter().zip(&self.before).filter(|(now, before)| now > before).count();
            ensure!(other == now.len(), "{other} of {} do", now.len());
            Ok(())
        })
        .await?;
        story.own("certs status --check").await?;
        let failed = story.probe.count().failed;
        ensure!(failed.is_empty(), "{failed:?}");
        screen.checked("both replicas serve a certificate of the next CA, and no request has failed")?;
        story.pause().await;
        Ok(())
    }
}

/// When the certificates end that each replica serves, the CA's and the leaf's added up: later ones are others.
async fn served(story: &Story) -> Result<Vec<f64>> {
    let mut ends = Vec::new();
    for replica in &story.webhooks {
        ends.push(replica.metric("netipallocation_certificate_not_after_seconds").await?);
    }
    Ok(ends)
}
