//! Workloads that allocations refer to, and their pods: who is of whom by the chain of owner UIDs, never
//! by names.

use super::lean::{self, Workload as _};
use super::progress::{Progress, cannot_be_asked_for, name_of};
use super::watch::{Change, Subject, Watched, Watching, watch};
use super::{Message, Observed, names::Names, pace::Lists};
use crds::WorkloadKind;
use kube::core::NamespaceResourceScope;
use kube::{Client, ResourceExt as _};
use plan::{WorkloadKey, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;

/// What is said of a workload itself.
#[derive(Debug)]
pub enum WorkloadChange {
    Applied {
        uid: String,
        selector: String,
        workload: plan::Workload,
    },
    Gone,
    Listed {
        present: bool,
    },
    /// A list begins.
    Begun,
    /// What is in the way of the list; `None`: nothing any more.
    Trouble(Option<String>),
}

/// The watch that something comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    key: Arc<WorkloadKey>,
    /// No two watches have the same, but those of the members of one workload that began together.
    generation: u64,
}

/// What is said of a followed workload and of its members.
pub enum Followed {
    Workload(WorkloadChange),
    ReplicaSet(Change<lean::ReplicaSet>),
    Pod(Change<lean::Pod>),
}

/// One workload and the watches that it takes.
struct Follower {
    key: Arc<WorkloadKey>,
    /// Of the watch of the workload itself, and of those of its members. What a watch has left in the mailbox
    /// counts for nothing once another one has taken its place.
    generation: u64,
    members_generation: u64,
    /// Of the workload itself; DaemonSets are watched all at once.
    _workload: Option<Watching>,
    /// Of its ReplicaSets and pods, once its selector is known.
    members: Vec<Watching>,
    selector: Option<String>,
    uid: Option<String>,
    /// ReplicaSets and the Deployments that they are of, by UID.
    replica_sets: BTreeMap<String, String>,
    /// Pods of ReplicaSets that have not been seen yet, by UID, with the ReplicaSet's.
    unresolved: BTreeMap<String, (String, plan::Pod)>,
    /// How far each of its watches is.
    workload: Progress,
    replica_sets_listed: Progress,
    pods_listed: Progress,
}

/// All of them.
pub struct Followers {
    client: Client,
    mailbox: mpsc::Sender<Message>,
    metrics: Metrics,
    all: BTreeMap<WorkloadKey, Follower>,
    daemon_sets: BTreeMap<WorkloadKey, (String, String, plan::Workload)>,
    /// How far the watch of all DaemonSets is.
    daemon_sets_listed: Progress,
    names: Names,
    lists: Lists,
    /// The generation of the last watch.
    generation: u64,
}

impl Followers {
    pub fn new(client: Client, mailbox: mpsc::Sender<Message>, metrics: Metrics) -> Self {
        Self {
            client,
            mailbox,
            metrics,
            all: BTreeMap::new(),
            daemon_sets: BTreeMap::new(),
            daemon_sets_listed: Progress::default(),
            names: Names::default(),
            lists: Lists::default(),
            generation: 0,
        }
    }

    /// What has not been listed yet, and nothing is said to be in its way.
    pub fn pending(&self) -> Option<String> {
        let waits = |follower: &&Follower| follower.is_pending(&self.daemon_sets_listed);
        self.all.values().find(waits).map(|follower| name_of(&follower.key))
    }

    /// How far the watch of all DaemonSets is.
    pub fn daemon_sets_listed(&self) -> &Progress {
        &self.daemon_sets_listed
    }

    /// Tells the planner whether anybody can say which pods the workload has. One that cannot be listed costs
    /// its own allocations, and nobody else.
    fn admit(&self, key: &WorkloadKey, world: &mut World) {
        let missing = self.all.get(key).and_then(|follower| follower.missing(&self.daemon_sets_listed));
        match missing {
            Some(why) => drop(world.unlisted.insert(key.clone(), why)),
            None => drop(world.unlisted.remove(key)),
        }
    }

    /// Follows exactly the workloads that are referred to.
    pub fn follow(&mut self, wanted: &BTreeSet<WorkloadKey>, world: &mut World) {
        let dropped: Vec<WorkloadKey> =
            self.all.keys().filter(|key| !wanted.contains(key)).cloned().collect();
        for key in dropped {
            self.all.remove(&key);
            world.unlisted.remove(&key);
            world.pods.retain(|_, pod| *pod.workload != key);
            if key.kind != WorkloadKind::DaemonSet {
                world.workloads.remove(&key);
            }
        }
        for key in wanted {
            if !self.all.contains_key(key) {
                let follower = self.begin(key);
                self.all.insert(key.clone(), follower);
                if let Some((uid, selector, workload)) = self.daemon_sets.get(key).cloned() {
                    self.workload(key, WorkloadChange::Applied { uid, selector, workload }, world);
                }
                self.admit(key, world);
            }
        }
    }

