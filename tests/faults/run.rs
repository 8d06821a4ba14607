//! One run of a workload: a first attach, with or without a proxy in between.

use anyhow::{Context as _, Result, ensure};
use cluster::{Cluster, NodeSpec, Process, Provider, eventually};
use faults::{Failure, History, Plan, Proxy, Scope, Violation};
use serde_json::{Value, json};
use sim::{Sim, World};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

const NAMESPACE: &str = "ip-address-controller";
const REPLAY: &str = "cargo test --workspace --test faults -- by_plan";

/// How it ended, free of names.
#[derive(Debug, PartialEq)]
pub struct End {
    /// The node's marks: ready, and the right address.
    pub marked: (bool, bool),
    /// The address is on the node's instance.
    pub attached: bool,
    /// Conditions with their status and reason.
    pub conditions: Vec<String>,
    pub finalizer: bool,
}

/// A workload with nodes, an address and a cloud of its own; runs share a cluster one after the other.
pub struct Run<'c> {
    cluster: &'c Cluster,
    pub sim: Sim,
    pub proxy: Option<Proxy>,
    pub name: String,
    pub address: IpAddr,
    nodes: Vec<NodeSpec>,
    kubeconfig: PathBuf,
    env: Vec<(&'static str, String)>,
    process: Process,
}

static ADDRESSES: AtomicU8 = AtomicU8::new(1);

impl<'c> Run<'c> {
    /// Starts a controller; its requests go through a proxy that follows the plan, if there is one.
    pub async fn start(cluster: &'c Cluster, name: &str, plan: Option<Plan>) -> Result<Self> {
        let kubeconfig = account(cluster).await?;
        let sim = Sim::start(World::default()).await?;
        let address = IpAddr::from([203, 0, 113, ADDRESSES.fetch_add(1, Ordering::Relaxed)]);
        sim.add_address(sim::Cloud::Gcp, address)?;
        let (mut env, mut file) = (sim.environment(name), kubeconfig);
        let proxy = match plan {
            None => None,
            Some(plan) => {
                let mut proxy = Proxy::new(plan);
                env = proxy.clouds(&sim, name).await?;
                file = proxy.api_server(&file, name).await?;
                Some(proxy)
            }
        };
        let nodes: Vec<NodeSpec> = (1..=2)
            .map(|n| NodeSpec::new(Provider::Gcp, &format!("{name}-{n}"), n).label("pool", name))
            .collect();
        for node in &nodes {
            sim.add_instance(&node.provider_id)?;
            cluster.nodes().create(node.clone()).await?;
        }
        let process = launch(cluster, name, &file, &env)?;
        Ok(Self {
            cluster,
            sim,
            proxy,
            name: name.to_owned(),
            address,
            nodes,
            kubeconfig: file,
            env,
            process,
        })
    }

    /// A NetIPAllocation for the address.
    pub async fn allocate(&self) -> Result<()> {
        let manifest = json!({
            "apiVersion": "netinfra.darkbrains.com/v1alpha1",
            "kind": "NetIPAllocation",
            "metadata": { "name": self.name },
            "spec": {
                "reservedIPs": [self.address],
                "nodeSelector": { "pool": self.name },
                "cloud": { "provider": "gcp" },
                "reconcileInterval": 5,
            },
        });
        self.cluster.kubectl_with_input(&["apply", "-f", "-"], &manifest.to_string()).await?.ok()?;
        Ok(())
    }

    async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.cluster.kubectl(&[args, &["-o", "json"]].concat()).await?.ok()?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until all is settled; kills and restarts the process where the plan says so.
    pub async fn settles(&mut self) -> Result<End> {
        let mut proxy = self.proxy.take();
        let ended = loop {
            let crash = async {
                match &mut proxy {
                    Some(proxy) => proxy.crash().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = self.settled() => break ended,
                Some(crash) = crash => {
                    self.process.kill().await?;
                    println!("killed at {} {} ({:?})", crash.seen.name.verb, crash.seen.name.object, crash.when);
                    self.process = launch(self.cluster, &self.name, &self.kubeconfig, &self.env)?;
                }
            }
        };
        self.proxy = proxy;
        ended
    }

    async fn settled(&self) -> Result<End> {
        eventually(&format!("{} to settle", self.name), async || {
            let end = self.end().await?;
            let ready = end.conditions.iter().any(|condition| condition.starts_with("Ready=True"));
            ensure!(
                ready && end.attached && end.marked == (true, true),
                "{end:?}\n{}",
                self.process.log_tail()
            );
            Ok(end)
        })
        .await
    }

    async fn end(&self) -> Result<End> {
        let object = self.json(&["get", "netipallocation", &self.name]).await?;
        let holder = self.sim.snapshot().holds.get(&self.address).map(|hold| hold.holder.clone());
        let node = self.nodes.iter().find(|node| Some(&node.provider_id) == holder.as_ref());
        let marks = match node {
            Some(node) => self.json(&["get", "node", &node.name]).await?["metadata"].clone(),
            None => Value::Null,
        };
        let marked = marks["annotations"]["netinfra.darkbrains.com/reserved-ip"].as_str();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(End {
            marked: (marks["labels"]["ip.ready"] == "true", marked == Some(&self.address.to_string())),
            attached: node.is_some(),
            conditions: conditions
                .iter()
                .map(|one| {
                    format!("{}={} {}", text(&one["type"]), text(&one["status"]), text(&one["reason"]))
                })
                .collect(),
            finalizer: object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty()),
        })
    }

