//! Which cluster, and what its refusals mean.

use anyhow::{Context as _, Error, Result, anyhow};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;

/// Which cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// The kubeconfig; KUBECONFIG or ~/.kube/config, if not given
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; the current one, if not given
    #[arg(long, global = true)]
    context: Option<String>,
    /// Namespace of pods; the context's, if not given
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// Namespace that the controller runs in
    #[arg(long, global = true, default_value = webhook::registration::NAMESPACE)]
    controller_namespace: String,
    /// Name of the controller's Lease
    #[arg(long, global = true, default_value = "ip-address-controller-leader")]
    lease: String,
}

/// A cluster to read from.
pub struct Cluster {
    pub client: Client,
    /// Where pods are looked for that are given by name alone.
    pub namespace: String,
    pub controller_namespace: String,
    pub lease: String,
}

impl ClusterFlags {
    pub async fn connect(&self) -> Result<Cluster> {
        let hint = "no cluster to talk to: set KUBECONFIG, or give --kubeconfig and --context";
        let config = self.config().await.context(hint)?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Cluster {
            client: Client::try_from(config).context(hint)?,
            namespace,
            controller_namespace: self.controller_namespace.clone(),
            lease: self.lease.clone(),
        })
    }

    async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Ok(match (&self.kubeconfig, &self.context) {
            (Some(file), _) => Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?,
            (None, Some(_)) => Config::from_kubeconfig(&options).await?,
            (None, None) => Config::infer().await?,
        })
    }
}

/// An error of the API server as a person needs it: what failed and what to do.
pub fn explain(error: kube::Error, what: &str) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            anyhow!(
                "{what}: not found; is the CRD installed? `ip-address-controller crds | kubectl apply -f -`"
            )
        }
        kube::Error::Api(status) if status.code == 403 => {
            anyhow!("{what}: not allowed; docs/plugin.md lists the rights to ask for ({})", status.message)
        }
        kube::Error::Api(status) if status.code == 401 => {
            anyhow!("{what}: the cluster does not know you; log in again")
        }
        kube::Error::Api(status) => anyhow!("{what}: {}", status.message),
        error @ (kube::Error::Service(_) | kube::Error::HyperError(_)) => {
            let cause = Error::from(error).root_cause().to_string();
            anyhow!("the cluster does not answer: check KUBECONFIG and --context ({cause})")
        }
        other => Error::from(other).context(what.to_owned()),
    }
}
