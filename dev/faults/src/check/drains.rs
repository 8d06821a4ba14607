//! Nodes that are emptied.

use super::Found;
use crate::history::{Call, History, Outcome, Purpose, Spec, What, Workload};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Whoever decides may not know yet of a pod that came to a node so shortly before.
const UNSEEN: SignedDuration = SignedDuration::from_secs(5);

/// A pod that has not ended.
struct Pod<'h> {
    workload: Option<&'h Workload>,
    grace: i64,
    on: Option<(&'h str, Timestamp)>,
}

/// What is so at a moment.
#[derive(Default)]
struct Now<'h> {
    /// Since when nodes take no pods.
    cordoned: BTreeMap<&'h str, Timestamp>,
    over: BTreeMap<&'h str, bool>,
    /// By node and allocation, where somebody counted.
    counted: BTreeMap<(&'h str, &'h str), usize>,
    pods: BTreeMap<&'h str, Pod<'h>>,
}

/// I6. No detach of ours is accepted from a cordoned node on which pods of the workload run, unless the time for
/// the drain is over, or the allocation does not want the address any more.
pub fn drained_first(history: &History) -> Found {
    let mut found = Vec::new();
    let mut now = Now::default();
    for (at, event) in history.events.iter().enumerate() {
        if let What::Call(call) = &event.what
            && is_our_detach(history, call)
            && let Some(what) = too_early(history, &now, call, at)
        {
            found.push((event.at, what));
        }
        now.see(&event.what, event.at);
    }
    found
}

impl<'h> Now<'h> {
    fn see(&mut self, what: &'h What, at: Timestamp) {
        match what {
            What::Cordon { node, cordoned: true } => {
                self.cordoned.entry(node).or_insert(at);
                self.over.insert(node, false);
            }
            What::Cordon { node, cordoned: false } | What::NodeGone { name: node } => {
                self.cordoned.remove(node.as_str());
            }
            What::DrainOver { node } => drop(self.over.insert(node, true)),
            What::Pods { node, allocation, running } => {
                self.counted.insert((node, allocation), *running);
            }
            What::Pod { pod, workload, grace } => {
                let on = self.pods.get(pod.as_str()).and_then(|pod| pod.on);
                self.pods.insert(pod, Pod { workload: workload.as_ref(), grace: *grace, on });
            }
            What::Bound { pod, node } => {
                let pod = self.pods.entry(pod).or_insert(Pod { workload: None, grace: 30, on: None });
                pod.on = Some((node, at));
            }
            What::PodEnds { pod, gone } => {
                let at_once = self.pods.get(pod.as_str()).is_some_and(|pod| pod.grace == 0);
                if *gone || at_once {
                    self.pods.remove(pod.as_str());
                }
            }
            _ => {}
        }
    }

    /// Pods of an allocation's workload on a node that whoever decides now has to know of.
    fn running(&self, node: &str, spec: Option<&Spec>, at: Timestamp) -> usize {
        let workload = spec.and_then(|spec| spec.workload.as_ref());
        let since = self.cordoned.get(node).copied().unwrap_or(at);
        let is = |pod: &&Pod<'h>| {
            pod.workload.is_some()
                && pod.workload == workload
                && pod.on.is_some_and(|(on, bound)| {
                    on == node && (bound < since || at.duration_since(bound) > UNSEEN)
                })
        };
        self.pods.values().filter(is).count()
    }
}

/// Why an address may not leave yet.
fn too_early(history: &History, now: &Now<'_>, call: &Call, at: usize) -> Option<String> {
    let time = history.events[at].at;
    let node = history.node_of(call.instance.as_deref()?, at)?;
    let since = now.cordoned.get(node)?;
    let address = call.address?;
    // Whoever does not want it any more waits for nobody.
    let allocation = history.owners(address, at).next()?;
    let spec = history.spec(allocation, None, at);
    let patience = spec.and_then(|spec| spec.drain).and_then(|drain| SignedDuration::try_from(drain).ok());
    let over = now.over.get(node).copied().unwrap_or(false)
        || patience.is_some_and(|patience| time.duration_since(*since) >= patience);
    let counted = now.counted.get(&(node, allocation)).copied().unwrap_or(0);
    let pods = counted + now.running(node, spec, time);
    (pods > 0 && !over).then(|| format!("{address} leaves {node}, where {pods} pods run"))
}

fn is_our_detach(history: &History, call: &Call) -> bool {
    history.scope.is_ours(&call.caller)
        && call.purpose == Purpose::Detach
        && !matches!(call.outcome, Outcome::Refused(_))
}
