//! What a plan wants to be written to the API server, most urgent first, as far as there are permits.

use super::publish::{Answer, Target, Writer};
use super::state::State;
use super::writes::{Permit, Urgency};
use super::{Controller, Evicting};
use crds::{NetIPAllocationStatus, Operation};
use plan::{Eviction, FinalizerChange, NodeMarks, Plan, Reason, TemplateChange, WorkloadKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// One thing to write.
enum Offer {
    Finalizer(FinalizerChange),
    Marks(NodeMarks),
    Status {
        name: String,
        status: Arc<NetIPAllocationStatus>,
        /// The version that the status was made for.
        version: String,
    },
    Evict(Eviction, BTreeSet<String>),
    Template(TemplateChange),
}

impl Offer {
    fn target(&self) -> Target {
        match self {
            Self::Finalizer(change) => Target::Allocation(change.allocation.clone()),
            Self::Marks(marks) => Target::Node(marks.node.clone()),
            Self::Status { name, .. } => Target::Allocation(name.clone()),
            Self::Evict(eviction, _) => {
                Target::Pod { namespace: eviction.namespace.clone(), uid: eviction.uid.clone() }
            }
            Self::Template(change) => Target::Template(change.workload.clone()),
        }
    }

    /// The namespace that it is written to; empty: none.
    fn namespace(&self) -> &str {
        match self {
            Self::Finalizer(_) | Self::Marks(_) | Self::Status { .. } => "",
            Self::Evict(eviction, _) => &eviction.namespace,
            Self::Template(change) => &change.workload.namespace,
        }
    }
}

/// So many writes to one namespace wait for it; the next plan offers the others again. All that wait are looked at
/// whenever a write has ended.
const MOST_WAITING: usize = 64;

/// What the last plan offered and found no permit for. It is dropped when the next plan is made; until then
/// permits that are given back are used without one.
#[derive(Default)]
pub struct Offers {
    waiting: VecDeque<Offer>,
    /// Writes under way that nobody waits for.
    idle: BTreeSet<Target>,
}

impl Offers {
    /// What waits is not written any more.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Whether a write is under way that nobody waits for.
    pub fn is_idle(&self, target: &Target) -> bool {
        self.idle.contains(target)
    }

    /// A write has ended; whether it was one that nobody waited for.
    pub fn ended(&mut self, target: &Target) -> bool {
        self.idle.remove(target)
    }
}

/// The writes of a plan, in the order in which they are begun.
#[derive(Default)]
struct Sorted {
    /// A move waits for these: claims, marks, and the finalizers that come before both.
    urgent: Vec<Offer>,
    /// Pods and templates, then what nobody waits for.
    idle: VecDeque<Offer>,
}

impl Sorted {
    /// Sorts what a plan wants to be written. An address that is awaited has not been read yet: nothing is said of
    /// it until then.
    fn new(plan: &mut Plan, state: &State, is_awaited: impl Fn(&IpAddr) -> bool) -> Self {
        let moving = moving(plan);
        let mut sorted = Self { urgent: Vec::new(), idle: pod_offers(plan, state).into() };
        for change in std::mem::take(&mut plan.finalizers) {
            let is_urgent = change.present && moving.contains(&change.allocation);
            sorted.add(Offer::Finalizer(change), is_urgent);
        }
        for (name, status) in &plan.statuses {
            if let Some((offer, is_urgent)) = status_offer(state, name, status, &is_awaited) {
                sorted.add(offer, is_urgent);
            }
        }
        // Claims come first: a slow webhook on nodes must not hold up moves that wait for no marks.
        sorted.urgent.extend(std::mem::take(&mut plan.labels).into_iter().map(Offer::Marks));
        sorted
    }

    fn add(&mut self, offer: Offer, is_urgent: bool) {
        if is_urgent { self.urgent.push(offer) } else { self.idle.push_back(offer) }
    }
}

/// The status of an allocation, if it differs, and whether a move waits for it.
fn status_offer(
    state: &State,
    name: &str,
    status: &Arc<NetIPAllocationStatus>,
    is_awaited: impl Fn(&IpAddr) -> bool,
) -> Option<(Offer, bool)> {
    let object = state.world.allocations.get(name)?;
    // The planner gives back the very same where nothing is to be said.
    if Arc::ptr_eq(&object.status, status) || object.status == *status {
        return None;
    }
    let mut addresses = object.spec.iter().flat_map(|spec| &spec.addresses);
    if addresses.any(is_awaited) {
        return None;
    }
    let version = state.version(name)?.to_owned();
    let is_urgent = operations(&object.status).ne(operations(status));
    Some((Offer::Status { name: name.to_owned(), status: status.clone(), version }, is_urgent))
}

/// Evictions, deletions and templates; each eviction with the pods that its workload has now.
fn pod_offers(plan: &mut Plan, state: &State) -> Vec<Offer> {
    let world = &state.world;
    let evictions = std::mem::take(&mut plan.evictions);
    let mut pods: BTreeMap<_, BTreeSet<String>> =
        evictions.iter().map(|eviction| (eviction.workload.clone(), BTreeSet::new())).collect();
    if !pods.is_empty() {
        for (uid, pod) in &world.pods {
            if let Some(of_workload) = pods.get_mut(&*pod.workload) {
                of_workload.insert(uid.clone());
            }
        }
    }
    let evictions = evictions.into_iter().map(|eviction| {
        let pods = pods.get(&eviction.workload).cloned().unwrap_or_default();
        Offer::Evict(eviction, pods)
    });
    // Of what is not listed nobody can say what is in its template.
    let templates = std::mem::take(&mut plan.daemon_sets).into_iter();
    let listed = templates.filter(|change| !world.unlisted.contains_key(&change.workload));
    evictions.chain(listed.map(Offer::Template)).collect()
}

impl Controller {
    /// Begins the writes of a plan: claims, marks and finalizers of moves, then pods and templates, then what
    /// can wait.
    pub(super) fn offer(&mut self, plan: &mut Plan) {
        let Sorted { urgent, idle } = Sorted::new(plan, &self.state, |address| self.accounts.awaits(address));
        for offer in urgent {
            self.send(&offer, Urgency::Urgent);
        }
        self.offers.waiting = idle;
        self.serve();
    }

    /// Uses the permits that there are for what the last plan wanted to write and no move waits for.
    pub(super) fn serve(&mut self) {
        let mut later = VecDeque::new();
        let mut of_namespace: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(offer) = self.offers.waiting.pop_front() {
            match self.send(&offer, Urgency::Idle) {
                Permit::Granted | Permit::Busy => {}
                Permit::Later => {
                    let waiting = of_namespace.entry(offer.namespace().to_owned()).or_default();
                    *waiting += 1;
                    if *waiting <= MOST_WAITING {
                        later.push_back(offer);
                    }
                }
                Permit::Full => {
                    later.push_back(offer);
                    break;
                }
            }
        }
        later.append(&mut self.offers.waiting);
        self.offers.waiting = later;
    }

    /// Whether a pod of the workload was told to go and nobody knows yet what became of it: misplaced pods go one
    /// by one.
    fn is_evicting(&self, workload: &WorkloadKey) -> bool {
        let now = Instant::now();
        let open = |evicting: &Evicting| evicting.until.is_none_or(|until| until > now);
        let of_it = |evicting: &&Evicting| evicting.eviction.workload == *workload && open(evicting);
        self.evicting.values().any(|evicting| of_it(&evicting))
    }

    /// Sends a write if it may be sent.
    fn send(&mut self, offer: &Offer, urgency: Urgency) -> Permit {
        let target = offer.target();
        if let Offer::Status { name, version, .. } = offer
            && self.state.version(name) != Some(version)
        {
            // It was made for what the object is not any more; the next plan makes another one.
            return Permit::Busy;
        }
        if let Offer::Evict(eviction, _) = offer
            && eviction.cause == Reason::Misplaced
            && self.is_evicting(&eviction.workload)
        {
            return Permit::Busy;
        }
        let permit = self.writes.begin(&target, urgency, Instant::now());
        if permit != Permit::Granted {
            return permit;
        }
        if urgency == Urgency::Idle {
            self.offers.idle.insert(target.clone());
        }
        let writer = self.writer.clone();
        match offer {
            Offer::Finalizer(change) => {
                let change = change.clone();
                self.write(target, async move { writer.finalizer(&change.allocation, change.present).await });
            }
            Offer::Marks(marks) => {
                let (marks, node) = (marks.clone(), self.state.world.nodes.get(&marks.node).cloned());
                self.write(target, async move { writer.marks(&marks, &node.unwrap_or_default()).await });
            }
            Offer::Status { name, status, version } => {
                let before = self.state.world.allocations.get(name).map(|object| object.status.clone());
                let (name, status, version) = (name.clone(), status.clone(), version.clone());
                let before = before.unwrap_or_default();
                self.write(target, async move { writer.status(&name, &version, before, status).await });
            }
            Offer::Evict(eviction, pods) => self.evict(target, writer, eviction.clone(), pods.clone()),
            Offer::Template(change) => {
                let change = change.clone();
                self.write(target, async move { writer.template(&change).await });
            }
        }
        permit
    }

    fn evict(&mut self, target: Target, writer: Writer, eviction: Eviction, pods: BTreeSet<String>) {
        let evicting = Evicting { eviction: eviction.clone(), pods, until: None };
        self.evicting.insert(eviction.uid.clone(), evicting);
        self.write(target, async move {
            match eviction.cause {
                Reason::Stranded => writer.delete(&eviction).await,
                _ => writer.evict(&eviction).await,
            }
        });
    }

    fn write<F>(&mut self, target: Target, write: F)
    where
        F: Future<Output = kube::Result<Option<Answer>>> + Send + 'static,
    {
        let writer = self.writer.clone();
        self.tasks.spawn(writer.run(target, write));
    }
}

/// The allocations of which an address is on the move.
fn moving(plan: &Plan) -> BTreeSet<String> {
    let moves = |status: &NetIPAllocationStatus| status.ips.iter().any(|ip| ip.operation.is_some());
    plan.statuses.iter().filter(|(_, status)| moves(status)).map(|(name, _)| name.clone()).collect()
}

/// What is under way, as far as anybody waits for it to be written down.
fn operations(status: &NetIPAllocationStatus) -> impl Iterator<Item = (&str, &Operation)> {
    status.ips.iter().filter_map(|ip| Some((ip.address.as_str(), ip.operation.as_ref()?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "offers_tests.rs"]
mod tests;
