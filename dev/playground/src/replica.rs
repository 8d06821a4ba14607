//! A process of ours.

use anyhow::{Context as _, Result, ensure};
use cluster::{Process, eventually};

/// A replica of the controller or the webhook.
pub struct Replica {
    /// The process.
    pub process: Process,
    /// Port of its health checks.
    pub health: u16,
    /// Port of its metrics.
    pub metrics: u16,
}

/// Whether the process with that health port says that it is ready.
pub async fn says_ready(health: u16) -> bool {
    let answer = reqwest::get(format!("http://127.0.0.1:{health}/readyz")).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

impl Replica {
    /// Waits until it says that it is ready.
    pub async fn ready(&self) -> Result<()> {
        let name = self.process.name();
        eventually(&format!("{name} to be ready"), async || {
            self.process.check_running()?;
            let answer = reqwest::get(format!("http://127.0.0.1:{}/readyz", self.health)).await?;
            ensure!(answer.status().is_success(), "{}", answer.text().await?);
            Ok(())
        })
        .await
    }

    /// The sum of a metric over its series.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = reqwest::get(format!("http://127.0.0.1:{}/metrics", self.metrics)).await?.text().await?;
        let series = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        let values = series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.reduce(|sum, value| sum + value).with_context(|| format!("no {name} in {text}"))
    }

    /// Whether it leads.
    pub async fn leads(&self) -> bool {
        self.metric("netipallocation_controller_is_leader").await.is_ok_and(|leads| leads > 0.5)
    }
}
