//! What became of a write that was accepted.

use super::client::Answer;
use super::{Azure, errors, model};
use crate::{Class, Error};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long to wait when the cloud does not say, and at least.
const USUAL: Duration = Duration::from_secs(2);
const LEAST: Duration = Duration::from_millis(100);

/// Waits until a write is done, and says how it ended. `false`: the cloud has forgotten the operation.
pub async fn wait(azure: &Azure, accepted: &Answer, deadline: Instant) -> Result<bool, Error> {
    let Some(url) = accepted.operation.as_deref().filter(|url| azure.arm.is_ours(url)) else {
        return Ok(false);
    };
    let mut pause = accepted.retry_after;
    loop {
        let wait = pause.unwrap_or(USUAL).max(LEAST);
        if Instant::now() + wait > deadline {
            let message = "Azure is still at it; it may or may not be done in a while";
            let request_id = accepted.request_id.clone();
            return Err(Error { request_id, ..Error::new(Class::Transient, message) });
        }
        sleep(wait).await;
        let asked = azure.gate.read("operations.get", deadline, azure.arm.find(url)).await;
        let Some(answer) = asked.map_err(Error::of_accepted)? else {
            return Ok(false);
        };
        let operation: model::Operation = model::read(&answer.body)?;
        match operation.status.as_str() {
            "Succeeded" => return Ok(true),
            "Failed" | "Canceled" => {
                let error = errors::of_operation(&operation.status, operation.error);
                return Err(Error { request_id: accepted.request_id.clone(), ..error });
            }
            _ => pause = answer.retry_after,
        }
    }
}
