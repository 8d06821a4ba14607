//! Everything that the controller knows: one world, updated in place by what the watches say.

use super::followers::Followers;
use super::progress::Progress;
use super::watch::Change;
use super::{Observed, lean};
use crds::IpStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use plan::{WorkloadKey, World};
use std::collections::{BTreeMap, BTreeSet};

/// The world and how far it can be trusted.
pub struct State {
    pub world: World,
    pub followers: Followers,
    /// Versions of the allocations in the world.
    versions: BTreeMap<String, String>,
    /// Versions that our own writes were answered with and the watch has not told of yet: an event that was
    /// overtaken is dropped. Nothing else is compared: a watch is in order by itself, and after etcd was
    /// restored from a snapshot everything has a lower version.
    our_allocations: BTreeMap<String, u64>,
    our_nodes: BTreeMap<String, u64>,
    node_versions: BTreeMap<String, u64>,
    /// Unscheduled pods that carry an injected requirement, by UID. Those of workloads that no allocation
    /// refers to are in the world because of it.
    waiting: BTreeMap<String, plan::Pod>,
    pub listed: Listed,
    /// The set of nodes, addresses or workloads changed: what to ask the clouds for has to be worked out
    /// anew.
    pub reshaped: bool,
}

/// How far the watches are that everybody needs.
#[derive(Debug, Default)]
pub struct Listed {
    pub allocations: Progress,
    pub nodes: Progress,
    pub unscheduled: Progress,
}

impl State {
    pub fn new(world: World, followers: Followers) -> Self {
        Self {
            world,
            followers,
            versions: BTreeMap::new(),
            our_allocations: BTreeMap::new(),
            our_nodes: BTreeMap::new(),
            node_versions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            listed: Listed::default(),
            reshaped: true,
        }
    }

    /// What is not known yet; `None`: a plan may be made. Only what every allocation needs is waited for; what
    /// else cannot be listed costs those who refer to it.
    pub fn missing(&self) -> Option<String> {
        let lists = [(&self.listed.allocations, "NetIPAllocations"), (&self.listed.nodes, "nodes")];
        let (progress, what) = lists.into_iter().find(|(progress, _)| !progress.listed)?;
        Some(progress.trouble.clone().unwrap_or_else(|| what.to_owned()))
    }

    /// What everybody needs and was listed, but cannot be watched now. Plans go on with what is known: it is old,
    /// and better than nothing.
    pub fn outdated(&self) -> Option<String> {
        let lists = [&self.listed.allocations, &self.listed.nodes];
        lists.iter().filter(|progress| progress.listed).find_map(|progress| progress.trouble.clone())
    }

    /// What is still on its way, with nothing said to be in it: for those who have the patience.
    pub fn pending(&self) -> Option<String> {
        let lists = [
            (self.followers.daemon_sets_listed(), "DaemonSets"),
            (&self.listed.unscheduled, "unscheduled pods"),
        ];
        let pending = lists.iter().find(|(progress, _)| !progress.listed && progress.trouble.is_none());
        self.missing()
            .or_else(|| pending.map(|(_, what)| (*what).to_owned()))
            .or_else(|| self.followers.pending())
    }

    /// What could not be listed.
    pub fn troubles(&self) -> BTreeSet<String> {
        let lists = [self.followers.daemon_sets_listed(), &self.listed.unscheduled];
        let general = lists.iter().filter_map(|progress| progress.trouble.clone());
        general.chain(self.world.unlisted.values().cloned()).collect()
    }

    /// Takes what a watch says into the world; whether a plan is due.
    pub fn see(&mut self, observed: Observed) -> bool {
        let world = &mut self.world;
        match observed {
            Observed::Allocation(change) => return self.allocation(change),
            Observed::Node(change) => return self.node(change),
            Observed::Unscheduled(change) => return self.unscheduled(change),
            Observed::Followed(origin, news) => return self.followers.take(&origin, news, world),
            Observed::DaemonSet(Change::Begun) => return false,
            Observed::DaemonSet(change) => self.followers.daemon_set(change, world),
        }
        true
    }

    /// The version that a write of the allocation has to find.
    pub fn version(&self, allocation: &str) -> Option<&str> {
        self.versions.get(allocation).map(String::as_str)
    }

