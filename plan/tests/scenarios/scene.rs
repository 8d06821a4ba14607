//! Builds the world that a scenario describes.

use crate::notation::{Line, Words, short};
use crds::{IpStatus, NetIPAllocationStatus, WorkloadKind};
use plan::{
    AddressView, Allocation, Failure, FailureClass, InFlight, InstanceView, LastWrite, Node, Pod, Reason,
    Seen, Taint, Time, Workload, WorkloadKey, World, WriteKind,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The world of a scenario and what is needed to change it.
pub struct Scene {
    pub world: World,
    pub now: Time,
    /// Specs as JSON, since a later stage may change single fields.
    specs: BTreeMap<String, Map<String, Value>>,
    /// What the cloud was not asked about.
    unread: BTreeSet<String>,
    /// Readings whose age the stage gives itself.
    pinned: BTreeSet<String>,
    /// Pods whose injected requirement follows from the allocations.
    injected: BTreeSet<String>,
}

impl Default for Scene {
    fn default() -> Self {
        let excluded = ["kube-system", "kube-node-lease", "ip-address-controller"];
        Self {
            world: World {
                excluded_namespaces: excluded.map(str::to_owned).into(),
                ..World::default()
            },
            now: Time(1_800_000_000_000),
            specs: BTreeMap::new(),
            unread: BTreeSet::new(),
            pinned: BTreeSet::new(),
            injected: BTreeSet::new(),
        }
    }
}

impl Scene {
    /// Applies the lines of a stage. Unless `stale`, every reading of the cloud is made anew.
    pub fn change(&mut self, lines: &[Line], stale: bool) -> Result<(), String> {
        self.pinned.clear();
        for line in lines {
            line.read(|words| self.apply(words))?;
        }
        self.fill();
        if !stale {
            self.refresh();
        }
        Ok(())
    }

    /// Reads everything in the cloud again.
    pub fn refresh(&mut self) {
        for (address, seen) in &mut self.world.addresses {
            if !self.pinned.contains(&address.to_string()) {
                seen.at = self.now;
            }
        }
        for (id, seen) in &mut self.world.instances {
            if !self.pinned.contains(id) {
                seen.at = self.now;
            }
        }
    }

    fn apply(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        match words.need("a word")? {
            "allocation" => self.allocation(words),
            "remembers" => self.remembers(words),
            "node" => self.node(words),
            "pod" => self.pod(words),
            "workload" => self.workload(words),
            "cloud" => self.cloud(words),
            "instance" => self.instance(words),
            "wrote" => self.wrote(words).map(|_| ()),
            "failed" => self.failed(words),
            "flying" => self.flying(words),
            "evicted" => {
                let key = workload_key(words.need("a workload")?)?;
                let at = self.ago(words)?;
                self.world.evicted.insert(key, at);
                Ok(())
            }
            "controller" => {
                words.expect("on")?;
                self.world.own_node = words.next().map(str::to_owned);
                Ok(())
            }
            "nobody" => {
                words.expect("took")?;
                self.world.nobody_took_the_lease = true;
                Ok(())
            }
            other => Err(format!("`{other}` is nothing that a world has")),
        }
    }

    fn ago(&self, words: &mut Words<'_>) -> Result<Time, String> {
        Ok(self.now.plus_seconds(-words.ago()?))
    }

    fn allocation(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let name = words.need("a name")?.to_owned();
        if words.take("gone") {
            self.specs.remove(&name);
            self.world.allocations.remove(&name);
            return Ok(());
        }
        let mut spec = self.specs.remove(&name).unwrap_or_else(|| {
            let cloud = json!({"provider": "gcp"});
            Map::from_iter([("cloud".to_owned(), cloud)])
        });
        let mut allocation = self
            .world
            .allocations
            .remove(&name)
            .unwrap_or_else(|| Allocation {
                uid: format!("uid-{name}"),
                created: self.now.plus_seconds(-86_400),
                generation: 0,
                deleting: false,
                has_finalizer: true,
                spec: Err(Vec::new()),
                status: NetIPAllocationStatus::default(),
            });
        while let Some(word) = words.next() {
            match word {
                "created" => allocation.created = self.ago(words)?,
                "deleting" => allocation.deleting = true,
                "no-finalizer" => allocation.has_finalizer = false,
                _ => spec_word(&mut spec, word, words)?,
            }
        }
        allocation.generation += 1;
        allocation.spec = plan::parse::parse(&Value::Object(spec.clone())).map(Arc::new);
        self.specs.insert(name.clone(), spec);
        self.world.allocations.insert(name, allocation);
        Ok(())
    }

    /// `remembers voice .1 on n1 [30s ago]`: what the stored status says.
    fn remembers(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let name = words.need("an allocation")?;
        let address = words.address()?;
        words.expect("on")?;
        let node = words.need("a node")?;
        let since = if words.peek().is_some() {
            self.ago(words)?
        } else {
            self.now.plus_seconds(-3600)
        };
        self.remember(name, address, node, since)
    }

    fn remember(&mut self, name: &str, address: IpAddr, node: &str, since: Time) -> Result<(), String> {
        let provider_id = self.provider_id(node);
        let allocation = self.world.allocations.get_mut(name);
        let allocation = allocation.ok_or_else(|| format!("there is no allocation {name} yet"))?;
        allocation.status.ips.push(IpStatus {
            address: address.to_string(),
            state: "Attached".to_owned(),
            node: Some(node.to_owned()),
            provider_id: Some(provider_id),
            since: Some(since.into()),
            reason: Some(Reason::Attached.as_str().to_owned()),
            message: None,
            operation: None,
        });
        Ok(())
    }

    fn node(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let name = words.need("a name")?.to_owned();
        if words.take("gone") {
            self.world.nodes.remove(&name);
            return Ok(());
        }
        let node = self.world.nodes.entry(name.clone()).or_insert_with(|| Node {
            uid: format!("uid-{name}"),
            provider_id: default_id(&name),
            ready: true,
            ..Node::default()
        });
        let mut node = std::mem::take(node);
        let mut holds = None;
        while let Some(word) = words.next() {
            match word {
                "holds" => holds = Some(self.holds(&name, &mut node, words)?),
                _ => node_word(&mut node, word, words)?,
            }
        }
        let id = node.provider_id.clone();
        self.world.nodes.insert(name, node);
        if let Some(address) = holds {
            self.see(address, attached(&id, address));
        }
        Ok(())
    }

    /// `holds .1` is the cloud's word alone; `holds .1 for voice` also has the marks and the status
    /// that a settled attachment has.
    fn holds(&mut self, name: &str, node: &mut Node, words: &mut Words<'_>) -> Result<IpAddr, String> {
        let address = words.address()?;
        if words.take("for") {
            let allocation = words.need("an allocation")?;
            mark(node, allocation, address);
            let id = node.provider_id.clone();
            self.remember(allocation, address, name, self.now.plus_seconds(-3600))?;
            // The node is not in the world while its line is read, so its ID is put in here.
            let status = self
                .world
                .allocations
                .get_mut(allocation)
                .map(|found| &mut found.status);
            if let Some(entry) = status.and_then(|status| status.ips.last_mut()) {
                entry.provider_id = Some(id);
            }
        }
        Ok(address)
    }

    fn pod(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let name = words.need("a name")?.to_owned();
        let uid = format!("uid-{name}");
        if words.take("gone") {
            self.world.pods.remove(&uid);
            return Ok(());
        }
        let mut pod = match self.world.pods.remove(&uid) {
            Some(pod) => pod,
            None => self.new_pod(&name, words)?,
        };
        while let Some(word) = words.next() {
            match word {
                "created" => pod.created = self.ago(words)?,
                "on" => pod.node = Some(words.need("a node")?.to_owned()),
                "starting" => pod.ready = false,
                "ready" => pod.ready = true,
                "finished" => (pod.finished, pod.ready) = (true, false),
                "terminating" => pod.deleting = true,
                "bare" => pod.injected = None,
                "requires" => pod.injected = Some(names(words.need("names")?)),
                other => return Err(format!("`{other}` is nothing that a pod has")),
            }
            if matches!(word, "bare" | "requires") {
                self.injected.remove(&uid);
            }
        }
        pod.ready &= pod.node.is_some();
        self.world.pods.insert(uid, pod);
        Ok(())
    }

    fn new_pod(&mut self, name: &str, words: &mut Words<'_>) -> Result<Pod, String> {
        words.expect("of")?;
        let workload = workload_key(words.need("a workload")?)?;
        self.injected.insert(format!("uid-{name}"));
        Ok(Pod {
            namespace: workload.namespace.clone(),
            name: name.to_owned(),
            workload,
            node: None,
            finished: false,
            ready: true,
            deleting: false,
            created: self.now.plus_seconds(-3600),
            injected: None,
        })
    }

    fn workload(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let key = workload_key(words.need("a workload")?)?;
        let mut workload = self.world.workloads.remove(&key).unwrap_or_default();
        while let Some(word) = words.next() {
            match word {
                "tolerates" => {
                    let toleration = toleration(words.need("a toleration")?);
                    let toleration = serde_json::from_value(toleration);
                    workload
                        .tolerations
                        .push(toleration.map_err(|why| why.to_string())?);
                }
                "bare" => workload.injected = None,
                "requires" => workload.injected = Some(names(words.need("names")?)),
                "missing" => {
                    self.unread.insert(format!("{key:?}"));
                    return Ok(());
                }
                other => return Err(format!("`{other}` is nothing that a workload has")),
            }
        }
        self.world.workloads.insert(key, workload);
        Ok(())
    }

    fn cloud(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let address = words.address()?;
        let view = match words.need("what it says")? {
            "free" => free(address),
            "on" => {
                let id = self.provider_id(words.need("an instance")?);
                attached(&id, address)
            }
            "elsewhere" => AddressView::HeldByOther {
                holder: words.need("a holder")?.to_owned(),
            },
            "missing" => AddressView::NotFound,
            "unknown" => AddressView::Unknown {
                message: "503".to_owned(),
            },
            "unread" => {
                self.unread.insert(address.to_string());
                self.world.addresses.remove(&address);
                return Ok(());
            }
            other => return Err(format!("`{other}` is nothing that a cloud says of an address")),
        };
        self.see(address, view);
        if words.take("seen") {
            let at = self.ago(words)?;
            self.pinned.insert(address.to_string());
            self.world
                .addresses
                .entry(address)
                .and_modify(|seen| seen.at = at);
        }
        Ok(())
    }

    fn see(&mut self, address: IpAddr, view: AddressView) {
        self.unread.remove(&address.to_string());
        self.world.addresses.insert(address, Seen { view, at: self.now });
    }

    fn instance(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let id = self.provider_id(words.need("an instance")?);
        let view = match words.need("what the cloud says")? {
            "running" => InstanceView::Running { refuses: None },
            "refuses" => {
                let reason = reason(words.need("a reason")?)?;
                InstanceView::Running {
                    refuses: Some((reason, "the cloud said so".to_owned())),
                }
            }
            "stopped" => InstanceView::Stopped,
            "missing" => InstanceView::NotFound,
            "unknown" => InstanceView::Unknown,
            "unread" => {
                self.world.instances.remove(&id);
                self.unread.insert(id);
                return Ok(());
            }
            other => return Err(format!("`{other}` is nothing that a cloud says of an instance")),
        };
        self.unread.remove(&id);
        self.world.instances.insert(id, Seen { view, at: self.now });
        Ok(())
    }

    /// `wrote attach .1 n2 1s ago`: it worked.
    fn wrote(&mut self, words: &mut Words<'_>) -> Result<(IpAddr, String), String> {
        let kind = match words.need("attach or detach")? {
            "attach" => WriteKind::Attach,
            "detach" => WriteKind::Detach,
            other => return Err(format!("`{other}` is no write")),
        };
        let address = words.address()?;
        let provider_id = self.provider_id(words.need("an instance")?);
        let write = LastWrite {
            at: self.ago(words)?,
            kind,
            provider_id: provider_id.clone(),
            succeeded: true,
        };
        self.world.last_write.insert(address, write);
        Ok((address, provider_id))
    }

    /// `failed attach .1 n2 1s ago Permanent [attempts 3] [retry-after 60s]`.
    fn failed(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let (address, provider_id) = self.wrote(words)?;
        let Some(write) = self.world.last_write.get_mut(&address) else {
            return Ok(());
        };
        write.succeeded = false;
        let at = write.at;
        let class = class(words.need("a class")?)?;
        let attempts = if words.take("attempts") {
            words.number()?
        } else {
            1
        };
        let retry_after = words.take("retry-after").then(|| words.seconds()).transpose()?;
        let failure = Failure {
            at,
            attempts,
            class,
            message: "the cloud said no".to_owned(),
            retry_after,
        };
        self.world.failures.insert((address, provider_id), failure);
        Ok(())
    }

    fn flying(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        if words.take("nothing") {
            self.world.in_flight.clear();
            return Ok(());
        }
        let address = words.address()?;
        let provider_id = self.provider_id(words.need("an instance")?);
        self.world.in_flight.push(InFlight { address, provider_id });
        Ok(())
    }

    /// What nobody mentioned is as it usually is: listed addresses are free, instances run, workloads
    /// exist, pods and DaemonSets have the requirement of their allocations.
    fn fill(&mut self) {
        let world = &mut self.world;
        let mut users: BTreeMap<WorkloadKey, BTreeSet<String>> = BTreeMap::new();
        for (name, allocation) in &world.allocations {
            let Ok(spec) = &allocation.spec else { continue };
            if let Some(key) = &spec.workload {
                users.entry(key.clone()).or_default().insert(name.clone());
            }
            for address in spec
                .addresses
                .iter()
                .filter(|a| !self.unread.contains(&a.to_string()))
            {
                let seen = Seen {
                    view: free(*address),
                    at: self.now,
                };
                world.addresses.entry(*address).or_insert(seen);
            }
        }
        for id in world
            .nodes
            .values()
            .map(|node| &node.provider_id)
            .filter(|id| !self.unread.contains(*id))
        {
            let view = InstanceView::Running { refuses: None };
            let seen = Seen { view, at: self.now };
            world.instances.entry(id.clone()).or_insert(seen);
        }
        for (uid, pod) in &mut world.pods {
            if self.injected.remove(uid) {
                pod.injected = users.get(&pod.workload).cloned();
            }
        }
        for (key, names) in users {
            if !self.unread.contains(&format!("{key:?}")) {
                world.workloads.entry(key.clone()).or_insert_with(|| Workload {
                    tolerations: Vec::new(),
                    injected: (key.kind == WorkloadKind::DaemonSet).then_some(names),
                });
            }
        }
    }

    /// The provider ID of a node, of a node that is gone, or one written in full.
    pub fn provider_id(&self, name: &str) -> String {
        match self.world.nodes.get(name) {
            Some(node) if !node.provider_id.is_empty() => node.provider_id.clone(),
            _ if name.contains("://") => name.to_owned(),
            _ => default_id(name),
        }
    }
}

fn default_id(name: &str) -> String {
    format!("gce://project/zone/{name}")
}

pub fn free(address: IpAddr) -> AddressView {
    AddressView::Free {
        token: format!("free {}", short(address)),
    }
}

pub fn attached(provider_id: &str, address: IpAddr) -> AddressView {
    AddressView::Attached {
        provider_id: provider_id.to_owned(),
        token: format!("{} on {provider_id}", short(address)),
    }
}

/// Gives a node the marks of an attached address.
pub fn mark(node: &mut Node, allocation: &str, address: IpAddr) {
    node.labels
        .insert(crds::LABEL_READY.to_owned(), "true".to_owned());
    node.labels
        .insert(crds::LABEL_ALLOCATION.to_owned(), allocation.to_owned());
    node.reserved_ip = Some(address.to_string());
}

pub fn unmark(node: &mut Node) {
    node.labels.remove(crds::LABEL_READY);
    node.labels.remove(crds::LABEL_ALLOCATION);
    node.reserved_ip = None;
}

fn node_word(node: &mut Node, word: &str, words: &mut Words<'_>) -> Result<(), String> {
    let labels = &mut node.labels;
    match word {
        "zone" => {
            let zone = words.need("a zone")?.to_owned();
            labels.insert("topology.kubernetes.io/zone".to_owned(), zone);
        }
        "region" => {
            let region = words.need("a region")?.to_owned();
            labels.insert("topology.kubernetes.io/region".to_owned(), region);
        }
        "label" => {
            let (key, value) = pair(words.need("a label")?);
            labels.insert(key, value);
        }
        "unlabel" => {
            let key = words.need("a label")?;
            labels
                .remove(key)
                .ok_or_else(|| format!("it has no label {key}"))?;
        }
        "marked" => {
            let allocation = words.need("an allocation")?;
            mark(node, allocation, words.address()?);
        }
        "unmarked" => unmark(node),
        "cordoned" => node.unschedulable = true,
        "uncordoned" => node.unschedulable = false,
        "notready" => node.ready = false,
        "ready" => node.ready = true,
        "deleting" => node.deleting = true,
        "uid" => node.uid = words.need("a UID")?.to_owned(),
        "id" => node.provider_id = words.need("a provider ID")?.to_owned(),
        "no-id" => node.provider_id.clear(),
        "taint" => node.taints.push(taint(words.need("a taint")?)?),
        "untainted" => node.taints.clear(),
        other => return Err(format!("`{other}` is nothing that a node has")),
    }
    Ok(())
}

fn spec_word(spec: &mut Map<String, Value>, word: &str, words: &mut Words<'_>) -> Result<(), String> {
    let (path, value): (&[&str], Value) = match word {
        "ips" => {
            let mut list = Vec::new();
            while words
                .peek()
                .is_some_and(|word| crate::notation::address(word).is_some())
            {
                list.push(words.address()?.to_string());
            }
            (&["reservedIPs"], json!(list))
        }
        "workload" => (&["workloadRef"], reference(words.need("a workload")?)?),
        "selector" => {
            let (key, value) = pair(words.need("a label")?);
            (&["nodeSelector"], json!({ key: value }))
        }
        "provider" => (&["cloud", "provider"], json!(words.need("a provider")?)),
        "region" => (&["cloud", "region"], json!(words.need("a region")?)),
        "zones" => (&["cloud", "zones"], json!(names(words.need("zones")?))),
        "grace" => (&["failover", "notReadyGraceSeconds"], json!(words.seconds()?)),
        "drain-timeout" => (&["failover", "drainTimeoutSeconds"], json!(words.seconds()?)),
        "min-hold" => (&["failover", "minHoldSeconds"], json!(words.seconds()?)),
        "storm" => (
            &["failover", "stormThresholdPercent"],
            json!(words.number::<i64>()?),
        ),
        "max-unavailable" => (&["strategy", "maxUnavailable"], json!(words.number::<i64>()?)),
        "interval" => (&["reconcileInterval"], json!(words.seconds()?)),
        "tolerates" => {
            let mut list: Vec<Value> = Vec::new();
            if words.peek() == Some("nothing") {
                words.next();
            } else {
                list.push(toleration(words.need("a toleration")?));
            }
            (&["tolerations"], json!(list))
        }
        "no-eviction" => (&["eviction"], json!("Disabled")),
        "retain" => (&["releasePolicy"], json!("Retain")),
        "plan-only" => (&["mode"], json!("Plan")),
        "enforced" => (&["mode"], json!("Enforce")),
        "paused" => (&["paused"], json!(true)),
        "resumed" => (&["paused"], json!(false)),
        "terms" => {
            let terms = serde_json::from_str(words.need("JSON")?).map_err(|why| why.to_string())?;
            (&["nodeSelectorTerms"], json!([Value::Object(terms)]))
        }
        "also" => {
            let fields = serde_json::from_str(words.need("JSON")?).map_err(|why| why.to_string())?;
            let fields: Map<String, Value> = fields;
            spec.extend(fields);
            return Ok(());
        }
        other => return Err(format!("`{other}` is nothing that an allocation has")),
    };
    set(spec, path, value);
    Ok(())
}

fn set(object: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [field] => {
            object.insert((*field).to_owned(), value);
        }
        [field, rest @ ..] => {
            let inner = object.entry(*field).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// `Deployment/sip` is in namespace default, `Deployment/media/sip` in namespace media.
pub fn workload_key(word: &str) -> Result<WorkloadKey, String> {
    let parts: Vec<&str> = word.split('/').collect();
    let (kind, namespace, name) = match parts[..] {
        [kind, name] => (kind, "default", name),
        [kind, namespace, name] => (kind, namespace, name),
        _ => return Err(format!("`{word}` is no workload such as Deployment/sip")),
    };
    let kind = serde_json::from_value(json!(kind)).map_err(|why| why.to_string())?;
    Ok(WorkloadKey {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

pub fn workload_word(key: &WorkloadKey) -> String {
    match key.namespace.as_str() {
        "default" => format!("{:?}/{}", key.kind, key.name),
        namespace => format!("{:?}/{namespace}/{}", key.kind, key.name),
    }
}

fn reference(word: &str) -> Result<Value, String> {
    let key = workload_key(word)?;
    Ok(json!({"kind": key.kind, "namespace": key.namespace, "name": key.name}))
}

fn names(word: &str) -> BTreeSet<String> {
    word.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn pair(word: &str) -> (String, String) {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    (key.to_owned(), value.to_owned())
}

/// `key:NoSchedule` or `key=value:NoExecute`.
fn taint(word: &str) -> Result<Taint, String> {
    let (label, effect) = word
        .rsplit_once(':')
        .ok_or("a taint has an effect, e.g. role=sip:NoSchedule")?;
    let (key, value) = pair(label);
    Ok(Taint {
        key,
        value,
        effect: effect.to_owned(),
    })
}

/// `everything`, `key`, `key=value`, `key:Effect` or `key=value:Effect`.
fn toleration(word: &str) -> Value {
    if word == "everything" {
        return json!({"operator": "Exists"});
    }
    let (label, effect) = match word.rsplit_once(':') {
        Some((label, effect)) => (label, Some(effect)),
        None => (word, None),
    };
    let mut toleration = match label.split_once('=') {
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": label, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    toleration
}

pub fn reason(word: &str) -> Result<Reason, String> {
    Reason::from_name(word).ok_or_else(|| format!("`{word}` is no reason"))
}

fn class(word: &str) -> Result<FailureClass, String> {
    Ok(match word {
        "Throttled" => FailureClass::Throttled,
        "Transient" => FailureClass::Transient,
        "Conflict" => FailureClass::Conflict,
        "Permanent" => FailureClass::Permanent,
        "Denied" => FailureClass::Denied,
        other => return Err(format!("`{other}` is no class of failures")),
    })
}
