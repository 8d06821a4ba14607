//! The set, and how it is told.

use crate::probe::Probe;
use crate::screen::Screen;
use crate::table;
use anyhow::{Context as _, Result, ensure};
use cluster::{Provider, eventually};
use crds::NetIPAllocationStatus;
use playground::{Playground, Replica};
use serde_json::Value;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Where the workloads are.
pub const NAMESPACE: &str = "demo";
/// How long a leader that is killed is waited for.
const LEASE_SECONDS: &str = "8";
const ADDRESSES: [&str; 3] = ["203.0.113.10", "203.0.113.11", "203.0.113.12"];

/// What is played, and by whom.
pub struct Story {
    pub screen: Screen,
    pub ground: Playground,
    pub controllers: Vec<Replica>,
    pub webhooks: Vec<Replica>,
    pub probe: Probe,
    binary: PathBuf,
    speed: f64,
    table: JoinHandle<()>,
}

impl Drop for Story {
    fn drop(&mut self) {
        self.table.abort();
    }
}

/// Says what is being waited for, and how long that takes as a rule.
struct Preparations<'s> {
    screen: &'s Screen,
    began: Instant,
    done: f64,
    whole: f64,
}

impl Preparations<'_> {
    async fn step<T>(&mut self, what: &str, usual: f64, work: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.whole - self.done;
        self.screen.say(&format!("{what} (everything is up in about {left:.0} s)"))?;
        let made = work.await.with_context(|| what.to_owned())?;
        self.done += usual;
        Ok(made)
    }
}

impl Story {
    /// Starts everything that an installation has.
    pub async fn begin(screen: &Screen, binary: &Path, provider: Provider, speed: f64) -> Result<Self> {
        screen.act("An installation, on this machine")?;
        // Seconds that the steps below take on two cores.
        let mut wait = Preparations { screen, began: Instant::now(), done: 0.0, whole: 26.0 };
        let control_plane = "etcd, kube-apiserver, controller-manager and scheduler: the real ones";
        let ground = wait.step(control_plane, 14.0, Playground::start(binary, provider)).await?;
        let table = tokio::spawn(table::keep(ground.cluster.client(), NAMESPACE, screen.clone()));
        wait.step("six simulated nodes, their machines, three reserved addresses", 4.0, machines(&ground))
            .await?;
        let controllers = wait.step("two replicas of the controller", 4.0, controllers(&ground)).await?;
        let webhooks = wait.step("two replicas of the webhook", 4.0, webhooks(&ground)).await?;
        ground.kubectl(&["create", "namespace", NAMESPACE]).await?;
        let probe = Probe::start(&ground);
        let took = wait.began.elapsed().as_secs_f64();
        let screen = screen.clone();
        let story =
            Self { screen, ground, controllers, webhooks, probe, binary: binary.into(), speed, table };
        story
            .screen
            .checked(&format!("up after {took:.0} s; each runs under the role that deploy/ gives it"))?;
        Ok(story)
    }

    /// Time to read.
    pub async fn pause(&self) {
        if self.screen.is_watched() {
            tokio::time::sleep(Duration::from_secs_f64(1.5 / self.speed)).await;
        }
    }

    /// A manifest for the cloud that is played.
    pub fn manifest(&self, text: &str) -> String {
        text.replace("provider: gcp", &format!("provider: {}", self.ground.cloud()))
    }

    /// Shows and runs `kubectl netip`.
    pub async fn netip(&self, args: &str) -> Result<String> {
        self.screen.command(&format!("kubectl netip {args}"))?;
        let said = run(&self.binary.with_file_name("kubectl-netip"), args, &self.ground).await?;
        self.screen.output(&said)?;
        Ok(said)
    }

    /// Shows and runs our own binary, as administrator.
    pub async fn own(&self, args: &str) -> Result<String> {
        self.screen.command(&format!("ip-address-controller {args}"))?;
        let said = run(&self.binary, args, &self.ground).await?;
        self.screen.output(&said)?;
        Ok(said)
    }

    pub async fn status(&self, allocation: &str) -> Result<NetIPAllocationStatus> {
        let object = self.ground.json(&["get", "nia", allocation]).await?;
        Ok(serde_json::from_value(object["status"].clone()).unwrap_or_default())
    }

    /// The node that has an address by the cloud's own word.
    pub async fn holder(&self, address: &str) -> Result<Option<String>> {
        let holds = self.ground.sim.snapshot().holds;
        let Some(hold) = holds.get(&address.parse::<IpAddr>()?) else { return Ok(None) };
        let nodes = self.ground.json(&["get", "nodes"]).await?;
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        let node = nodes.iter().find(|node| node["spec"]["providerID"] == hold.holder.as_str());
        Ok(node.and_then(|node| node["metadata"]["name"].as_str()).map(str::to_owned))
    }

