//! The task that plays all nodes: one owner of the state, fed by two watches, commands and a clock.

use super::pods::{self, BoundPod, LeanPod, Next};
use super::spec::NodeSpec;
use anyhow::Result;
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::time::{DelayQueue, delay_queue};

/// Requests under way at once; the API server refuses more than a few hundred.
const CONCURRENCY: usize = 48;
/// Kubelets do not beat in time: in each part of the period, a part of the nodes does.
const SLICES: u32 = 20;
const RETRY: Duration = Duration::from_millis(500);
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    NotReady,
    Silent,
}

/// What the owner of the nodes asks for.
pub enum Command {
    Play(Box<NodeSpec>),
    Health(String, Health),
    Forget(String),
}

struct PlayedNode {
    spec: NodeSpec,
    health: Health,
    /// UID of the registered object, once seen.
    uid: Option<String>,
    /// `status` of its Ready condition as last seen.
    reported: Option<String>,
}

/// Something that is due now or was tried and failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task {
    ReportNode(String),
    Pod(String),
}

pub struct Player {
    client: Client,
    heartbeat: Duration,
    nodes: HashMap<String, PlayedNode>,
    /// Bound pods by UID, and the UIDs of each node.
    pods: HashMap<String, BoundPod>,
    pods_of: HashMap<String, HashSet<String>>,
    due: DelayQueue<Task>,
    scheduled: HashMap<Task, delay_queue::Key>,
    slots: Arc<Semaphore>,
    failed: mpsc::UnboundedSender<Task>,
    failures: mpsc::UnboundedReceiver<Task>,
    next_ip: u32,
}

impl Player {
    pub fn new(client: Client, heartbeat: Duration) -> Self {
        let (failed, failures) = mpsc::unbounded_channel();
        Self {
            client,
            heartbeat,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            pods_of: HashMap::new(),
            due: DelayQueue::new(),
            scheduled: HashMap::new(),
            slots: Arc::new(Semaphore::new(CONCURRENCY)),
            failed,
            failures,
            next_ip: 0,
        }
    }