    /// What is ours in this run, and what is expected at its end.
    pub fn scope(&self) -> Scope {
        let scope = Scope::default().caller(&self.name).allocation(&self.name, [self.address]);
        let scope = self.nodes.iter().fold(scope, |scope, node| scope.instance(&node.provider_id));
        let eligible = Some(scope.instances.clone());
        let moves = Some(std::collections::BTreeMap::default());
        Scope { eligible, moves, quiet: Duration::from_secs(3), ended: true, ..scope }
    }

    /// What happened, by the words of the cloud and of the API server.
    pub fn history(&self) -> Result<History> {
        let history = History::of(self.scope(), &self.sim, &self.cluster.audit_log())?;
        let calls = history.our_calls().count();
        ensure!(calls > 0, "the history has no call of ours: nothing would be checked");
        Ok(history)
    }

    /// What must never happen, and did. Other runs of the cluster have their own nodes and allocations.
    pub fn violations(&self) -> Result<Vec<Violation>> {
        let history = self.history()?;
        Ok(faults::check(&history.only(|name| name.starts_with(&self.name))))
    }

    /// Checks the end; what is wrong is kept as a plan that can be played again.
    pub async fn check(&self, wrong: Vec<String>) -> Result<()> {
        // What was going to happen a moment later has happened.
        tokio::time::sleep(LONGER_THAN_AN_AUDIT).await;
        let wrong: Vec<String> =
            wrong.into_iter().chain(self.violations()?.iter().map(ToString::to_string)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let told = wrong.join("\n");
        if let Some(proxy) = &self.proxy {
            let file = std::env::temp_dir().join(format!("fault-plan-{}.json", self.name));
            let replay = format!("FAULT_PLAN={} {REPLAY}", file.display());
            let failure: Failure = proxy.failure("first attach", wrong, &replay);
            failure.write(&file)?;
            anyhow::bail!("{told}\nplay it again: {replay}");
        }
        anyhow::bail!("{told}");
    }

    /// Ends the controller, so that the next run of the cluster can lead at once.
    pub async fn stop(self) -> Result<()> {
        self.process.stop().await?;
        self.cluster.kubectl(&["delete", "netipallocation", &self.name, "--wait=false"]).await?.ok()?;
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        let args = ["patch", "netipallocation", &self.name, "--type=merge", "-p", patch];
        self.cluster.kubectl(&args).await?;
        Ok(())
    }
}

/// The kubeconfig of the controller's account, with its namespace and role.
async fn account(cluster: &Cluster) -> Result<PathBuf> {
    // There is nothing to say when it is there already.
    let _ = cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let role = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/controller.yaml");
    cluster.kubectl(&["apply", "-f", role]).await?.ok()?;
    cluster.service_account_kubeconfig(NAMESPACE, "ip-address-controller").await.context("no account")
}

fn launch(
    cluster: &Cluster,
    name: &str,
    kubeconfig: &std::path::Path,
    cloud: &[(&'static str, String)],
) -> Result<Process> {
    let (health, metrics) = (cluster::free_port()?, cluster::free_port()?);
    let mut env = vec![
        ("KUBECONFIG", kubeconfig.display().to_string()),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("POD_NAME", name.to_owned()),
        ("LEASE_DURATION", "4".to_owned()),
        ("HEALTH_ADDR", format!("127.0.0.1:{health}")),
        ("METRICS_PORT", metrics.to_string()),
        ("CLUSTER_NAME", "test".to_owned()),
    ];
    env.extend(cloud.iter().cloned());
    let binary = env!("CARGO_BIN_EXE_ip-address-controller").as_ref();
    cluster.launch(name, binary, &["controller"], env)
}

/// How long a run is looked at when it has settled: longer than an audit.
pub const LONGER_THAN_AN_AUDIT: Duration = Duration::from_secs(6);
