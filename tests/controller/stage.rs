//! A cluster, a cloud in memory and a controller under its own role, shared by many scenes at once: each
//! has nodes, addresses and a namespace of its own.

use crate::invariants::Record;
use crate::memory::Memory;
use crate::played::Played;
use crate::scene::Scene;
use anyhow::{Context as _, Result};
use cluster::{Cluster, ClusterBuilder};
use faults::{AuditLog, Event, Others, Scope};
use ip_address_controller::controller::{self, Clients, Pulse, Settings};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use telemetry::Telemetry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "ip-address-controller";

/// A running replica of the controller.
pub struct Replica {
    pub pulse: watch::Receiver<Pulse>,
    pub telemetry: Telemetry,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Replica {
    /// As SIGTERM does.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?
    }

    /// As SIGKILL does.
    pub fn kill(self) {
        self.task.abort();
    }

    /// How it ended by itself.
    pub async fn ended(self) -> Result<()> {
        self.task.await?
    }

    pub fn is_leading(&self) -> bool {
        self.pulse.borrow().leading
    }

    pub fn metrics(&self) -> String {
        String::from_utf8(self.telemetry.text().unwrap_or_default()).unwrap_or_default()
    }
}

/// Cluster, cloud and the account under which controllers run; it stays until what happened on it is checked.
pub struct Ground {
    pub cluster: Cluster,
    pub cloud: Played,
    account: kube::Config,
    pub kubeconfig: PathBuf,
    addresses: AtomicU32,
    /// Names of the controllers, as the cloud and the lease know them.
    callers: Mutex<BTreeSet<String>>,
    /// What all scenes together have in the cloud.
    others: Mutex<Others>,
    written: Mutex<AuditLog>,
    shared: AtomicBool,
}

impl Ground {
    /// One more controller calls the cloud.
    pub fn add_caller(&self, name: &str) {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    pub fn callers(&self) -> BTreeSet<String> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written to the API server that concerns these names.
    pub fn written(&self, is_ours: &impl Fn(&str) -> bool) -> Result<Vec<Event>> {
        let mut log = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(log.events()?.iter().filter(|event| event.what.concerns(is_ours)).cloned().collect())
    }

    /// Whether its controller goes on when a scene has ended.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// What nobody may ever read anywhere: the token of the account.
    pub fn token(&self) -> Result<String> {
        let file = serde_json::to_value(Kubeconfig::read_from(&self.kubeconfig)?)?;
        let token = file.pointer("/users/0/user/token").and_then(Value::as_str);
        Ok(token.filter(|token| !token.is_empty()).context("the account has no token")?.to_owned())
    }
}

/// What tests play on.
pub struct Stage {
    ground: Arc<Ground>,
}

impl Deref for Stage {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Stage {
    /// A stage without a controller, with a cloud in memory.
    pub async fn empty() -> Result<Self> {
        Self::with(None).await
    }

    /// A stage without a controller, with a simulated cloud.
    pub async fn with(cloud: Option<cloud::Cloud>) -> Result<Self> {
        Self::on(Cluster::builder(), cloud).await
    }

    /// The same on a cluster with other settings.
    pub async fn on(cluster: ClusterBuilder, cloud: Option<cloud::Cloud>) -> Result<Self> {
        let cluster = cluster.start().await?;
        cluster.install_crds().await?;
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?.ok()?;
        let role = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/controller.yaml");
        cluster.kubectl(&["apply", "-f", role]).await?.ok()?;
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, "ip-address-controller").await?;
        let mut account = kube::Config::from_custom_kubeconfig(
            Kubeconfig::read_from(&kubeconfig)?,
            &KubeConfigOptions::default(),
        )
        .await?;
        let cloud = match cloud {
            None => Played::Memory(Memory::default()),
            Some(cloud) => Played::sim(cloud).await?,
        };
        account.default_retry = false;
        let written = AuditLog::new(&cluster.audit_log(), &Scope::default().user);
        let ground = Ground {
            cluster,
            cloud,
            account,
            kubeconfig,
            addresses: AtomicU32::new(1),
            callers: Mutex::default(),
            others: Mutex::default(),
            written: Mutex::new(written),
            shared: AtomicBool::new(false),
        };
        Ok(Self { ground: Arc::new(ground) })
    }

    /// Many tests play on it, and its controller goes on when one of them has ended.
    pub fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// What a test does without a scene, which has to say what belongs to it.
    pub fn record(&self) -> Result<Arc<Record>> {
        Record::begin(&self.ground)
    }

    /// Starts a replica.
    pub fn replica(&self, name: &str, own_node: Option<&str>, lease: Duration) -> Result<Replica> {
        self.replica_through(self.account.clone(), name, own_node, lease)
    }

    /// How the account reaches the API server.
    pub fn config(&self) -> kube::Config {
        self.account.clone()
    }

    /// Starts a replica that reaches the API server like this.
    pub fn replica_through(
        &self,
        config: kube::Config,
        name: &str,
        own_node: Option<&str>,
        lease: Duration,
    ) -> Result<Replica> {
        let mut settings = Settings::new(NAMESPACE, name, lease);
        settings.own_node = own_node.map(str::to_owned);
        // The nodes of a test are all new.
        settings.newcomer = Duration::ZERO;
        let telemetry = Telemetry::new(Some("test"))?;
        let metrics = telemetry::controller::Metrics::new(&telemetry)?;
        let (beat, pulse) = watch::channel(Pulse::default());
        let stop = CancellationToken::new();
        let connect = self.cloud.connect(name)?;
        self.add_caller(name);
        let clients = Clients { work: Client::try_from(config.clone())?, lease: Client::try_from(config)? };
        let run = controller::run(settings, clients, connect, metrics, beat, stop.clone());
        Ok(Replica { pulse, telemetry, stop, task: tokio::spawn(run) })
    }

    /// A scene with so many nodes and addresses.
    pub async fn scene(&self, name: &str, nodes: usize, addresses: usize) -> Result<Scene<'_>> {
        let addresses = (0..addresses)
            .map(|_| {
                let number = self.addresses.fetch_add(1, Ordering::Relaxed);
                IpAddr::V4(Ipv4Addr::from(0xc633_6400 + number)) // 198.51.100.0 and on
            })
            .collect::<Vec<_>>();
        let record = self.record()?;
        record.namespace(name);
        for address in &addresses {
            self.cloud.add_address(*address)?;
            record.address(*address);
        }
        let scene = Scene { stage: self, name: name.to_owned(), addresses, record };
        for number in 1..=nodes {
            scene.add_node(number).await?;
        }
        self.cluster.kubectl(&["create", "namespace", name]).await?.ok()?;
        // All of them are there when the scene begins: which one an address goes to is no matter of luck.
        for number in 1..=nodes {
            scene.can_run(number).await?;
        }
        Ok(scene)
    }
}
