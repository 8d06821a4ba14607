//! Everything that the controller knows: one world, updated in place by what the watches say.

use super::followers::Followers;
use super::watch::Change;
use super::{Observed, lean};
use crds::IpStatus;
use kube::ResourceExt as _;
use plan::{WorkloadKey, World};
use std::collections::{BTreeMap, BTreeSet};

/// The world and how far it can be trusted.
pub struct State {
    pub world: World,
    pub followers: Followers,
    /// Versions of the objects in the world: an event that was overtaken by our own write is dropped.
    allocation_versions: BTreeMap<String, (u64, String)>,
    node_versions: BTreeMap<String, u64>,
    /// Unscheduled pods that carry an injected requirement, by UID. Those of workloads that no allocation
    /// refers to are in the world because of it.
    waiting: BTreeMap<String, plan::Pod>,
    pub listed: Listed,
    /// The set of nodes, addresses or workloads changed: what to ask the clouds for has to be worked out
    /// anew.
    pub reshaped: bool,
}

/// Which lists are complete.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // they are
pub struct Listed {
    pub allocations: bool,
    pub nodes: bool,
    pub daemon_sets: bool,
    pub unscheduled: bool,
}

impl State {
    pub fn new(world: World, followers: Followers) -> Self {
        Self {
            world,
            followers,
            allocation_versions: BTreeMap::new(),
            node_versions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            listed: Listed::default(),
            reshaped: true,
        }
    }

    /// What is not known yet; `None`: everything is, and a plan may be made.
    pub fn missing(&self) -> Option<String> {
        let Listed { allocations, nodes, daemon_sets, unscheduled } = self.listed;
        let lists = [
            (allocations, "NetIPAllocations"),
            (nodes, "nodes"),
            (daemon_sets, "DaemonSets"),
            (unscheduled, "unscheduled pods"),
        ];
        let missing = lists.iter().find(|(listed, _)| !listed).map(|(_, what)| (*what).to_owned());
        missing.or_else(|| self.followers.missing())
    }

    /// Takes what a watch says into the world; whether a plan is due.
    pub fn see(&mut self, observed: Observed) -> bool {
        let world = &mut self.world;
        match observed {
            Observed::Allocation(change) => return self.allocation(change),
            Observed::Node(change) => return self.node(change),
            Observed::Unscheduled(change) => return self.unscheduled(change),
            Observed::DaemonSet(change) => self.daemon_set(change),
            Observed::Workload(key, change) => self.followers.workload(&key, change, world),
            Observed::ReplicaSet(key, change) => self.followers.replica_set(&key, change, world),
            Observed::Pod(key, change) => self.followers.pod(&key, change, world),
        }
        true
    }

    /// The version that a write of the allocation has to find.
    pub fn version(&self, allocation: &str) -> Option<&str> {
        self.allocation_versions.get(allocation).map(|(_, text)| text.as_str())
    }

    /// Whether anything changed.
    pub fn allocation(&mut self, change: Change<lean::Allocation>) -> bool {
        match change {
            Change::Applied(object) => {
                let (name, version) = (object.name_any(), lean::version(&object.metadata));
                let known = self.allocation_versions.get(&name).map(|(version, _)| *version);
                if known.is_some_and(|known| known >= version) {
                    return false;
                }
                let text = object.metadata.resource_version.clone().unwrap_or_default();
                self.allocation_versions.insert(name.clone(), (version, text));
                let allocation = object.for_planner();
                // An instance that only the status tells of may be in an account that nobody is asking.
                let named = allocation.status.ips.iter().flat_map(IpStatus::instances);
                let news = named.into_iter().any(|id| !self.world.instances.contains_key(id));
                let before = self.world.allocations.insert(name, allocation.clone());
                self.reshaped |= news || before.is_none_or(|before| before.spec != allocation.spec);
            }
            Change::Gone(object) => {
                self.forget_allocation(&object.name_any(), &object.uid().unwrap_or_default());
            }
            Change::Listed(uids) => {
                self.listed.allocations = true;
                let gone = |object: &plan::Allocation| !uids.contains(&object.uid);
                let world = self.world.allocations.iter();
                let gone: Vec<_> = world
                    .filter(|(_, object)| gone(object))
                    .map(|(n, o)| (n.clone(), o.uid.clone()))
                    .collect();
                for (name, uid) in gone {
                    self.forget_allocation(&name, &uid);
                }
            }
        }
        self.follow_workloads();
        true
    }

