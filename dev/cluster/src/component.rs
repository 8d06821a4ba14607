//! One process of the control plane, and the way to see that it works.

use crate::process::Process;
use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(90);

/// The processes of a control plane.
pub struct Components {
    // Fields are dropped in this order: users before what they use.
    pub scheduler: Component,
    pub controller_manager: Component,
    pub apiserver: Component,
    pub etcd: Component,
}

/// One process of the control plane and the way to see that it works.
pub struct Component {
    pub(crate) process: Process,
    pub(crate) probe: Probe,
}

/// A request that is answered when a component works.
pub struct Probe {
    pub url: String,
    pub path: &'static str,
    pub config: Option<Kubeconfig>,
}

impl Component {
    /// Starts it, if it does not run, and waits until it works.
    pub async fn start(&self) -> Result<()> {
        self.process.spawn()?;
        let start = Instant::now();
        loop {
            self.process.check_running().with_context(|| format!("{} did not start", self.process.name()))?;
            match self.probe.works().await {
                Ok(()) => return Ok(()),
                Err(error) if start.elapsed() > START_LIMIT => {
                    bail!(
                        "{} did not become ready in {} s: {error:#}\n{}",
                        self.process.name(),
                        START_LIMIT.as_secs(),
                        self.process.log_tail()
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Asks it to end and waits for that.
    pub async fn stop(&self) -> Result<()> {
        self.process.stop().await
    }

    /// Kills it, as a crash would.
    pub async fn kill(&self) -> Result<()> {
        self.process.kill().await
    }

    /// Freezes it.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets it go on after a [`pause`](Self::pause).
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// Stops and starts it.
    pub async fn restart(&self) -> Result<()> {
        self.stop().await?;
        self.start().await
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }
}

impl Probe {
    async fn works(&self) -> Result<()> {
        let client = match &self.config {
            Some(config) => client(config, self.url.clone()).await?,
            None => plain_client(&self.url)?,
        };
        let request = http_get(self.path)?;
        tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await??;
        Ok(())
    }
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

/// A client for a server that wants neither certificates nor names.
pub fn plain_client(url: &str) -> Result<Client> {
    Ok(Client::try_from(Config::new(url.parse()?))?)
}

/// A client for the user of a kubeconfig.
pub async fn client(config: &Kubeconfig, url: String) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(config.clone(), &KubeConfigOptions::default()).await?;
    config.cluster_url = url.parse()?;
    Ok(Client::try_from(config)?)
}