    /// What a new watch of the workload is known by.
    fn origin(&mut self, key: &WorkloadKey) -> Origin {
        self.generation += 1;
        Origin { key: Arc::new(key.clone()), generation: self.generation }
    }

    /// Takes what a watch says; whether a plan is due. Of a watch that was replaced, nothing is taken.
    pub fn take(&mut self, origin: &Origin, news: Followed, world: &mut World) -> bool {
        let (key, generation) = (&*origin.key, origin.generation);
        let of_members = !matches!(news, Followed::Workload(_));
        let current = self
            .all
            .get(key)
            .map(|follower| if of_members { follower.members_generation } else { follower.generation });
        if current != Some(generation) {
            return false;
        }
        match news {
            Followed::Workload(WorkloadChange::Begun)
            | Followed::ReplicaSet(Change::Begun)
            | Followed::Pod(Change::Begun) => return false,
            Followed::Workload(change) => self.workload(key, change, world),
            Followed::ReplicaSet(change) => self.replica_set(key, change, world),
            Followed::Pod(change) => self.pod(key, change, world),
        }
        true
    }

    fn begin(&mut self, key: &WorkloadKey) -> Follower {
        let (fault, origin) = (cannot_be_asked_for(key), self.origin(key));
        let watching = match key.kind {
            _ if fault.is_some() => None,
            WorkloadKind::Deployment => Some(self.watch_workload::<lean::Deployment>(&origin)),
            WorkloadKind::StatefulSet => Some(self.watch_workload::<lean::StatefulSet>(&origin)),
            WorkloadKind::DaemonSet => None,
        };
        Follower {
            key: origin.key,
            generation: origin.generation,
            members_generation: 0,
            workload: Progress { listed: false, trouble: fault },
            _workload: watching,
            members: Vec::new(),
            selector: None,
            uid: None,
            replica_sets: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            replica_sets_listed: Progress::default(),
            pods_listed: Progress::default(),
        }
    }

    fn watch_workload<K>(&self, origin: &Origin) -> Watching
    where
        K: lean::Workload<Scope = NamespaceResourceScope> + Watched,
    {
        let (origin, key) = (origin.clone(), &origin.key);
        let subject = Subject::<K>::of_workload(&self.client, &key.namespace, name_of(key), &self.lists)
            .fields(&format!("metadata.name={}", key.name));
        watch(subject, self.mailbox.clone(), self.metrics.clone(), move |change| {
            let news = Followed::Workload(describe(change));
            Message::Observed(Observed::Followed(origin.clone(), news))
        })
    }

    /// A change of a followed workload.
    fn workload(&mut self, key: &WorkloadKey, change: WorkloadChange, world: &mut World) {
        let Some(follower) = self.all.get_mut(key) else { return };
        match change {
            // Its pods may be on their way out; until they are gone they count.
            WorkloadChange::Gone => drop(world.workloads.remove(key)),
            WorkloadChange::Listed { present } => {
                follower.workload.listed = true;
                if !present {
                    world.workloads.remove(key);
                }
            }
            WorkloadChange::Begun => {}
            WorkloadChange::Trouble(trouble) => follower.workload.trouble = trouble,
            WorkloadChange::Applied { uid, selector, workload } => {
                world.workloads.insert(key.clone(), workload);
                self.watch_members(key, uid, &selector);
            }
        }
        self.admit(key, world);
    }

    /// Watches ReplicaSets and pods, if they are not watched already.
    fn watch_members(&mut self, key: &WorkloadKey, uid: String, selector: &str) {
        let of = |follower: &Follower| follower.uid.as_ref() == Some(&uid);
        let watched = |follower: &Follower| of(follower) && follower.selector.as_deref() == Some(selector);
        if self.all.get(key).is_none_or(watched) || cannot_be_asked_for(key).is_some() {
            return;
        }
        let origin = self.origin(key);
        let members = self.members(&origin, selector);
        let Some(follower) = self.all.get_mut(key) else { return };
        follower.members_generation = origin.generation;
        follower.uid = Some(uid);
        follower.selector = Some(selector.to_owned());
        follower.members = members;
        follower.pods_listed = Progress::default();
        let has_replica_sets = key.kind == WorkloadKind::Deployment;
        follower.replica_sets_listed = if has_replica_sets { Progress::default() } else { Progress::done() };
    }

    fn members(&self, origin: &Origin, selector: &str) -> Vec<Watching> {
        let mut watches = vec![self.watch_members_of_kind("pods", origin, selector, Followed::Pod)];
        if origin.key.kind == WorkloadKind::Deployment {
            watches.push(self.watch_members_of_kind("ReplicaSets", origin, selector, Followed::ReplicaSet));
        }
        watches
    }