    /// Waits until an address is on another node; which one?
    pub async fn moved(&self, address: &str, from: &str) -> Result<String> {
        eventually(&format!("{address} to leave {from}"), async || {
            let to = self.holder(address).await?.context("it is on its way")?;
            ensure!(to != from, "it is there: {:?}", self.status("voice").await?.ips);
            Ok(to)
        })
        .await
    }

    /// Waits until an allocation is Ready, its addresses are on nodes by the cloud's word as by its status,
    /// and its pods run there and nowhere else.
    pub async fn settled(&self, allocation: &str, app: &str, pods: usize) -> Result<Vec<String>> {
        eventually(&format!("{allocation} to settle"), async || {
            let status = self.status(allocation).await?;
            let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            let moving = status.ips.iter().any(|ip| ip.operation.is_some());
            ensure!(ready && !moving, "{:?}", status.conditions);
            let mut nodes = Vec::new();
            for ip in &status.ips {
                let node = self.holder(&ip.address).await?;
                ensure!(node.is_some() && node == ip.node, "{} is on {node:?} by the cloud", ip.address);
                nodes.extend(node);
            }
            let running = self.pods(app).await?;
            ensure!(running.len() == pods, "{} pods of {app} are ready", running.len());
            let stray = running.iter().find(|(_, node)| !nodes.contains(node));
            ensure!(stray.is_none(), "{stray:?} is not on a node of {allocation}");
            Ok(nodes)
        })
        .await
    }

    /// Names and nodes of the pods of an app that are ready and stay.
    pub async fn pods(&self, app: &str) -> Result<Vec<(String, String)>> {
        let pods = self.ground.json(&["get", "pods", "-n", NAMESPACE, "-l", &format!("app={app}")]).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let ready = pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null() && playground::is_ready(pod));
        Ok(ready.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect())
    }

    /// Calls so far that change something in the cloud: by whom, what, on what, and what was answered.
    pub fn cloud_writes(&self) -> Vec<String> {
        let calls = self.ground.sim.events(0).into_iter().filter(|event| event.kind == sim::Kind::Call);
        let writes = calls.filter(|event| event.mutating);
        writes
            .map(|e| format!("{} {} {} {:?} {:?}", e.caller, e.action, e.target, e.status, e.code))
            .collect()
    }

    /// How to play on.
    pub fn stays(&self) -> Result<()> {
        let (config, kubectl) = (self.ground.kubeconfig(), self.ground.cluster.kubectl_path());
        let folder = self.binary.parent().unwrap_or(Path::new("."));
        self.screen.act("It stays up: your turn. Ctrl-C removes everything")?;
        for line in [
            format!("export KUBECONFIG={}", config.display()),
            format!(
                "export PATH={}:{}:$PATH",
                kubectl.parent().unwrap_or(kubectl).display(),
                folder.display()
            ),
            "kubectl get nia,nodes,pods -A        kubectl netip status        kubectl netip top".to_owned(),
        ] {
            self.screen.say(&line)?;
        }
        Ok(())
    }
}

async fn run(program: &Path, args: &str, ground: &Playground) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(args.split(' ')).env("KUBECONFIG", ground.kubeconfig()).output().await?;
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} {args}: {said}{error}", program.display());
    Ok(said.into_owned())
}

async fn machines(ground: &Playground) -> Result<()> {
    ADDRESSES.iter().try_for_each(|address| ground.add_address(address))?;
    let pool = [("pool", "media")];
    let media = ["node-1", "node-2", "node-3", "node-4", "node-5"];
    let media = media.iter().enumerate().map(|(zone, name)| (*name, zone, pool.as_slice()));
    for (name, zone, labels) in media.chain([("office-1", 0, [].as_slice())]) {
        ground.add_node(name, zone, labels).await?;
    }
    Ok(())
}

async fn controllers(ground: &Playground) -> Result<Vec<Replica>> {
    let mut replicas = Vec::new();
    for name in ["controller-a", "controller-b"] {
        let replica = ground.controller(name, &[("LEASE_DURATION", LEASE_SECONDS)]).await?;
        replica.ready().await?;
        replicas.push(replica);
    }
    Ok(replicas)
}

async fn webhooks(ground: &Playground) -> Result<Vec<Replica>> {
    let mut replicas = Vec::new();
    for name in ["webhook-a", "webhook-b"] {
        let replica = ground.webhook(name).await?;
        replica.ready().await?;
        replicas.push(replica);
    }
    Ok(replicas)
}
