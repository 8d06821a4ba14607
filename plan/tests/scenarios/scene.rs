//! Builds the world that a scenario describes, line by line.

use crate::notation::{Line, Words};
use crate::vocabulary::{
    attached, class, default_id, free, mark, names, node_word, reason, spec_word, toleration, workload_key,
};
use crds::{IpStatus, WorkloadKind};
use plan::{
    AddressView, Allocation, Failure, InFlight, InstanceView, LastEviction, LastWrite, Node, Pod, Reason,
    RefusedEviction, Seen, Time, Workload, WorkloadKey, World, WriteKind,
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
                newcomer_seconds: 600,
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
                // Whoever is mentioned before this line was there then.
                let pods = self.world.pods.iter().filter(|(_, pod)| *pod.workload == key);
                let pods = pods.map(|(uid, _)| uid.clone()).collect();
                self.world.evicted.insert(key, LastEviction { at, pods });
                Ok(())
            }
            "refused" => {
                let uid = format!("uid-{}", words.need("a pod")?);
                let message = words.need("what was said")?.to_owned();
                self.world.refused_evictions.insert(uid, RefusedEviction { at: self.now, message });
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
        let mut allocation = self.world.allocations.remove(&name).unwrap_or_else(|| Allocation {
            uid: format!("uid-{name}"),
            created: self.now.plus_seconds(-86_400),
            generation: 0,
            deleting: false,
            has_finalizer: true,
            spec: Err(Vec::new()),
            status: std::sync::Arc::default(),
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
        let since = if words.peek().is_some() { self.ago(words)? } else { self.now.plus_seconds(-3600) };
        self.remember(name, address, node, since)
    }

    fn remember(&mut self, name: &str, address: IpAddr, node: &str, since: Time) -> Result<(), String> {
        let provider_id = self.provider_id(node);
        let allocation = self.world.allocations.get_mut(name);
        let allocation = allocation.ok_or_else(|| format!("there is no allocation {name} yet"))?;
        let address = address.to_string();
        let ips = &mut Arc::make_mut(&mut allocation.status).ips;
        ips.retain(|ip| ip.address != address);
        ips.push(IpStatus {
            address,
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
                "created" => node.created = self.ago(words)?,
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
            let status = self.world.allocations.get_mut(allocation).map(|found| &mut found.status);
            if let Some(entry) = status.and_then(|status| Arc::make_mut(status).ips.last_mut()) {
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
                "on" => pod.node = Some(words.need("a node")?.into()),
                "starting" => pod.ready = false,
                "ready" => pod.ready = true,
                "finished" => (pod.finished, pod.ready) = (true, false),
                "terminating" => pod.deleting = true,
                "bare" => pod.injected = None,
                "requires" => (pod.injected, pod.ours) = (Some(names(words.need("names")?)), true),
                "by-hand" => pod.ours = false,
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
            workload: workload.into(),
            node: None,
            finished: false,
            ready: true,
            deleting: false,
            created: self.now.plus_seconds(-3600),
            injected: None,
            ours: true,
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
                    workload.tolerations.push(toleration.map_err(|why| why.to_string())?);
                }
                "bare" => workload.injected = None,
                "requires" => (workload.injected, workload.ours) = (Some(names(words.need("names")?)), true),
                "by-hand" => workload.ours = false,
                "missing" => {
                    self.unread.insert(format!("{key:?}"));
                    return Ok(());
                }
                "unlisted" => {
                    let why = words.need("why")?.to_owned();
                    self.world.unlisted.insert(key.clone(), why);
                }
                "listed" => drop(self.world.unlisted.remove(&key)),
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
            "elsewhere" => AddressView::HeldByOther { holder: words.need("a holder")?.to_owned() },
            "missing" => AddressView::NotFound,
            "unknown" => AddressView::Unknown { message: "503".to_owned() },
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
            self.world.addresses.entry(address).and_modify(|seen| seen.at = at);
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
                InstanceView::Running { refuses: Some((reason, "the cloud said so".to_owned())) }
            }
            "stopped" => InstanceView::Stopped,
            "missing" => InstanceView::NotFound,
            "unknown" => InstanceView::Unknown { message: words.next().unwrap_or_default().to_owned() },
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
        let write =
            LastWrite { at: self.ago(words)?, kind, provider_id: provider_id.clone(), succeeded: true };
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
        let attempts = if words.take("attempts") { words.number()? } else { 1 };
        let retry_after = words.take("retry-after").then(|| words.seconds()).transpose()?;
        let failure = Failure { at, attempts, class, message: "the cloud said no".to_owned(), retry_after };
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
            for address in spec.addresses.iter().filter(|a| !self.unread.contains(&a.to_string())) {
                let seen = Seen { view: free(*address), at: self.now };
                world.addresses.entry(*address).or_insert(seen);
            }
        }
        for id in world.nodes.values().map(|node| &node.provider_id).filter(|id| !self.unread.contains(*id)) {
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
                    ours: true,
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