    /// What the API server answered to our own write. The object may be gone by now, and the watch may have
    /// said so before the answer came: an answer never brings back what is not known any more.
    pub fn our_allocation(&mut self, object: lean::Allocation) -> bool {
        let known = self.world.allocations.get(&object.name_any()).map(|known| &known.uid);
        known == object.metadata.uid.as_ref() && self.allocation(Change::Applied(object))
    }

    /// The same for a node.
    pub fn our_node(&mut self, object: lean::Node) -> bool {
        let known = self.world.nodes.get(&object.name_any()).map(|known| &known.uid);
        known == object.metadata.uid.as_ref() && self.node(Change::Applied(object))
    }

    fn forget_allocation(&mut self, name: &str, uid: &str) {
        if self.world.allocations.get(name).is_some_and(|known| known.uid == uid) {
            self.world.allocations.remove(name);
            self.allocation_versions.remove(name);
            self.reshaped = true;
        }
    }

    fn follow_workloads(&mut self) {
        if self.reshaped && self.listed.allocations {
            let specs = self.world.allocations.values().filter_map(|object| object.spec.as_ref().ok());
            let wanted: BTreeSet<WorkloadKey> = specs.filter_map(|spec| spec.workload.clone()).collect();
            self.followers.follow(&wanted, &mut self.world);
            for (uid, pod) in &self.waiting {
                if !self.followers.follows(&pod.workload) {
                    self.world.pods.entry(uid.clone()).or_insert_with(|| pod.clone());
                }
            }
        }
    }

    /// Whether anything changed that matters: a heartbeat does not.
    pub fn node(&mut self, change: Change<lean::Node>) -> bool {
        match change {
            Change::Applied(object) => {
                let (name, version) = (object.name_any(), lean::version(&object.metadata));
                if self.node_versions.get(&name).is_some_and(|known| *known >= version) {
                    return false;
                }
                self.node_versions.insert(name.clone(), version);
                let node = object.for_planner();
                let before = self.world.nodes.get(&name);
                if before == Some(&node) {
                    return false;
                }
                // Whether it is Ready, cordoned or tainted changes nothing of whom to ask for what.
                let same = |before: &plan::Node| {
                    before.provider_id == node.provider_id && before.labels == node.labels
                };
                self.reshaped |= !before.is_some_and(same);
                self.world.nodes.insert(name, node);
            }
            Change::Gone(object) => {
                let name = object.name_any();
                let uid = object.uid().unwrap_or_default();
                if self.world.nodes.get(&name).is_none_or(|known| known.uid != uid) {
                    return false;
                }
                self.forget_node(&name);
            }
            Change::Listed(uids) => {
                self.listed.nodes = true;
                let world = self.world.nodes.iter();
                let gone: Vec<_> = world
                    .filter(|(_, node)| !uids.contains(&node.uid))
                    .map(|(name, _)| name.clone())
                    .collect();
                for name in gone {
                    self.forget_node(&name);
                }
            }
        }
        true
    }

    fn forget_node(&mut self, name: &str) {
        self.world.nodes.remove(name);
        self.node_versions.remove(name);
        self.reshaped = true;
    }

    pub fn daemon_set(&mut self, change: Change<lean::DaemonSet>) {
        self.listed.daemon_sets |= matches!(change, Change::Listed(_));
        self.followers.daemon_set(change, &mut self.world);
    }