    pub async fn run(mut self, mut commands: mpsc::UnboundedReceiver<(Command, oneshot::Sender<()>)>) {
        let mut node_events = std::pin::pin!(watch_nodes(self.client.clone()));
        let mut pod_events = std::pin::pin!(watch_pods(self.client.clone()));
        let mut beats = tokio::time::interval(self.heartbeat / SLICES);
        let mut beat: u32 = 0;
        let mut relisted_pods = HashSet::new();
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some((command, done)) => {
                        self.obey(command);
                        let _ = done.send(());
                    }
                    None => return,
                },
                Some(event) = node_events.next() => self.on_node(event),
                Some(event) = pod_events.next() => self.on_pod(event, &mut relisted_pods),
                Some(task) = self.due.next(), if !self.due.is_empty() => {
                    let task = task.into_inner();
                    self.scheduled.remove(&task);
                    self.perform(task);
                }
                Some(task) = self.failures.recv() => self.schedule(task, RETRY),
                _ = beats.tick() => {
                    beat = beat.wrapping_add(1);
                    self.renew_leases(beat % SLICES);
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Play(spec) => {
                let node = PlayedNode { health: Health::Ready, uid: None, reported: None, spec: *spec };
                self.nodes.insert(node.spec.name.clone(), node);
            }
            Command::Forget(name) => drop(self.nodes.remove(&name)),
            Command::Health(name, health) => {
                let Some(node) = self.nodes.get_mut(&name) else {
                    return;
                };
                node.health = health;
                self.perform(Task::ReportNode(name.clone()));
                if health == Health::Ready {
                    for uid in self.pods_of.get(&name).into_iter().flatten().cloned().collect::<Vec<_>>() {
                        self.consider_pod(&uid);
                    }
                }
            }
        }
    }

    fn on_node(&mut self, event: watcher::Event<Node>) {
        let (watcher::Event::Apply(node) | watcher::Event::InitApply(node)) = event else {
            return;
        };
        let name = node.name_any();
        let Some(played) = self.nodes.get_mut(&name) else {
            return;
        };
        played.uid = node.metadata.uid;
        played.reported = node
            .status
            .and_then(|status| status.conditions)
            .and_then(|conditions| conditions.into_iter().find(|c| c.type_ == "Ready"))
            .map(|ready| ready.status);
        if played.out_of_date() {
            self.perform(Task::ReportNode(name));
        }
    }

    fn on_pod(&mut self, event: watcher::Event<LeanPod>, relisted: &mut HashSet<String>) {
        match event {
            watcher::Event::Init => relisted.clear(),
            watcher::Event::InitApply(pod) => {
                relisted.extend(pod.metadata.uid.clone());
                self.keep_pod(pod);
            }
            watcher::Event::InitDone => {
                let gone: Vec<_> = self.pods.keys().filter(|uid| !relisted.contains(*uid)).cloned().collect();
                for uid in &gone {
                    self.drop_pod(uid);
                }
                relisted.clear();
            }
            watcher::Event::Apply(pod) => self.keep_pod(pod),
            watcher::Event::Delete(pod) => self.drop_pod(pod.metadata.uid.as_deref().unwrap_or_default()),
        }
    }

    fn keep_pod(&mut self, pod: LeanPod) {
        let Some(pod) = BoundPod::new(pod) else { return };
        let uid = pod.uid.clone();
        self.pods_of.entry(pod.node.clone()).or_default().insert(uid.clone());
        self.pods.insert(uid.clone(), pod);
        self.consider_pod(&uid);
    }

    fn drop_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        if let Some(pods) = self.pods_of.get_mut(&pod.node) {
            pods.remove(uid);
        }
    }

    /// Does what a pod needs now, or sets the clock for it.
    fn consider_pod(&mut self, uid: &str) {
        match self.pods.get(uid).map_or(Next::Nothing, BoundPod::next) {
            Next::Nothing => {}
            Next::Run => self.perform(Task::Pod(uid.to_owned())),
            Next::EndAt(time) => {
                let wait = Duration::try_from(time - Timestamp::now()).unwrap_or_default();
                self.schedule(Task::Pod(uid.to_owned()), wait);
            }
        }
    }

    fn schedule(&mut self, task: Task, wait: Duration) {
        if let Some(key) = self.scheduled.get(&task) {
            self.due.reset(key, wait);
        } else {
            let key = self.due.insert(task.clone(), wait);
            self.scheduled.insert(task, key);
        }
    }

    /// Carries out what the task asks for *now*; what has changed since it was put down counts.
    fn perform(&mut self, task: Task) {
        match &task {
            Task::ReportNode(name) => {
                let Some(node) = self.nodes.get(name).filter(|node| node.out_of_date()) else {
                    return;
                };
                let patch = node.spec.status(node.health == Health::Ready, &Timestamp::now().to_string());
                let (api, name) = (Api::<Node>::all(self.client.clone()), name.clone());
                self.spawn(task, async move {
                    api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
                    Ok(())
                });
            }
            Task::Pod(uid) => {
                let Some(pod) = self.pods.get(uid).cloned() else {
                    return;
                };
                if self.nodes.get(&pod.node).is_none_or(|node| node.health != Health::Ready) {
                    return;
                }
                let client = self.client.clone();
                match pod.next() {
                    Next::Nothing => {}
                    Next::Run => {
                        self.next_ip += 1;
                        let [_, a, b, c] = self.next_ip.to_be_bytes();
                        let ip = format!("10.{a}.{b}.{c}");
                        self.spawn(task, async move { pod.run(&client, ip).await });
                    }
                    Next::EndAt(time) if time <= Timestamp::now() => {
                        self.spawn(task, async move { pod.end(&client).await });
                    }
                    Next::EndAt(_) => self.consider_pod(&pod.uid),
                }
            }
        }
    }

    /// Runs a request beside the others; a failed one comes back as a task.
    fn spawn(&self, task: Task, request: impl Future<Output = Result<()>> + Send + 'static) {
        let (slots, failed) = (self.slots.clone(), self.failed.clone());
        tokio::spawn(async move {
            let _slot = slots.acquire().await;
            if let Err(error) = request.await {
                tracing::debug!(?task, "will be tried again: {error:#}");
                let _ = failed.send(task);
            }
        });
    }

    /// One heartbeat of every node that is not silent. A failure is not repeated: the next beat comes.
    fn renew_leases(&self, slice: u32) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        for (name, node) in self.nodes.iter().filter(|(name, _)| slice_of(name) == slice) {
            let (Some(uid), true) = (&node.uid, node.health != Health::Silent) else {
                continue;
            };
            let whole = lease(name, uid, self.heartbeat);
            let (leases, name, slots) = (leases.clone(), name.clone(), self.slots.clone());
            tokio::spawn(async move {
                let _slot = slots.acquire().await;
                let beat = json!({ "spec": whole["spec"] });
                let mut renewed = leases.patch(&name, &PatchParams::default(), &Patch::Merge(beat)).await;
                if matches!(&renewed, Err(kube::Error::Api(status)) if status.code == 404) {
                    let params = PatchParams::apply("test-kit").force();
                    renewed = leases.patch(&name, &params, &Patch::Apply(whole)).await;
                }
                if let Err(error) = renewed {
                    tracing::debug!(name, "heartbeat failed: {error}");
                }
            });
        }
    }
}

fn slice_of(name: &str) -> u32 {
    name.bytes().map(u32::from).sum::<u32>() % SLICES
}

impl PlayedNode {
    /// Whether the cluster is to be told something else than it has.
    fn out_of_date(&self) -> bool {
        let reported = self.reported.as_deref();
        match self.health {
            Health::Ready => reported != Some("True"),
            Health::NotReady => reported != Some("False"),
            Health::Silent => false,
        }
    }
}

fn lease(node: &str, uid: &str, heartbeat: Duration) -> serde_json::Value {
    // metav1.MicroTime takes exactly six digits.
    let now = format!("{:.6}", Timestamp::now());
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid }],
        },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": (heartbeat.as_secs() * 4).max(1),
            "renewTime": now,
        },
    })
}

fn watch_nodes(client: Client) -> impl Stream<Item = watcher::Event<Node>> {
    survive(watcher(Api::<Node>::all(client), watcher::Config::default()))
}

fn watch_pods(client: Client) -> impl Stream<Item = watcher::Event<LeanPod>> {
    let api = Api::<LeanPod>::all_with(client, &pods::resource());
    survive(watcher(api, watcher::Config::default().fields("spec.nodeName!=")))
}

/// A watch that goes on through everything; the API server is killed for sport here.
fn survive<K: Send>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send,
) -> impl Stream<Item = watcher::Event<K>> {
    events.default_backoff().filter_map(async |event| match event {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::debug!("watch interrupted: {error}");
            None
        }
    })
}
