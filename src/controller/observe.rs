//! One look at the cluster through the controller's own watches, for whoever only wants to know.

use super::followers::Followers;
use super::state::State;
use super::{MAILBOX, Message, watches};
use anyhow::{Result, bail};
use kube::Client;
use plan::World;
use std::time::Duration;
use telemetry::Telemetry;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;

/// The world as the API server tells it, without a word from the clouds. `namespace` is the controller's
/// own.
pub async fn observe(client: &Client, namespace: &str, patience: Duration) -> Result<World> {
    let metrics = Metrics::new(&Telemetry::new(None)?)?;
    let (send, mut mailbox) = mpsc::channel(MAILBOX);
    let excluded_namespaces = crate::process::excluded_namespaces(namespace);
    let world = World { excluded_namespaces, ..World::default() };
    let mut state = State::new(world, Followers::new(client.clone(), send.clone(), metrics.clone()));
    let _watches = watches(client, &send, &metrics);
    let complete = async {
        while state.missing().is_some() {
            if let Some(Message::Observed(observed)) = mailbox.recv().await {
                state.see(observed);
            }
        }
    };
    let done = tokio::time::timeout(patience, complete).await;
    match state.missing() {
        Some(missing) if done.is_err() => {
            bail!(
                "{missing} could not be listed within {patience:?}: may you list and watch that kind there?"
            )
        }
        _ => Ok(state.world),
    }
}
