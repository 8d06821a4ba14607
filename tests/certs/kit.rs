//! Words that the tests share.

use anyhow::{Result, ensure};
use cluster::eventually;

/// Waits for a condition that is read without a call.
pub async fn until(what: &str, mut check: impl FnMut() -> bool) -> Result<()> {
    eventually(what, async || {
        ensure!(check(), "not yet");
        Ok(())
    })
    .await
}
