//! `why`: the planner's own explanation of an address, and what follows from it for nodes and pods.

use super::lease::Controller;
use super::show::{Show, Style};
use super::snapshot::{Snapshot, list};
use super::status::workload_name;
use anyhow::{Result, bail};
use crds::{NetIPAllocationStatus, NodeRefusal};
use plan::{Pod, Reason, World};
use serde::Serialize;
use std::net::IpAddr;

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    controller: Controller,
    subject: String,
    /// What is so, one sentence each.
    facts: Vec<Fact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<Explained>,
}

/// A reason, and what it says here.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Fact {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    address: IpAddr,
    allocation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    reason: Reason,
    /// What it means, and what was said: the controller's own words, where it has published some.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also_listed_by: Vec<String>,
    /// Why nodes cannot take it, as the controller has published it: it knows what the cloud says of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusals: Vec<NodeRefusal>,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Serialize)]
struct Candidate {
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Reason>,
}

pub fn report(snapshot: &Snapshot, subject: &str, namespace: &str) -> Result<Report> {
    let world = &snapshot.world;
    let (facts, addresses) = match find(world, subject, namespace)? {
        Subject::Address(address) => (Vec::new(), vec![address]),
        Subject::Node(name) => (node_facts(snapshot, name), addresses_on(world, name)),
        Subject::Pod(pod) => (pod_facts(world, pod), addresses_of(world, pod)),
    };
    let explained: Vec<Explained> =
        addresses.into_iter().filter_map(|address| explain(snapshot, address)).collect();
    if facts.is_empty() && explained.is_empty() {
        bail!("no valid NetIPAllocation lists {subject}; `kubectl netip status` shows those that are there");
    }
    let controller = snapshot.controller.clone();
    Ok(Report { controller, subject: subject.to_owned(), facts, addresses: explained })
}

enum Subject<'w> {
    Address(IpAddr),
    Node(&'w str),
    Pod(&'w Pod),
}

fn find<'w>(world: &'w World, subject: &str, namespace: &str) -> Result<Subject<'w>> {
    if let Ok(address) = subject.parse() {
        return Ok(Subject::Address(address));
    }
    let node = |name: &str| world.nodes.get_key_value(name).map(|(name, _)| Subject::Node(name));
    let pod = |namespace: &str, name: &str| {
        let named = |pod: &&Pod| pod.namespace == namespace && pod.name == name;
        world.pods.values().find(named).map(Subject::Pod)
    };
    let found = match subject.split_once('/') {
        Some(("node" | "nodes", name)) => node(name),
        Some(("pod" | "pods", name)) => pod(namespace, name),
        Some((namespace, name)) => pod(namespace, name),
        None => node(subject).or_else(|| pod(namespace, subject)),
    };
    match found {
        Some(found) => Ok(found),
        None => bail!(
            "{subject} is no address, no node, and no pod (in namespace {namespace}) of a workload that a \
             NetIPAllocation refers to; give pods of other namespaces as NAMESPACE/POD"
        ),
    }
}

fn explain(snapshot: &Snapshot, address: IpAddr) -> Option<Explained> {
    let explanation = plan::explain(&snapshot.world, snapshot.time(), address)?;
    let status = snapshot.world.allocations.get(&explanation.allocation).map(|object| &object.status);
    let (reason, message) = status.and_then(|status| published(status, address)).unwrap_or_else(|| {
        let detail = &explanation.detail;
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        (explanation.reason, format!("{}{detail}", explanation.reason.meaning()))
    });
    let waits = explanation.node.is_none() || reason == Reason::WaitingForTarget;
    let refusals = status.filter(|_| waits).map(|status| status.refusals.clone()).unwrap_or_default();
    let candidates = explanation.candidates.into_iter();
    Some(Explained {
        address,
        allocation: explanation.allocation,
        node: explanation.node,
        reason,
        message,
        target: explanation.target.filter(|_| refusals.is_empty()),
        also_listed_by: explanation.also_listed_by,
        refusals,
        candidates: candidates.map(|c| Candidate { node: c.node, refusal: c.refusal }).collect(),
    })
}

