//! A real control plane, a simulated cloud, and our processes under their own roles, as an installation has
//! them: what the demo and some of the tests play on.

mod balancer;
mod replica;

pub use balancer::Balancer;
pub use replica::Replica;

use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, NodeSpec, Provider, eventually};
use serde_json::Value;
use sim::{Sim, World};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Where an installation lives.
pub const NAMESPACE: &str = "ip-address-controller";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Whether an object, as `kubectl -o json` prints it, has the condition Ready.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The cluster, the cloud, and what is needed to start processes of ours.
pub struct Playground {
    /// The control plane with its simulated nodes.
    pub cluster: Cluster,
    /// The clouds, of which one is used.
    pub sim: Sim,
    /// The cloud that the nodes are of.
    pub provider: Provider,
    binary: PathBuf,
    service: Balancer,
}

impl Playground {
    /// A cluster with our CRD, namespace and roles; nothing of ours runs yet. `binary` is what will run.
    pub async fn start(binary: &Path, provider: Provider) -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.install_crds().await?;
        // Boxed: it is large, and so would be everybody who starts one.
        Box::pin(Self::on(cluster, binary, provider)).await
    }

    /// The same on a cluster that has our CRD already.
    pub async fn on(cluster: Cluster, binary: &Path, provider: Provider) -> Result<Self> {
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
        let account = "ip-address-controller-webhook";
        cluster.kubectl(&["create", "serviceaccount", account, "-n", NAMESPACE]).await?.ok()?;
        for role in ["controller", "webhook", "certs", "webhook-self-registration"] {
            cluster.kubectl(&["apply", "-f", &format!("{ROOT}/deploy/rbac/{role}.yaml")]).await?.ok()?;
        }
        let sim = Sim::start(World::default()).await?;
        let service = Balancer::start().await?;
        Ok(Self { cluster, sim, provider, binary: binary.to_owned(), service })
    }

    /// The name of the cloud in manifests.
    pub fn cloud(&self) -> sim::Cloud {
        match self.provider {
            Provider::Gcp => sim::Cloud::Gcp,
            Provider::Aws => sim::Cloud::Aws,
            Provider::Azure => sim::Cloud::Azure,
        }
    }

    /// A node in the n-th zone, and its machine; it takes pods when this returns.
    pub async fn add_node(&self, name: &str, zone: usize, labels: &[(&str, &str)]) -> Result<()> {
        let spec = NodeSpec::new(self.provider, name, zone);
        let spec = labels.iter().fold(spec, |spec, (key, value)| spec.label(key, value));
        self.sim.add_instance(&spec.provider_id)?;
        self.cluster.nodes().create(spec).await?;
        eventually(&format!("{name} to take pods"), async || {
            let node = self.json(&["get", "node", name]).await?;
            ensure!(is_ready(&node) && node["spec"].get("taints").is_none(), "it does not yet: {node}");
            Ok(())
        })
        .await
    }

    /// Reserves an address in the cloud.
    pub fn add_address(&self, address: &str) -> Result<()> {
        self.sim.add_address(self.cloud(), address.parse()?)?;
        Ok(())
    }

    /// A replica of the controller, as a pod of that name runs it. The usual lease, unless `more` says
    /// otherwise: on a busy machine a short one may be lost, and then the process ends.
    pub async fn controller(&self, name: &str, more: &[(&str, &str)]) -> Result<Replica> {
        let mut env = vec![("POD_NAME", name.to_owned())];
        env.extend(self.sim.environment(name));
        env.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        self.replica(name, "controller", "ip-address-controller", env).await
    }

    /// A replica of the webhook. It registers itself; the API server reaches all of them by one address.
    pub async fn webhook(&self, name: &str) -> Result<Replica> {
        self.webhook_with(name, &[]).await
    }

    /// The same with other settings.
    pub async fn webhook_with(&self, name: &str, more: &[(&str, &str)]) -> Result<Replica> {
        let port = cluster::free_port()?;
        let mut env = vec![
            ("WEBHOOK_ADDR", format!("127.0.0.1:{port}")),
            ("WEBHOOK_URL", format!("https://{}", self.service.address)),
            ("WEBHOOK_DRAIN_SECONDS", "1".to_owned()),
        ];
        env.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        let replica = self.replica(name, "webhook", "ip-address-controller-webhook", env).await?;
        let health = replica.health;
        self.service.join((Ipv4Addr::LOCALHOST, port).into(), move || replica::says_ready(health));
        Ok(replica)
    }

    async fn replica(
        &self,
        name: &str,
        command: &str,
        account: &str,
        more: Vec<(&str, String)>,
    ) -> Result<Replica> {
        let kubeconfig = self.cluster.service_account_kubeconfig(NAMESPACE, account).await?;
        let (health, metrics) = (cluster::free_port()?, cluster::free_port()?);
        let mut env = vec![
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("POD_NAMESPACE", NAMESPACE.to_owned()),
            ("HEALTH_ADDR", format!("127.0.0.1:{health}")),
            ("METRICS_PORT", metrics.to_string()),
        ];
        // What the caller says counts.
        env.extend(more);
        let process = self.cluster.launch(name, &self.binary, &[command], env)?;
        Ok(Replica { process, health, metrics })
    }

    /// kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.cluster.admin_kubeconfig()
    }

    /// kubectl, as administrator; it has to work.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(args).await?.ok()
    }

    /// What `kubectl -o json` prints.
    pub async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[args, &["-o", "json"]].concat()).await?;
        serde_json::from_str(&text).context("no JSON")
    }

    /// Applies manifests; they have to be accepted.
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        self.cluster.kubectl_with_input(&["apply", "-f", "-"], manifests).await?.ok()
    }
}