    fn watch_members_of_kind<K>(
        &self,
        kind: &str,
        origin: &Origin,
        selector: &str,
        wrap: fn(Change<K>) -> Followed,
    ) -> Watching
    where
        K: Watched + kube::Resource<Scope = NamespaceResourceScope>,
    {
        let (origin, namespace) = (origin.clone(), &origin.key.namespace);
        let what = format!("{kind} in namespace {namespace}");
        let subject = Subject::of_workload(&self.client, namespace, what, &self.lists).labels(selector);
        watch(subject, self.mailbox.clone(), self.metrics.clone(), move |change| {
            Message::Observed(Observed::Followed(origin.clone(), wrap(change)))
        })
    }

    /// A change of any DaemonSet: one that is not referred to any more may still carry what was injected.
    pub fn daemon_set(&mut self, change: Change<lean::DaemonSet>, world: &mut World) {
        if self.daemon_sets_listed.take(&change) || matches!(change, Change::Listed(_)) {
            let of_them: Vec<WorkloadKey> =
                self.all.keys().filter(|key| key.kind == WorkloadKind::DaemonSet).cloned().collect();
            for key in &of_them {
                self.admit(key, world);
            }
        }
        match change {
            Change::Begun | Change::Failed(_) | Change::Works => {}
            Change::Applied(object) => {
                let key = key_of(&object);
                let WorkloadChange::Applied { uid, selector, workload } = describe(Change::Applied(object))
                else {
                    return;
                };
                if self.all.contains_key(&key) || workload.injected.is_some() {
                    world.workloads.insert(key.clone(), workload.clone());
                } else {
                    world.workloads.remove(&key);
                }
                self.daemon_sets.insert(key.clone(), (uid.clone(), selector.clone(), workload.clone()));
                self.workload(&key, WorkloadChange::Applied { uid, selector, workload }, world);
            }
            Change::Gone(object) => {
                let key = key_of(&object);
                self.daemon_sets.remove(&key);
                world.workloads.remove(&key);
                self.workload(&key, WorkloadChange::Gone, world);
            }
            Change::Listed(uids) => {
                self.daemon_sets.retain(|_, (uid, ..)| uids.contains(uid));
                let known = &self.daemon_sets;
                world
                    .workloads
                    .retain(|key, _| key.kind != WorkloadKind::DaemonSet || known.contains_key(key));
            }
        }
    }

    fn replica_set(&mut self, key: &WorkloadKey, change: Change<lean::ReplicaSet>, world: &mut World) {
        let Some(follower) = self.all.get_mut(key) else { return };
        follower.replica_sets_listed.take(&change);
        match change {
            Change::Begun | Change::Failed(_) | Change::Works => self.admit(key, world),
            Change::Applied(object) => {
                let owner = lean::controller(&object.metadata).map(|owner| owner.uid.clone());
                if let (Some(uid), Some(owner)) = (object.uid(), owner) {
                    follower.replica_sets.insert(uid, owner);
                    follower.resolve(world);
                }
            }
            // Its pods may outlive it.
            Change::Gone(_) => {}
            Change::Listed(uids) => {
                follower.replica_sets.retain(|uid, _| uids.contains(uid));
                self.admit(key, world);
            }
        }
    }

    fn pod(&mut self, key: &WorkloadKey, change: Change<lean::Pod>, world: &mut World) {
        let Some(follower) = self.all.get_mut(key) else { return };
        follower.pods_listed.take(&change);
        match change {
            Change::Begun | Change::Failed(_) | Change::Works => self.admit(key, world),
            Change::Applied(object) => {
                let uid = object.uid().unwrap_or_default();
                let Some(owner) = lean::controller(&object.metadata).map(|owner| owner.uid.clone()) else {
                    return;
                };
                let pod = pod_for_planner(&object, follower.key.clone(), &mut self.names);
                let known = world.pods.get(&uid).is_some_and(|known| *known.workload == *key);
                if known || follower.owns(&owner) {
                    follower.unresolved.remove(&uid);
                    world.pods.insert(uid, pod);
                } else {
                    follower.unresolved.insert(uid, (owner, pod));
                }
            }
            Change::Gone(object) => {
                let uid = object.uid().unwrap_or_default();
                if world.pods.get(&uid).is_some_and(|known| *known.workload == *key) {
                    world.pods.remove(&uid);
                }
                follower.unresolved.remove(&uid);
            }
            Change::Listed(uids) => {
                world.pods.retain(|uid, pod| *pod.workload != *key || uids.contains(uid));
                follower.unresolved.retain(|uid, _| uids.contains(uid));
                self.admit(key, world);
            }
        }
    }