/// What the controller last wrote of an address. It knows what the cloud says; we do not ask.
fn published(status: &NetIPAllocationStatus, address: IpAddr) -> Option<(Reason, String)> {
    let text = address.to_string();
    let record = status.ips.iter().find(|ip| ip.address == text)?;
    let reason = Reason::from_name(record.reason.as_deref()?)?;
    let message = record.message.as_deref().unwrap_or(reason.meaning());
    // Where it is stands above it already.
    let place = record.node.as_ref().map(|node| format!("On {node}. ")).unwrap_or_default();
    Some((reason, message.strip_prefix(&place).unwrap_or(message).to_owned()))
}

/// What keeps a node from holding an address of each allocation.
fn node_facts(snapshot: &Snapshot, name: &str) -> Vec<Fact> {
    let world = &snapshot.world;
    let mut facts: Vec<Fact> = Vec::new();
    for (allocation, object) in &world.allocations {
        let Ok(spec) = &object.spec else { continue };
        let explanations =
            spec.addresses.iter().filter_map(|address| plan::explain(world, snapshot.time(), *address));
        let Some(explanation) = explanations.into_iter().find(|e| e.allocation == *allocation) else {
            continue;
        };
        let refusal = explanation.candidates.into_iter().find(|c| c.node == name).and_then(|c| c.refusal);
        facts.push(match refusal {
            _ if addresses_on(world, name).iter().any(|address| spec.addresses.contains(address)) => {
                Fact { reason: None, text: format!("It holds an address of {allocation}.") }
            }
            Some(reason) => Fact {
                reason: Some(reason),
                text: format!("No address of {allocation}: {}", reason.meaning()),
            },
            None => plain(format!("It could hold an address of {allocation}, as far as Kubernetes knows.")),
        });
    }
    if facts.is_empty() {
        facts.push(Fact { reason: None, text: "There is no valid NetIPAllocation.".to_owned() });
    }
    facts
}

fn addresses_on(world: &World, node: &str) -> Vec<IpAddr> {
    let Some(node) = world.nodes.get(node) else { return Vec::new() };
    let here = |view: &plan::AddressView| matches!(view, plan::AddressView::Attached { provider_id, .. } if *provider_id == node.provider_id);
    world.addresses.iter().filter(|(_, seen)| here(&seen.view)).map(|(address, _)| *address).collect()
}

/// Allocations that refer to a pod's workload.
fn allocations_of<'w>(world: &'w World, pod: &Pod) -> Vec<&'w str> {
    let refers = |object: &plan::Allocation| {
        object.spec.as_ref().is_ok_and(|spec| spec.workload.as_ref() == Some(&*pod.workload))
    };
    world.allocations.iter().filter(|(_, object)| refers(object)).map(|(name, _)| name.as_str()).collect()
}

fn addresses_of(world: &World, pod: &Pod) -> Vec<IpAddr> {
    let names = allocations_of(world, pod);
    let specs = names.iter().filter_map(|name| world.allocations.get(*name)?.spec.as_ref().ok());
    specs.flat_map(|spec| spec.addresses.iter().copied()).collect()
}

fn pod_facts(world: &World, pod: &Pod) -> Vec<Fact> {
    let names = allocations_of(world, pod);
    let mut facts = vec![Fact {
        reason: None,
        text: format!("It is of {}, which {} refers to.", workload_name(&pod.workload), list(&names)),
    }];
    facts.push(match &pod.injected {
        Some(injected) => {
            let injected: Vec<&str> = injected.iter().map(String::as_str).collect();
            plain(format!("It may run on nodes that hold an address of {}.", list(&injected)))
        }
        None => plain("It carries no requirement: admission did not see it.".to_owned()),
    });
    facts.push(place_fact(world, pod, &names));
    facts
}

fn plain(text: String) -> Fact {
    Fact { reason: None, text }
}

