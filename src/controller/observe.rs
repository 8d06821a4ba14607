//! The cluster through the controller's own watches, for whoever only wants to know.

use super::followers::Followers;
use super::state::State;
use super::watch::Watching;
use super::{MAILBOX, Message, watches};
use anyhow::{Result, bail};
use kube::Client;
use plan::World;
use std::collections::BTreeSet;
use std::time::Duration;
use telemetry::Telemetry;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;

/// Somebody who looks on.
pub struct Observer {
    state: State,
    mailbox: mpsc::Receiver<Message>,
    _watches: [Watching; 4],
}

impl Observer {
    /// Begins to watch. `namespace` is the controller's own.
    pub fn start(client: &Client, namespace: &str) -> Result<Self> {
        let metrics = Metrics::new(&Telemetry::new(None)?)?;
        let (send, mailbox) = mpsc::channel(MAILBOX);
        let excluded_namespaces = crate::process::excluded_namespaces(namespace);
        let newcomer_seconds = i64::try_from(super::settings::NEWCOMER.as_secs()).unwrap_or(i64::MAX);
        let world = World { excluded_namespaces, newcomer_seconds, ..World::default() };
        let state = State::new(world, Followers::new(client.clone(), send.clone(), metrics.clone()));
        Ok(Self { state, mailbox, _watches: watches(client, &send, &metrics) })
    }

    /// Waits until everything that there is has been listed, or is said to be impossible to list.
    pub async fn complete(&mut self, patience: Duration) -> Result<()> {
        let complete = async {
            while self.state.pending().is_some() {
                self.next().await;
            }
        };
        let done = tokio::time::timeout(patience, complete).await;
        match self.state.pending() {
            Some(missing) if done.is_err() => {
                bail!(
                    "{missing} could not be listed within {patience:?}: may you list and watch that kind there?"
                )
            }
            _ => Ok(()),
        }
    }

    /// What could not be listed: what is said of those workloads and their allocations may be wrong.
    pub fn troubles(&self) -> BTreeSet<String> {
        self.state.troubles()
    }

    /// Waits for something to change, and takes in all that has.
    pub async fn next(&mut self) {
        let mut message = self.mailbox.recv().await;
        while let Some(news) = message {
            if let Message::Observed(observed) = news {
                self.state.see(observed);
            }
            message = self.mailbox.try_recv().ok();
        }
    }

    /// The world as the API server tells it, without a word from the clouds.
    pub fn world(&mut self) -> &mut World {
        &mut self.state.world
    }
}
