//! The cluster: etcd, API server, controller-manager and scheduler, started in order and watched.

use crate::binaries::{Binaries, Version};
use crate::nodes::Nodes;
use crate::pki::{Credentials, Pki, kubeconfig};
use crate::process::{Process, Program, Reaper};
use crate::{ports, wait::eventually};
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(90);

/// Requests that are worth looking at later: everything but reads of the control plane's own parts and
/// the nodes' heartbeats.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "None", "namespaces": ["kube-node-lease"], "resources": [{"group": "coordination.k8s.io"}]},
    {"level": "None", "userGroups": ["system:nodes"]},
    {"level": "None", "users": ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"], "verbs": ["get", "list", "watch"]},
    {"level": "Metadata"}
  ]
}"#;

/// What can be set before a cluster starts.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    version: Version,
    node_grace: Duration,
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
        let plan = Plan::new(&folder, binaries, &self)?;
        let components = plan.components(&reaper)?;
        components.etcd.start().await?;
        components.apiserver.start().await?;
        tokio::try_join!(components.controller_manager.start(), components.scheduler.start())?;
        let admin = plan.kubeconfig("admin", &["system:masters"])?;
        let kit = plan.client("test-kit", &["system:masters"]).await?;
        let client = client(&admin, plan.url()).await?;
        wait_for_default_service_account(&client).await?;
        let nodes = Nodes::start(kit, self.node_grace / 4);
        Ok(Cluster { nodes, client, components, plan, folder, _reaper: reaper })
    }
}

/// A running control plane. Dropping it ends all its processes and removes its folder.
pub struct Cluster {
    nodes: Nodes,
    client: Client,
    components: Components,
    plan: Plan,
    folder: PathBuf,
    _reaper: Arc<Reaper>,
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
        self.plan.settings.version
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
        self.plan.url()
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
        let config = kubeconfig(&self.url(), &self.plan.pki.ca_pem(), &Credentials::Token(token));
        std::fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
        Ok(file)
    }

    /// The kubectl of this cluster.
    pub fn kubectl_path(&self) -> &Path {
        &self.plan.binaries.kubectl
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

    /// Runs kubectl as administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput> {
        self.kubectl_with_input(args, "").await
    }

    /// Runs kubectl as administrator with something on its standard input.
    pub async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<KubectlOutput> {
        use tokio::io::AsyncWriteExt as _;
        let mut child = tokio::process::Command::new(&self.plan.binaries.kubectl)
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

struct Components {
    // Fields are dropped in this order: users before what they use.
    scheduler: Component,
    controller_manager: Component,
    apiserver: Component,
    etcd: Component,
}

/// One process of the control plane and the way to see that it works.
pub struct Component {
    process: Process,
    probe: Probe,
}

struct Probe {
    url: String,
    path: &'static str,
    config: Option<Kubeconfig>,
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
            None => Client::try_from(Config::new(self.url.parse()?))?,
        };
        let request = http_get(self.path)?;
        tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await??;
        Ok(())
    }
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

async fn client(config: &Kubeconfig, url: String) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(config.clone(), &KubeConfigOptions::default()).await?;
    config.cluster_url = url.parse()?;
    Ok(Client::try_from(config)?)
}

async fn wait_for_default_service_account(client: &Client) -> Result<()> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    eventually("the default service account", async || Ok(api.get("default").await.map(drop)?)).await
}

/// Folder, ports, keys and command lines of one cluster.
struct Plan {
    folder: PathBuf,
    binaries: Binaries,
    settings: ClusterBuilder,
    pki: Pki,
    etcd: u16,
    apiserver: u16,
    controller_manager: u16,
    scheduler: u16,
}

