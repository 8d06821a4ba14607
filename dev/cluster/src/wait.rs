//! Waiting for the world to become so.

use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How long a test waits for something that takes seconds: long enough for a machine that does ten
/// other things, since it is only paid when the test fails.
const PATIENCE: Duration = Duration::from_mins(2);

/// Calls `check` until it succeeds; fails with its last error, and what was waited for, when it does
/// not for two minutes.
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > PATIENCE => {
                return Err(error).with_context(|| format!("waited {} s for: {what}", PATIENCE.as_secs()));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Ctrl-C, or the SIGTERM of `kill` and `timeout`.
pub async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
