//! Events: one for each thing that happened, told from the statuses before and after.

use crds::{IpStatus, NetIPAllocationStatus};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType, Recorder};
use plan::{Eviction, Reason};
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::sync::mpsc;
use tracing::debug;

/// The allocation, for its events.
pub fn reference(meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(crds::NetIPAllocation::api_version(&()).into_owned()),
        kind: Some("NetIPAllocation".to_owned()),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

/// What may wait to be told before what is new is not told at all.
const WAITING: usize = 512;
/// Told at once.
const AT_ONCE: usize = 2;
/// How long the API server may take for one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells events, a few at a time. One that is late or lost holds up nothing, and however much happens at once,
/// the API server gets only so many: what happened is in the status too.
#[derive(Clone)]
pub struct Teller {
    queue: mpsc::Sender<(Event, ObjectReference)>,
    metrics: Metrics,
}

impl Teller {
    /// The second part is to be run.
    pub fn new(recorder: Recorder, metrics: Metrics) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, waiting) = mpsc::channel::<(Event, ObjectReference)>(WAITING);
        let waiting =
            futures::stream::unfold(waiting, async |mut waiting| Some((waiting.recv().await?, waiting)));
        let telling = waiting.for_each_concurrent(AT_ONCE, move |(event, about)| {
            let recorder = recorder.clone();
            async move {
                match tokio::time::timeout(PATIENCE, recorder.publish(&event, &about)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!("event {}: {error}", event.reason),
                    Err(_) => debug!("event {}: no answer", event.reason),
                }
            }
        });
        (Self { queue, metrics }, telling)
    }

    /// Tells what changed.
    pub fn tell(
        &self,
        about: &ObjectReference,
        before: &NetIPAllocationStatus,
        after: &NetIPAllocationStatus,
    ) {
        for event in between(before, after) {
            self.send(event, about.clone());
        }
    }

    /// Tells of a pod that was made to go, and why: who looks for it finds this.
    pub fn tell_eviction(&self, eviction: &Eviction) {
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(eviction.namespace.clone()),
            name: Some(eviction.name.clone()),
            uid: Some(eviction.uid.clone()),
            ..ObjectReference::default()
        };
        let cause = eviction.cause;
        self.send(event(EventType::Normal, cause.as_str(), "Evict", cause.meaning()), pod);
    }

    fn send(&self, event: Event, about: ObjectReference) {
        if self.queue.try_send((event, about)).is_err() {
            self.metrics.events_dropped.with_label_values::<&str>(&[]).inc();
        }
    }
}

/// What happened between two statuses.
fn between(before: &NetIPAllocationStatus, after: &NetIPAllocationStatus) -> Vec<Event> {
    let mut events = Vec::new();
    for ip in &after.ips {
        let was = before.ips.iter().find(|was| was.address == ip.address);
        events.extend(begun(was, ip));
        events.extend(arrived(was, ip));
    }
    events.extend(released(before, after));
    events.extend(conditions(before, after));
    events
}

fn begun(was: Option<&IpStatus>, is: &IpStatus) -> Option<Event> {
    let operation = is.operation.as_ref()?;
    let known = was.and_then(|was| was.operation.as_ref()).is_some_and(|known| known.id == operation.id);
    if known {
        return None;
    }
    let (from, to) = (operation.from.as_deref(), operation.to.as_deref());
    let way = match (from, to) {
        (Some(from), Some(to)) => format!("moves from node {from} to node {to}"),
        (None, Some(to)) => format!("is being attached to node {to}"),
        (Some(from), None) => format!("is being taken from node {from}"),
        (None, None) => return None,
    };
    let why = Reason::from_name(&operation.cause).map(Reason::meaning).unwrap_or_default();
    Some(event(EventType::Normal, &operation.cause, "Move", &format!("{} {way}: {why}", is.address)))
}

fn arrived(was: Option<&IpStatus>, is: &IpStatus) -> Option<Event> {
    let node = is.node.as_ref().filter(|_| is.state == "Attached")?;
    let same = was.is_some_and(|was| was.node.as_ref() == Some(node) && was.state == "Attached");
    let adopted = is.reason.as_deref() == Some(Reason::Adopted.as_str());
    let reason = if adopted { Reason::Adopted } else { Reason::Attached };
    let words = format!("{} is attached to node {node}", is.address);
    // A word that was missing for a while and is the same as before is no news.
    let recovered = was.is_some_and(|was| was.state == "Unknown" && was.node.as_ref() == Some(node));
    (!same && !recovered).then(|| event(EventType::Normal, reason.as_str(), "Attach", &words))
}

fn released<'s>(
    before: &'s NetIPAllocationStatus,
    after: &'s NetIPAllocationStatus,
) -> impl Iterator<Item = Event> + 's {
    let listed = |address: &str| after.ips.iter().any(|ip| ip.address == address);
    before.ips.iter().filter(move |ip| ip.node.is_some() && !listed(&ip.address)).map(|ip| {
        let node = ip.node.as_deref().unwrap_or_default();
        let words = format!("{} is not held for this allocation any more (was on node {node})", ip.address);
        event(EventType::Normal, "Released", "Release", &words)
    })
}

/// Troubles that began, and that Ready was reached, or is out of reach.
fn conditions<'s>(
    before: &'s NetIPAllocationStatus,
    after: &'s NetIPAllocationStatus,
) -> impl Iterator<Item = Event> + 's {
    after.conditions.iter().filter_map(|condition| {
        let was = before.conditions.iter().find(|was| was.type_ == condition.type_);
        let is_true = condition.status == "True";
        let same = was.is_some_and(|was| was.status == condition.status && was.reason == condition.reason);
        let kind = match condition.type_.as_str() {
            "Degraded" | "Conflict" if is_true => EventType::Warning,
            "Ready" if is_true && condition.reason == Reason::AllAttached.as_str() => EventType::Normal,
            "Ready" if is_true || waits_for_a_node(&condition.reason) => EventType::Warning,
            _ => return None,
        };
        (!same).then(|| event(kind, &condition.reason, "Observe", &condition.message))
    })
}

/// Whether somebody has to look for a node: what is in the way is in the message.
fn waits_for_a_node(reason: &str) -> bool {
    let reasons = [Reason::NoEligibleNode, Reason::MoreAddressesThanNodes, Reason::WaitingForTarget];
    reasons.iter().any(|waiting| waiting.as_str() == reason)
}

fn event(type_: EventType, reason: &str, action: &str, note: &str) -> Event {
    // The API server takes notes of up to 1,024 bytes.
    let end = note.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= 1024).last();
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note[..end.unwrap_or_default()].to_owned()),
        action: action.to_owned(),
        secondary: None,
    }
}