fn place_fact(world: &World, pod: &Pod, names: &[&str]) -> Fact {
    let marked = |node: &plan::Node| {
        node.labels.ready() == Some("true") && node.labels.allocation().is_some_and(|n| names.contains(&n))
    };
    let stranded =
        pod.injected.as_ref().is_some_and(|injected| !injected.iter().any(|n| names.contains(&n.as_str())));
    match pod.node.as_deref() {
        Some(node) if world.nodes.get(node).is_some_and(marked) => {
            plain(format!("It is on {node}, which holds one."))
        }
        Some(node) => Fact {
            reason: Some(Reason::Misplaced),
            text: format!("It is on {node}. {}", Reason::Misplaced.meaning()),
        },
        None if stranded => {
            Fact { reason: Some(Reason::Stranded), text: Reason::Stranded.meaning().to_owned() }
        }
        None => {
            let nodes = world.nodes.iter().filter(|(_, node)| marked(node));
            let open: Vec<&str> =
                nodes.filter(|(_, n)| n.ready && !n.unschedulable).map(|(name, _)| name.as_str()).collect();
            plain(format!(
                "It waits for a node. Nodes that hold an address and can take pods: {}. If there are any, \
                 `kubectl describe pod` tells why none of them fits.",
                list(&open)
            ))
        }
    }
}

impl Show for Report {
    fn text(&self, style: Style) -> String {
        // An address names itself.
        let of_address = self.facts.is_empty();
        let mut lines = if of_address { Vec::new() } else { vec![style.strong(&self.subject)] };
        lines.extend(self.facts.iter().map(|fact| format!("  {}", fact.line(style))));
        for address in &self.addresses {
            lines.extend(address.lines(style, of_address || style.wide));
        }
        format!("{}{}\n", self.controller.warning(style), lines.join("\n"))
    }
}

impl Fact {
    fn line(&self, style: Style) -> String {
        match self.reason {
            Some(reason) => format!("{}  {}", style.warn(reason.as_str()), self.text),
            None => self.text.clone(),
        }
    }
}

impl Explained {
    fn lines(&self, style: Style, with_candidates: bool) -> Vec<String> {
        let place = self.node.as_ref().map_or("on no node".to_owned(), |node| format!("on {node}"));
        let mut lines = vec![
            style.strong(&format!("{} of {}, {place}", self.address, self.allocation)),
            format!("  {}  {}", style.warn(self.reason.as_str()), self.message),
        ];
        lines.extend(self.target.iter().map(|target| format!("  It is to go to {target}.")));
        if !self.also_listed_by.is_empty() {
            lines.push(format!("  Also listed by {}, in vain.", self.also_listed_by.join(", ")));
        }
        if !self.refusals.is_empty() {
            lines.push("  nodes that cannot take it:".to_owned());
            lines.extend(self.refusals.iter().map(|refusal| refused(refusal, style)));
        }
        if with_candidates && (self.refusals.is_empty() || style.wide) {
            lines.push("  nodes:".to_owned());
            lines.extend(self.candidates.iter().map(|candidate| candidate.line(self, style)));
        }
        lines
    }
}

/// For example: `3  HoldsForeignAddress  The node's interface … (n1, n2, n3): it holds 198.51.100.7`.
fn refused(refusal: &NodeRefusal, style: Style) -> String {
    let meaning = Reason::from_name(&refusal.reason).map(Reason::meaning).unwrap_or_default();
    let more = usize::try_from(refusal.count).unwrap_or_default() > refusal.nodes.len();
    let names = format!("{}{}", refusal.nodes.join(", "), if more { ", …" } else { "" });
    let said = refusal.message.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
    format!("    {}  {}  {meaning} ({names}){said}", refusal.count, style.warn(&refusal.reason))
}

impl Candidate {
    fn line(&self, of: &Explained, style: Style) -> String {
        let verdict = match self.refusal {
            _ if of.node.as_ref() == Some(&self.node) && self.refusal.is_none() => {
                style.good("holds it, and can go on doing so")
            }
            None => style.good("could take it, as far as Kubernetes knows"),
            Some(reason) => format!("{}  {}", style.warn(reason.as_str()), reason.meaning()),
        };
        format!("    {}  {verdict}", self.node)
    }
}