    /// Whether anything changed.
    pub fn allocation(&mut self, change: Change<lean::Allocation>) -> bool {
        self.listed.allocations.take(&change);
        match change {
            Change::Begun => {
                self.our_allocations.clear();
                return false;
            }
            Change::Failed(_) | Change::Works => {}
            Change::Applied(object) => {
                if is_overtaken(&mut self.our_allocations, &object.metadata) {
                    return false;
                }
                self.set_allocation(&object);
            }
            Change::Gone(object) => {
                self.forget_allocation(&object.name_any(), &object.uid().unwrap_or_default());
            }
            Change::Listed(uids) => {
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

    fn set_allocation(&mut self, object: &lean::Allocation) {
        let name = object.name_any();
        self.versions.insert(name.clone(), object.metadata.resource_version.clone().unwrap_or_default());
        let allocation = object.for_planner();
        // An instance that only the status tells of may be in an account that nobody is asking.
        let named = allocation.status.ips.iter().flat_map(IpStatus::instances);
        let news = named.into_iter().any(|id| !self.world.instances.contains_key(id));
        let before = self.world.allocations.get(&name);
        self.reshaped |= news || before.is_none_or(|before| before.spec != allocation.spec);
        self.world.allocations.insert(name, allocation);
    }

    /// What the API server answered to our own write. The object may be gone by now, and the watch may have
    /// said so before the answer came: an answer never brings back what is not known any more, nor what was
    /// there before something that the watch has told of.
    pub fn our_allocation(&mut self, object: &lean::Allocation) -> bool {
        let (name, version) = (object.name_any(), lean::version(&object.metadata));
        let known = self.world.allocations.get(&name).map(|known| &known.uid);
        let seen = self.versions.get(&name).and_then(|text| text.parse().ok()).unwrap_or(0);
        if known != object.metadata.uid.as_ref() || seen >= version {
            return false;
        }
        self.our_allocations.insert(name, version);
        self.set_allocation(object);
        self.follow_workloads();
        true
    }

    /// The same for a node.
    pub fn our_node(&mut self, object: lean::Node) -> bool {
        let (name, version) = (object.name_any(), lean::version(&object.metadata));
        let known = self.world.nodes.get(&name).map(|known| &known.uid);
        let seen = self.node_versions.get(&name).copied().unwrap_or(0);
        if known != object.metadata.uid.as_ref() || seen >= version {
            return false;
        }
        self.our_nodes.insert(name, version);
        self.set_node(object)
    }

    fn forget_allocation(&mut self, name: &str, uid: &str) {
        if self.world.allocations.get(name).is_some_and(|known| known.uid == uid) {
            self.world.allocations.remove(name);
            self.versions.remove(name);
            self.our_allocations.remove(name);
            self.reshaped = true;
        }
    }

    fn follow_workloads(&mut self) {
        if self.reshaped && self.listed.allocations.listed {
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
        self.listed.nodes.take(&change);
        match change {
            Change::Begun => {
                self.our_nodes.clear();
                return false;
            }
            Change::Failed(_) | Change::Works => {}
            Change::Applied(object) => {
                return !is_overtaken(&mut self.our_nodes, &object.metadata) && self.set_node(object);
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

    fn set_node(&mut self, object: lean::Node) -> bool {
        let name = object.name_any();
        self.node_versions.insert(name.clone(), lean::version(&object.metadata));
        let node = object.for_planner();
        let before = self.world.nodes.get(&name);
        if before == Some(&node) {
            return false;
        }
        self.reshaped |= !before.is_some_and(|before| asks_alike(before, &node));
        self.world.nodes.insert(name, node);
        true
    }

    fn forget_node(&mut self, name: &str) {
        self.world.nodes.remove(name);
        self.node_versions.remove(name);
        self.our_nodes.remove(name);
        self.reshaped = true;
    }

    /// Pods that wait for an allocation which may be gone.
    pub fn unscheduled(&mut self, change: Change<lean::Pod>) -> bool {
        self.listed.unscheduled.take(&change);
        match change {
            Change::Begun | Change::Failed(_) | Change::Works => return false,
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

/// Whether our own write has overtaken an event, or is what it tells of. Once the watch has come so far, the watch
/// alone counts.
fn is_overtaken(ours: &mut BTreeMap<String, u64>, meta: &ObjectMeta) -> bool {
    let (name, version) = (meta.name.as_deref().unwrap_or_default(), lean::version(meta));
    let Some(written) = ours.get(name).copied() else { return false };
    if version >= written {
        ours.remove(name);
    }
    version <= written
}

/// Whether a node changed nothing of whom to ask for what: whether it is Ready, cordoned or tainted does not,
/// nor do our own marks.
fn asks_alike(before: &plan::Node, after: &plan::Node) -> bool {
    let others = |labels: &plan::Labels| {
        let mut labels = labels.clone();
        labels.remove(crds::LABEL_READY);
        labels.remove(crds::LABEL_ALLOCATION);
        labels
    };
    before.provider_id == after.provider_id
        && (before.labels == after.labels || others(&before.labels) == others(&after.labels))
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
        assert!(state.our_allocation(&allocation("a", 2)));
        assert!(state.allocation(Change::Gone(allocation("a", 3))));
        assert!(!state.our_allocation(&allocation("a", 2)));
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
        state.our_allocation(&from_value(claimed).unwrap());
        assert!(state.reshaped);
    }

    #[tokio::test]
    async fn an_event_that_our_own_write_has_overtaken_is_dropped() {
        let mut state = state();
        state.allocation(Change::Applied(allocation("a", 1)));
        state.our_allocation(&allocation("a", 3));
        assert!(!state.allocation(Change::Applied(allocation("a", 2))));
        assert_eq!(state.version("voice"), Some("3"));
    }

    /// After etcd was restored from a snapshot, everything has a lower version.
    #[tokio::test]
    async fn a_list_of_an_older_history_is_taken() {
        let mut state = state();
        state.allocation(Change::Applied(allocation("a", 100)));
        state.our_allocation(&allocation("a", 120));
        state.node(Change::Applied(node("a", 100)));
        state.our_node(node("a", 130));
        assert!(!state.allocation(Change::Applied(allocation("a", 110))), "overtaken");

        state.allocation(Change::Begun);
        state.node(Change::Begun);
        assert!(state.allocation(Change::Applied(allocation("a", 7))));
        assert_eq!(state.version("voice"), Some("7"));
        let mut cordoned =
            object("n1", "a", 8, &json!({ "providerID": "gce://p/z/n1", "unschedulable": true }));
        cordoned["status"] = json!({});
        assert!(state.node(Change::Applied(from_value(cordoned).unwrap())));
        assert!(state.world.nodes["n1"].unschedulable);
    }

    /// The list was made before our write, and its answer arrived after the list had begun.
    #[tokio::test]
    async fn a_list_that_our_own_write_has_overtaken_is_not() {
        let mut state = state();
        state.allocation(Change::Applied(allocation("a", 1)));
        state.allocation(Change::Begun);
        state.our_allocation(&allocation("a", 5));
        assert!(!state.allocation(Change::Applied(allocation("a", 4))));
        assert!(!state.allocation(Change::Applied(allocation("a", 5))), "known");
        assert!(state.allocation(Change::Applied(allocation("a", 6))));
        assert_eq!(state.version("voice"), Some("6"));
    }

    #[tokio::test]
    async fn a_watch_in_trouble_is_named_and_stops_nothing() {
        let mut state = state();
        state.allocation(Change::Listed(BTreeSet::new()));
        state.node(Change::Failed("nodes: 403".to_owned()));
        assert_eq!(state.missing().as_deref(), Some("nodes: 403"), "nothing is known yet");
        state.node(Change::Works);
        state.node(Change::Listed(BTreeSet::new()));
        assert_eq!((state.missing(), state.outdated()), (None, None));
        state.node(Change::Failed("nodes: 503".to_owned()));
        assert_eq!((state.missing(), state.outdated().as_deref()), (None, Some("nodes: 503")));
        state.node(Change::Works);
        state.allocation(Change::Failed("NetIPAllocations: 503".to_owned()));
        assert_eq!(state.outdated().as_deref(), Some("NetIPAllocations: 503"));
        state.allocation(Change::Works);
        assert_eq!(state.outdated(), None);
    }

    #[tokio::test]
    async fn our_own_marks_ask_nobody_anew() {
        let mut state = state();
        let labelled = |version: u32, labels: Value| -> lean::Node {
            let mut object = object("n1", "a", version, &json!({ "providerID": "gce://p/z/n1" }));
            object["metadata"]["labels"] = labels;
            from_value(object).unwrap()
        };
        state.node(Change::Applied(labelled(1, json!({ "role": "sip" }))));
        state.reshaped = false;
        let marks =
            json!({ "role": "sip", "ip.ready": "true", "netinfra.darkbrains.com/allocation": "voice" });
        assert!(state.our_node(labelled(2, marks)));
        assert!(!state.reshaped);
        state.node(Change::Applied(labelled(3, json!({ "role": "web" }))));
        assert!(state.reshaped, "other labels do");
    }
}
