//! Simulated nodes: what a cloud's VM and its kubelet would do, for thousands of them at once.

mod player;
mod pods;
mod spec;

pub use spec::{NodeSpec, Provider};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use player::{Command, Health, Player};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The simulated nodes of a cluster. One task plays them all; it ends when this is dropped.
pub struct Nodes {
    api: Api<Node>,
    commands: mpsc::UnboundedSender<(Command, oneshot::Sender<()>)>,
    task: JoinHandle<()>,
}

impl Nodes {
    /// Starts playing. Heartbeats go out every `heartbeat`.
    pub(crate) fn start(client: Client, heartbeat: Duration) -> Self {
        let (commands, orders) = mpsc::unbounded_channel();
        let player = Player::new(client.clone(), heartbeat);
        let task = tokio::spawn(player.run(orders));
        Self { api: Api::all(client), commands, task }
    }

    /// Registers a node, as a kubelet does when its VM boots, and keeps it alive from then on.
    pub async fn create(&self, spec: NodeSpec) -> Result<()> {
        let node = spec.node();
        self.tell(Command::Play(Box::new(spec))).await?;
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.api
            .create(&PostParams::default(), &node)
            .await
            .with_context(|| format!("cannot register node {name}"))?;
        Ok(())
    }

    /// Registers many nodes.
    pub async fn create_all(&self, specs: impl IntoIterator<Item = NodeSpec>) -> Result<()> {
        futures::stream::iter(specs.into_iter().map(|spec| self.create(spec)))
            .buffer_unordered(16)
            .try_collect()
            .await
    }

    /// The VM hangs or loses its network: no heartbeats, no pod starts or ends. The real node
    /// lifecycle controller marks it Unknown after the grace period.
    pub async fn silence(&self, name: &str) -> Result<()> {
        self.tell(Command::Health(name.to_owned(), Health::Silent)).await
    }

    /// The kubelet reports NotReady at once. Pods there neither start nor end.
    pub async fn mark_not_ready(&self, name: &str) -> Result<()> {
        self.tell(Command::Health(name.to_owned(), Health::NotReady)).await
    }

    /// The node is well again.
    pub async fn revive(&self, name: &str) -> Result<()> {
        self.tell(Command::Health(name.to_owned(), Health::Ready)).await
    }

    /// The VM is gone, and its Node object with it.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.tell(Command::Forget(name.to_owned())).await?;
        self.api
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("cannot delete node {name}"))?;
        Ok(())
    }

    /// The VM is replaced by another one of the same name, as instance groups do: the Node object goes
    /// and comes back with another UID and the provider ID of `spec`.
    pub async fn recreate(&self, spec: NodeSpec) -> Result<()> {
        self.delete(&spec.name).await?;
        self.create(spec).await
    }

    /// Hands a command to the player and waits until it has taken it in.
    async fn tell(&self, command: Command) -> Result<()> {
        let (done, taken) = oneshot::channel();
        self.commands.send((command, done)).ok().context("the node player has ended")?;
        taken.await.context("the node player has ended")
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.task.abort();
    }
}