    /// Whether the pods of a workload are followed.
    pub fn follows(&self, key: &WorkloadKey) -> bool {
        self.all.contains_key(key)
    }

    /// For a pod that nobody is followed for.
    pub fn orphan(&mut self, object: &lean::Pod) -> Option<plan::Pod> {
        let key = guess_workload(object)?;
        Some(pod_for_planner(object, Arc::new(key), &mut self.names))
    }
}

impl Follower {
    /// The watches whose lists it takes, with words for what they tell of.
    fn watches<'f>(&'f self, daemon_sets: &'f Progress) -> Vec<(&'f Progress, String)> {
        let namespace = &self.key.namespace;
        let mut watches = vec![(&self.workload, format!("{} has", name_of(&self.key)))];
        if self.key.kind == WorkloadKind::DaemonSet && self.workload.trouble.is_none() {
            watches = vec![(daemon_sets, "DaemonSets have".to_owned())];
        }
        if self.uid.is_some() {
            watches.push((&self.replica_sets_listed, format!("ReplicaSets in namespace {namespace} have")));
            watches.push((&self.pods_listed, format!("pods in namespace {namespace} have")));
        }
        watches
    }

    /// Why nobody can say which pods it has.
    fn missing(&self, daemon_sets: &Progress) -> Option<String> {
        let watches = self.watches(daemon_sets);
        // What is in the way says more than what is still to come.
        let trouble = watches.iter().find_map(|(progress, _)| progress.trouble.clone());
        trouble.or_else(|| {
            let pending = watches.into_iter().find(|(progress, _)| !progress.listed);
            pending.map(|(_, what)| format!("{what} not been listed yet"))
        })
    }

    /// Its lists are on their way, and nothing is said to be in it.
    fn is_pending(&self, daemon_sets: &Progress) -> bool {
        let watches = self.watches(daemon_sets);
        let waits = watches.iter().any(|(progress, _)| !progress.listed);
        waits && watches.iter().all(|(progress, _)| progress.trouble.is_none())
    }

    fn owns(&self, owner: &str) -> bool {
        let via = match self.key.kind {
            WorkloadKind::Deployment => self.replica_sets.get(owner).map(String::as_str),
            WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => Some(owner),
        };
        via.is_some() && via == self.uid.as_deref()
    }

    fn resolve(&mut self, world: &mut World) {
        let waiting = std::mem::take(&mut self.unresolved);
        for (uid, (owner, pod)) in waiting {
            if self.owns(&owner) {
                world.pods.insert(uid, pod);
            } else {
                self.unresolved.insert(uid, (owner, pod));
            }
        }
    }
}

fn describe<K: lean::Workload>(change: Change<K>) -> WorkloadChange {
    match change {
        Change::Applied(object) => WorkloadChange::Applied {
            uid: object.meta().uid.clone().unwrap_or_default(),
            selector: object.selector(),
            workload: object.for_planner(),
        },
        Change::Gone(_) => WorkloadChange::Gone,
        Change::Listed(uids) => WorkloadChange::Listed { present: !uids.is_empty() },
        Change::Failed(why) => WorkloadChange::Trouble(Some(why)),
        Change::Works => WorkloadChange::Trouble(None),
        Change::Begun => WorkloadChange::Begun,
    }
}

fn key_of(object: &lean::DaemonSet) -> WorkloadKey {
    WorkloadKey {
        kind: lean::DaemonSet::KIND,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// The workload of a pod that waits for an allocation nobody has any more. Only used to say whose it was:
/// its owner makes a new one whoever that is.
fn guess_workload(object: &lean::Pod) -> Option<WorkloadKey> {
    let owner = lean::controller(&object.metadata)?;
    let (kind, name) = match owner.kind.as_str() {
        // A Deployment's ReplicaSets are named after it and the hash of their template.
        "ReplicaSet" => (WorkloadKind::Deployment, owner.name.rsplit_once('-')?.0),
        "StatefulSet" => (WorkloadKind::StatefulSet, &*owner.name),
        _ => return None,
    };
    Some(WorkloadKey { kind, namespace: object.namespace().unwrap_or_default(), name: name.to_owned() })
}

fn pod_for_planner(object: &lean::Pod, workload: Arc<WorkloadKey>, names: &mut Names) -> plan::Pod {
    plan::Pod {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        workload,
        node: object.node().map(|node| names.shared(node)),
        finished: object.finished(),
        ready: object.ready(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        created: lean::created(&object.metadata),
        injected: object.injected(),
        ours: object.is_ours(),
    }
}

#[cfg(test)]
#[path = "followers_tests.rs"]
mod tests;