impl Plan {
    fn new(folder: &Path, binaries: Binaries, settings: &ClusterBuilder) -> Result<Self> {
        std::fs::write(folder.join("audit-policy.json"), AUDIT_POLICY)?;
        Ok(Self {
            pki: Pki::create(folder)?,
            folder: folder.to_owned(),
            binaries,
            settings: settings.clone(),
            etcd: ports::free()?,
            apiserver: ports::free()?,
            controller_manager: ports::free()?,
            scheduler: ports::free()?,
        })
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver)
    }

    fn components(&self, reaper: &Arc<Reaper>) -> Result<Components> {
        let admin = self.kubeconfig("admin", &["system:masters"])?;
        let component = |name, path: &Path, args, probe| Component {
            process: Process::new(
                Program {
                    name,
                    path: path.to_owned(),
                    args,
                    env: Vec::new(),
                    log: self.folder.join(format!("{name}.log")),
                },
                reaper.clone(),
            ),
            probe,
        };
        let probe = |port, path| Probe {
            url: format!("https://127.0.0.1:{port}"),
            path,
            config: Some(admin.clone()),
        };
        let etcd_probe =
            Probe { url: format!("http://127.0.0.1:{}", self.etcd), path: "/health", config: None };
        self.kubeconfig("system:kube-controller-manager", &[])?;
        self.kubeconfig("system:kube-scheduler", &[])?;
        let bin = &self.binaries;
        Ok(Components {
            etcd: component("etcd", &bin.etcd, self.etcd_args()?, etcd_probe),
            apiserver: component(
                "kube-apiserver",
                &bin.kube_apiserver,
                self.apiserver_args(),
                probe(self.apiserver, "/readyz"),
            ),
            controller_manager: component(
                "kube-controller-manager",
                &bin.kube_controller_manager,
                self.controller_manager_args(),
                probe(self.controller_manager, "/healthz"),
            ),
            scheduler: component(
                "kube-scheduler",
                &bin.kube_scheduler,
                self.scheduler_args(),
                probe(self.scheduler, "/readyz"),
            ),
        })
    }

    fn etcd_args(&self) -> Result<Vec<String>> {
        let url = format!("http://127.0.0.1:{}", self.etcd);
        let peer = format!("http://127.0.0.1:{}", ports::free()?);
        Ok(vec![
            format!("--data-dir={}", self.path("etcd")),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ])
    }

    fn apiserver_args(&self) -> Vec<String> {
        let (key, public_key) =
            (self.pki.service_account_key_file(), self.pki.service_account_public_key_file());
        let mut args = self.serving_args(self.apiserver);
        args.extend([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--allow-privileged=true".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", public_key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            format!("--audit-policy-file={}", self.path("audit-policy.json")),
            format!("--audit-log-path={}", self.path("audit.log")),
            // Tests restart it; nobody is behind a load balancer that would have to be told first.
            "--shutdown-delay-duration=0s".into(),
        ]);
        args
    }

    fn controller_manager_args(&self) -> Vec<String> {
        let mut args = self.serving_args(self.controller_manager);
        args.extend(self.kubeconfig_args("system:kube-controller-manager"));
        args.extend([
            format!("--root-ca-file={}", self.pki.ca_file().display()),
            format!("--service-account-private-key-file={}", self.pki.service_account_key_file().display()),
            "--use-service-account-credentials=true".into(),
            "--node-monitor-period=1s".into(),
            format!("--node-monitor-grace-period={}s", self.settings.node_grace.as_secs()),
        ]);
        args
    }

    fn scheduler_args(&self) -> Vec<String> {
        let mut args = self.serving_args(self.scheduler);
        args.extend(self.kubeconfig_args("system:kube-scheduler"));
        args
    }

    fn serving_args(&self, port: u16) -> Vec<String> {
        let (cert, key) = self.pki.server_files();
        let ca = self.pki.ca_file();
        vec![
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", cert.display()),
            format!("--tls-private-key-file={}", key.display()),
            format!("--client-ca-file={}", ca.display()),
            // Without this they log "missing content for CA bundle" every few seconds.
            format!("--requestheader-client-ca-file={}", ca.display()),
            "--requestheader-allowed-names=front-proxy".into(),
        ]
    }

    fn kubeconfig_args(&self, user: &str) -> Vec<String> {
        let file = self.path(&format!("{user}.kubeconfig"));
        vec![
            format!("--kubeconfig={file}"),
            format!("--authentication-kubeconfig={file}"),
            format!("--authorization-kubeconfig={file}"),
            "--leader-elect=false".into(),
            // The defaults (20/30) are for clusters that have all day.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=1000".into(),
            // In front of an older API server they must not ask for APIs that it does not have.
            format!("--emulated-version={}", self.settings.version.minor()),
        ]
    }

    /// Writes a kubeconfig for a user and returns it.
    fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<Kubeconfig> {
        let identity = self.pki.client(user, groups)?;
        let config = kubeconfig(&self.url(), &self.pki.ca_pem(), &Credentials::Certificate(identity));
        std::fs::write(self.path(&format!("{user}.kubeconfig")), serde_json::to_vec_pretty(&config)?)?;
        Ok(serde_json::from_value(config)?)
    }

    async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        client(&self.kubeconfig(user, groups)?, self.url()).await
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}
