//! One installation that the tests share.

use crate::pages::ROOT;
use anyhow::{Context as _, Result, anyhow, ensure};
use cluster::{Cluster, NodeSpec, Provider, eventually};
use playground::{Playground, Replica};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use tokio::process::Command;
use tokio::sync::OnceCell;

pub const BINARY: &str = env!("CARGO_BIN_EXE_ip-address-controller");

/// The allocation, its namespace, node, address and pod that stand for what pages call `NAME` and so on.
pub const ALLOCATION: &str = "stage";
pub const ADDRESS: &str = "192.0.2.10";
pub const NODE: &str = "stage-1";
pub const POD: &str = "stage-0";

/// The stage, set up when the first test asks for it.
#[derive(Clone, Default)]
pub struct Shared(Arc<OnceCell<Result<Stage, String>>>);

impl Shared {
    /// The stage; if it cannot be set up, no test tries again.
    pub async fn stage(&self) -> Result<&Stage> {
        let set = async || Stage::set().await.map_err(|error| format!("{error:#}"));
        self.0.get_or_init(set).await.as_ref().map_err(|error| anyhow!("{error}"))
    }
}

/// A cluster with our processes, and one workload at its address.
pub struct Stage {
    pub playground: Playground,
    pub controller: Replica,
    _webhook: Replica,
}

impl Stage {
    async fn set() -> Result<Self> {
        let playground = Playground::start(Path::new(BINARY), Provider::Gcp).await?;
        let webhook = playground.webhook("webhook").await?;
        let controller = playground.controller("controller", &[]).await?;
        for (zone, name) in [NODE, "stage-2"].into_iter().enumerate() {
            playground.add_node(name, zone, &[("pool", "stage")]).await?;
        }
        playground.add_address(ADDRESS)?;
        webhook.ready().await?;
        controller.ready().await?;
        let stage = Self { playground, controller, _webhook: webhook };
        stage.work().await.with_context(|| stage.controller.process.log_tail())?;
        Ok(stage)
    }

    /// The address is attached, and a pod runs there.
    async fn work(&self) -> Result<()> {
        let manifests = include_str!("stage.yaml");
        // A webhook that has just begun refuses what it does not know yet.
        eventually("the webhook to let it pass", async || self.playground.apply(manifests).await).await?;
        self.ready(ALLOCATION).await?;
        self.playground
            .kubectl(&["-n", ALLOCATION, "rollout", "status", "statefulset/stage", "--timeout=120s"])
            .await?;
        Ok(())
    }

    /// A pool of nodes for an allocation, its machines and its addresses, in the cloud that it names.
    pub async fn pool_for(&self, allocation: &Value) -> Result<()> {
        let spec = &allocation["spec"];
        let (provider, cloud) = match spec["cloud"]["provider"].as_str() {
            Some("gcp") => (Provider::Gcp, sim::Cloud::Gcp),
            Some("aws") => (Provider::Aws, sim::Cloud::Aws),
            Some("azure") => (Provider::Azure, sim::Cloud::Azure),
            other => return Err(anyhow!("no such provider: {other:?}")),
        };
        let addresses = spec["reservedIPs"].as_array().context("no addresses")?;
        for address in addresses {
            self.playground.sim.add_address(cloud, address.as_str().context("no text")?.parse()?)?;
        }
        let name = allocation["metadata"]["name"].as_str().context("no name")?;
        let labels = spec["nodeSelector"].as_object().context("no nodeSelector")?;
        // One spare node.
        for node in NodeSpec::pool(provider, name, addresses.len() + 1) {
            let node = labels
                .iter()
                .fold(node, |node, (key, value)| node.label(key, value.as_str().unwrap_or_default()));
            self.playground.sim.add_instance(&node.provider_id)?;
            self.playground.cluster.nodes().create(node).await?;
        }
        Ok(())
    }

    /// Waits until the API server is told to ask about pods of a namespace.
    pub async fn watches(&self, namespace: &str) -> Result<()> {
        eventually(&format!("pods of {namespace} to be asked about"), async || {
            let configuration = self
                .playground
                .json(&["get", "mutatingwebhookconfiguration", "ip-address-controller"])
                .await?;
            let webhooks = configuration["webhooks"].as_array().context("no list")?;
            let listed =
                webhooks.iter().any(|webhook| webhook["namespaceSelector"].to_string().contains(namespace));
            ensure!(listed, "{configuration}");
            Ok(())
        })
        .await
    }

    /// Waits until an allocation is Ready.
    pub async fn ready(&self, name: &str) -> Result<()> {
        let target = format!("nia/{name}");
        let args = ["wait", "--for=condition=Ready", &target, "--timeout=120s"];
        if let Err(error) = self.playground.kubectl(&args).await {
            let object = self.playground.json(&["get", "nia", name]).await?;
            return Err(error.context(format!("{object}\n{}", self.controller.process.log_tail())));
        }
        Ok(())
    }
}

/// A folder that looks like the repository's, in which a line may leave files behind.
fn desk(cluster: &Cluster) -> Result<PathBuf> {
    let desk = cluster.folder().join("desk");
    std::fs::create_dir_all(&desk)?;
    for name in ["crds", "deploy", "docs", "examples", "monitoring"] {
        // Another test may be faster.
        let _ = std::os::unix::fs::symlink(Path::new(ROOT).join(name), desk.join(name));
    }
    Ok(desk)
}

/// Runs a line of a page as a person would, with our programs on the `PATH`.
pub async fn shell(cluster: &Cluster, line: &str) -> Result<String> {
    let folder = |path: &Path| path.parent().map(|folder| folder.display().to_string());
    let ours = folder(Path::new(BINARY)).context("no folder")?;
    let kubectl = folder(cluster.kubectl_path()).context("no folder")?;
    // `grep` only picks lines, and may find none; otherwise all parts of a pipe have to work.
    let script = if line.contains("| grep") {
        format!("{line}\nexit ${{PIPESTATUS[0]}}")
    } else {
        format!("set -o pipefail\n{line}")
    };
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(desk(cluster)?)
        .env("PATH", format!("{kubectl}:{ours}:{}", std::env::var("PATH")?))
        .env("KUBECONFIG", cluster.admin_kubeconfig())
        .env("KUBECACHEDIR", cluster.folder().join("kubectl-cache"))
        .kill_on_drop(true)
        .output()
        .await?;
    let Output { status, stdout, stderr } = output;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.success(), "{status}: {stdout}{stderr}");
    Ok(stdout.into_owned())
}
