//! Folder, ports, keys and command lines of one cluster.

use crate::binaries::Binaries;
use crate::component::{Component, Components, Probe, client};
use crate::control_plane::ClusterBuilder;
use crate::pki::{Credentials, Pki, kubeconfig};
use crate::ports;
use crate::process::{Process, Program, Reaper};
use anyhow::Result;
use kube::Client;
use kube::config::Kubeconfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Requests that are worth looking at later: everything but reads of the control plane's own parts and
/// the nodes' heartbeats. With what was written where tests check the order of writes: marks of nodes, what
/// allocations say, who leads, who was evicted; and with what came of it where that says more: which node a name
/// stands for, what a pod belongs to and whether it is gone, what an allocation asks for after a patch.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "None", "namespaces": ["kube-node-lease"], "resources": [{"group": "coordination.k8s.io"}]},
    {"level": "None", "userGroups": ["system:nodes"]},
    {"level": "None", "users": ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"], "verbs": ["get", "list", "watch"]},
    {"level": "RequestResponse", "verbs": ["create"], "resources": [{"group": "", "resources": ["nodes", "pods"]}]},
    {"level": "RequestResponse", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
    {"level": "RequestResponse", "verbs": ["create", "update", "patch"], "resources": [
      {"group": "netinfra.darkbrains.com", "resources": ["netipallocations"]}]},
    {"level": "Request", "verbs": ["create", "update", "patch", "delete"], "resources": [
      {"group": "", "resources": ["nodes", "pods/binding", "pods/eviction"]},
      {"group": "coordination.k8s.io", "resources": ["leases"]},
      {"group": "netinfra.darkbrains.com", "resources": ["netipallocations", "netipallocations/status"]}]},
    {"level": "Metadata"}
  ]
}"#;

/// Everything about a cluster that is decided before it starts.
pub struct Layout {
    folder: PathBuf,
    pub binaries: Binaries,
    pub settings: ClusterBuilder,
    pub pki: Pki,
    etcd: u16,
    apiserver: u16,
    controller_manager: u16,
    scheduler: u16,
}

impl Layout {
    pub fn new(folder: &Path, binaries: Binaries, settings: &ClusterBuilder) -> Result<Self> {
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

    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver)
    }

    pub fn components(&self, admin: &Kubeconfig, reaper: &Arc<Reaper>) -> Result<Components> {
        let component = |name: &str, path: &Path, args, probe| Component {
            process: Process::new(
                Program {
                    name: name.to_owned(),
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
        let etcd_probe = Probe { url: self.etcd_url(), path: "/health", config: None };
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
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<Kubeconfig> {
        let identity = self.pki.client(user, groups)?;
        let config = kubeconfig(&self.url(), &self.pki.ca_pem(), &Credentials::Certificate(identity));
        std::fs::write(self.path(&format!("{user}.kubeconfig")), serde_json::to_vec_pretty(&config)?)?;
        Ok(serde_json::from_value(config)?)
    }

    pub async fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        client(&self.kubeconfig(user, groups)?, self.url()).await
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}