    /// Pods that wait for an allocation which may be gone.
    pub fn unscheduled(&mut self, change: Change<lean::Pod>) -> bool {
        match change {
            Change::Applied(object) => {
                let uid = object.uid().unwrap_or_default();
                let Some(pod) = self.followers.orphan(&object).filter(|pod| pod.injected.is_some()) else {
                    return false;
                };
                if !self.followers.follows(&pod.workload) {
                    self.world.pods.insert(uid.clone(), pod.clone());
                }
                self.waiting.insert(uid, pod);
            }
            Change::Gone(object) => self.forget_waiting(&object.uid().unwrap_or_default()),
            Change::Listed(uids) => {
                self.listed.unscheduled = true;
                let gone: Vec<_> = self.waiting.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
                for uid in gone {
                    self.forget_waiting(&uid);
                }
            }
        }
        true
    }

    fn forget_waiting(&mut self, uid: &str) {
        if self.waiting.remove(uid).is_some_and(|pod| !self.followers.follows(&pod.workload)) {
            self.world.pods.remove(uid);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn state() -> State {
        let client =
            kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let telemetry = telemetry::Telemetry::new(None).unwrap();
        let metrics = telemetry::controller::Metrics::new(&telemetry).unwrap();
        let mailbox = tokio::sync::mpsc::channel(1).0;
        State::new(World::default(), Followers::new(client, mailbox, metrics))
    }

    fn node(uid: &str, version: u32) -> lean::Node {
        from_value(object("n1", uid, version, &json!({ "providerID": "gce://p/z/n1" }))).unwrap()
    }

    fn allocation(uid: &str, version: u32) -> lean::Allocation {
        let spec = json!({ "reservedIPs": ["203.0.113.1"], "cloud": { "provider": "gcp" } });
        from_value(object("voice", uid, version, &spec)).unwrap()
    }

    fn object(name: &str, uid: &str, version: u32, spec: &Value) -> Value {
        json!({ "metadata": { "name": name, "uid": uid, "resourceVersion": version.to_string() }, "spec": spec })
    }

    #[tokio::test]
    async fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
        let mut state = state();
        assert!(state.node(Change::Applied(node("a", 1))));
        state.our_node(node("a", 2));
        assert!(state.node(Change::Gone(node("a", 3))));
        assert!(!state.our_node(node("a", 2)));
        assert!(state.world.nodes.is_empty());
        state.node(Change::Applied(node("b", 5)));
        assert!(!state.our_node(node("a", 4)), "nor is it about another one of the same name");
        assert_eq!(state.world.nodes["n1"].uid, "b");

        assert!(state.allocation(Change::Applied(allocation("a", 1))));
        assert!(state.our_allocation(allocation("a", 2)));
        assert!(state.allocation(Change::Gone(allocation("a", 3))));
        assert!(!state.our_allocation(allocation("a", 2)));
        assert!(state.world.allocations.is_empty());
    }

    /// Its node may be gone by the time that the claim of an attach is written.
    #[tokio::test]
    async fn an_instance_that_only_a_status_tells_of_is_asked_about() {
        let mut state = state();
        state.allocation(Change::Applied(allocation("a", 1)));
        state.reshaped = false;
        let mut claimed: Value = object("voice", "a", 2, &allocation("a", 1).spec);
        let operation = json!({
            "id": "1", "cause": "FirstAttach", "toProviderID": "gce://p/z/n1",
            "startedAt": "2026-11-15T00:00:00Z", "epoch": 1,
        });
        claimed["status"] = json!({
            "ips": [{ "address": "203.0.113.1", "state": "Free", "operation": operation }],
        });
        state.our_allocation(from_value(claimed).unwrap());
        assert!(state.reshaped);
    }

    #[tokio::test]
    async fn an_event_that_our_own_write_has_overtaken_is_dropped() {
        let mut state = state();
        state.allocation(Change::Applied(allocation("a", 1)));
        state.our_allocation(allocation("a", 3));
        assert!(!state.allocation(Change::Applied(allocation("a", 2))));
        assert_eq!(state.version("voice"), Some("3"));
    }
}
