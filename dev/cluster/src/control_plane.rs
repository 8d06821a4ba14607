//! The cluster: etcd, API server, controller-manager and scheduler, started in order and watched.

use crate::binaries::{Binaries, Version};
use crate::component::{Component, Components, client};
use crate::layout::Layout;
use crate::nodes::Nodes;
use crate::pki::{Credentials, kubeconfig};
use crate::process::{Process, Program, Reaper};
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// What can be set before a cluster starts.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    pub(crate) version: Version,
    pub(crate) node_grace: Duration,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self { version: Version::Newest, node_grace: Duration::from_secs(10) }
    }
}

impl ClusterBuilder {
    /// Which API server to run.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// How long a node may be silent before the node lifecycle controller marks it Unknown. Heartbeats
    /// come four times as often; with hundreds of nodes ask for the 40 s that real clusters have.
    #[must_use]
    pub fn node_grace(mut self, grace: Duration) -> Self {
        self.node_grace = grace;
        self
    }

    /// Starts everything and returns when it works: API server ready, controllers running, the default
    /// service account there.
    pub async fn start(self) -> Result<Cluster> {
        let binaries = tokio::task::spawn_blocking(move || Binaries::ensure(self.version)).await??;
        let folder = tempfile::Builder::new().prefix("dev-cluster-").tempdir()?.keep();
        let reaper = Arc::new(Reaper::start(&folder)?);
        let layout = Layout::new(&folder, binaries, &self)?;
        let admin = layout.kubeconfig("admin", &["system:masters"])?;
        let components = layout.components(&admin, &reaper)?;
        components.etcd.start().await?;
        components.apiserver.start().await?;
        tokio::try_join!(components.controller_manager.start(), components.scheduler.start())?;
        let kit = layout.client("test-kit", &["system:masters"]).await?;
        let client = client(&admin, layout.url()).await?;
        wait_for_default_service_account(&client).await?;
        let nodes = Nodes::start(kit, self.node_grace / 4);
        Ok(Cluster { nodes, client, components, layout, folder, reaper })
    }
}

/// A running control plane. Dropping it ends all its processes and removes its folder.
pub struct Cluster {
    nodes: Nodes,
    client: Client,
    components: Components,
    layout: Layout,
    folder: PathBuf,
    reaper: Arc<Reaper>,
}

impl Cluster {
    /// Starts a cluster of the newest version with the usual settings.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Settings for a cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The simulated nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Which version the API server has.
    pub fn version(&self) -> Version {
        self.layout.settings.version
    }

    /// etcd.
    pub fn etcd(&self) -> &Component {
        &self.components.etcd
    }

    /// kube-apiserver.
    pub fn apiserver(&self) -> &Component {
        &self.components.apiserver
    }

    /// kube-controller-manager.
    pub fn controller_manager(&self) -> &Component {
        &self.components.controller_manager
    }

    /// kube-scheduler.
    pub fn scheduler(&self) -> &Component {
        &self.components.scheduler
    }

    /// The folder with everything that belongs to this cluster; it goes when the cluster goes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        self.layout.url()
    }

    /// kubeconfig of the administrator.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// The API server's audit log, one JSON event a line.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// Writes a kubeconfig for a service account that exists, with a token of a day's life.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let spec = TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let api: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let token = api
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("no token for service account {namespace}/{name}"))?
            .status
            .context("the API server gave no token")?
            .token;
        let file = self.folder.join(format!("{namespace}-{name}.kubeconfig"));
        let config = kubeconfig(&self.url(), &self.layout.pki.ca_pem(), &Credentials::Token(token));
        std::fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
        Ok(file)
    }

    /// Starts a program that ends with the cluster, however that ends; its output goes to `NAME.log` in the
    /// cluster's folder.
    pub fn launch<'e>(
        &self,
        name: &str,
        path: &Path,
        args: &[&str],
        env: impl IntoIterator<Item = (&'e str, String)>,
    ) -> Result<Process> {
        let program = Program {
            name: name.to_owned(),
            path: path.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: env.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            log: self.folder.join(format!("{name}.log")),
        };
        let process = Process::new(program, Arc::clone(&self.reaper));
        process.spawn()?;
        Ok(process)
    }

    /// The kubectl of this cluster.
    pub fn kubectl_path(&self) -> &Path {
        &self.layout.binaries.kubectl
    }

    /// Installs our CRDs and waits until they are served.
    pub async fn install_crds(&self) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        for manifest in crds::manifests() {
            let name = manifest.crd.name_any();
            let params = PatchParams::apply("dev-cluster").force();
            api.patch(&name, &params, &Patch::Apply(&manifest.crd)).await?;
            eventually("the CRD to be established", async || {
                let crd = api.get(&name).await?;
                let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
                let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
                established.then_some(()).with_context(|| format!("{conditions:?}"))
            })
            .await?;
        }
        Ok(())
    }

    /// Compacts etcd's history up to now: whoever watched from an earlier version has to list anew.
    pub async fn compact(&self) -> Result<()> {
        let client = crate::component::plain_client(&self.layout.etcd_url())?;
        let ask = |path: &str, body: String| {
            http::Request::post(path).header("content-type", "application/json").body(body.into_bytes())
        };
        let range = ask("/v3/kv/range", r#"{"key":"Lw=="}"#.to_owned())?;
        let answer: serde_json::Value = serde_json::from_str(&client.request_text(range).await?)?;
        let revision = answer["header"]["revision"].as_str().context("etcd tells no revision")?.to_owned();
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        client.request_text(ask("/v3/kv/compaction", body)?).await?;
        Ok(())
    }

    /// Runs kubectl as administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput> {
        self.kubectl_with_input(args, "").await
    }

    /// Runs kubectl as administrator with something on its standard input.
    pub async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<KubectlOutput> {
        use tokio::io::AsyncWriteExt as _;
        let mut child = tokio::process::Command::new(&self.layout.binaries.kubectl)
            .args(args)
            .env("KUBECONFIG", self.admin_kubeconfig())
            // kubectl's discovery cache; ours is not to land in anybody's home.
            .env("KUBECACHEDIR", self.folder.join("kubectl-cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // kubectl may end before it has read everything.
            let _ = pipe.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        Ok(KubectlOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// What a kubectl command answered.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    /// Whether it exited with 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl KubectlOutput {
    /// Standard output of a command that has to work.
    pub fn ok(self) -> Result<String> {
        if !self.success {
            bail!("kubectl failed: {}{}", self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }
}

async fn wait_for_default_service_account(client: &Client) -> Result<()> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    eventually("the default service account", async || Ok(api.get("default").await.map(drop)?)).await
}
