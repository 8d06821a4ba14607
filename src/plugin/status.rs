//! `status`: allocations, their addresses, the nodes that hold them, the pods there.

use super::lease::Controller;
use super::show::{Show, Style, age};
use super::snapshot::Snapshot;
use crds::{IpStatus, NetIPAllocationStatus};
use jiff::Timestamp;
use plan::{Pod, Reason, WorkloadKey, World};
use serde::Serialize;

/// Everything that `status` shows.
#[derive(Debug, Serialize)]
pub struct Report {
    controller: Controller,
    allocations: Vec<Allocation>,
    #[serde(skip)]
    now: Timestamp,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocation {
    name: String,
    ready: bool,
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    reserved: i32,
    attached: i32,
    /// What is wrong with it as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    troubles: Vec<String>,
    addresses: Vec<Address>,
    /// Pods of the workload that are not on a node of the allocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pods_elsewhere: Vec<PodLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    #[serde(flatten)]
    status: IpStatus,
    pods: Vec<PodLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodLine {
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

pub fn report(snapshot: &Snapshot, names: Vec<&str>) -> Report {
    let world = &snapshot.world;
    let allocations = names.into_iter().filter_map(|name| allocation(world, name)).collect();
    Report { controller: snapshot.controller.clone(), allocations, now: snapshot.now }
}

fn allocation(world: &World, name: &str) -> Option<Allocation> {
    let object = world.allocations.get(name)?;
    let status = &object.status;
    let spec = object.spec.as_ref().ok();
    let workload = spec.and_then(|spec| spec.workload.as_ref());
    let addresses: Vec<Address> = status
        .ips
        .iter()
        .map(|ip| Address { status: ip.clone(), pods: pods_on(world, workload, ip.node.as_deref()) })
        .collect();
    let pods = pods_of(world, workload).filter(|pod| !pod.finished).map(pod_line);
    let here = |pod: &PodLine| addresses.iter().any(|address| address.pods.contains(pod));
    let (ready, reason, message) = condition(status, "Ready").unwrap_or((
        false,
        "no status yet".to_owned(),
        "The controller has not looked at it yet.".to_owned(),
    ));
    Some(Allocation {
        name: name.to_owned(),
        ready,
        reason,
        message,
        provider: spec.map(|spec| format!("{:?}", spec.provider).to_lowercase()),
        workload: workload.map(workload_name),
        reserved: spec
            .map_or(status.reserved, |spec| i32::try_from(spec.addresses.len()).unwrap_or(i32::MAX)),
        attached: status.attached,
        troubles: ["Degraded", "Conflict"].into_iter().filter_map(|kind| trouble(status, kind)).collect(),
        pods_elsewhere: pods.filter(|pod| !here(pod)).collect(),
        addresses,
    })
}

/// `Deployment demo/web`.
pub fn workload_name(key: &WorkloadKey) -> String {
    format!("{:?} {}/{}", key.kind, key.namespace, key.name)
}

fn condition(status: &NetIPAllocationStatus, kind: &str) -> Option<(bool, String, String)> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((condition.status == "True", condition.reason.clone(), condition.message.clone()))
}

fn trouble(status: &NetIPAllocationStatus, kind: &str) -> Option<String> {
    let (so, reason, message) = condition(status, kind)?;
    so.then(|| format!("{kind} ({reason}): {message}"))
}

fn pods_of<'w>(world: &'w World, workload: Option<&'w WorkloadKey>) -> impl Iterator<Item = &'w Pod> {
    world.pods.values().filter(move |pod| Some(&*pod.workload) == workload)
}

fn pods_on(world: &World, workload: Option<&WorkloadKey>, node: Option<&str>) -> Vec<PodLine> {
    let here = |pod: &&Pod| node.is_some() && pod.node.as_deref() == node && !pod.finished;
    let mut pods: Vec<PodLine> = pods_of(world, workload).filter(here).map(pod_line).collect();
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    pods
}

fn pod_line(pod: &Pod) -> PodLine {
    let state = match pod {
        Pod { deleting: true, .. } => "Terminating",
        Pod { node: None, .. } => "Pending",
        Pod { ready: true, .. } => "Ready",
        _ => "NotReady",
    };
    let node = pod.node.as_deref().map(str::to_owned);
    PodLine { name: format!("{}/{}", pod.namespace, pod.name), state, node }
}

impl Show for Report {
    fn text(&self, style: Style) -> String {
        let mut text = self.controller.warning(style);
        if self.allocations.is_empty() {
            text.push_str("There are no NetIPAllocations.\n");
        }
        for allocation in &self.allocations {
            for line in allocation.lines(style, self.now) {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text
    }
}

impl Allocation {
    fn lines(&self, style: Style, now: Timestamp) -> Vec<String> {
        let mut lines = vec![self.headline(style)];
        lines.extend(self.troubles.iter().map(|trouble| format!("│  {}", style.bad(trouble))));
        let mut branches: Vec<Vec<String>> =
            self.addresses.iter().map(|address| address.lines(style, now)).collect();
        if !self.pods_elsewhere.is_empty() {
            let pods = self.pods_elsewhere.iter().map(|pod| pod.elsewhere(style));
            branches.push(tree(style.warn("pods that are not on a node of it"), pods.collect()));
        }
        let last = branches.len().saturating_sub(1);
        for (number, branch) in branches.iter().enumerate() {
            lines.extend(hang(branch, number == last));
        }
        lines
    }

    fn headline(&self, style: Style) -> String {
        let state = if self.ready { "Ready" } else { "NotReady" };
        let state = format!("{state} ({})", self.reason);
        let state = if self.ready { style.good(&state) } else { style.bad(&state) };
        let mut parts = vec![style.strong(&self.name), state];
        parts.push(format!("{} of {} attached", self.attached, self.reserved));
        parts.extend(self.provider.clone());
        parts.extend(self.workload.clone());
        parts.join("  ")
    }
}

impl Address {
    fn lines(&self, style: Style, now: Timestamp) -> Vec<String> {
        let status = &self.status;
        let place = match (&status.node, &status.provider_id) {
            (Some(node), _) => format!("on {node}"),
            (None, Some(instance)) => format!("on {instance}, which is no node"),
            (None, None) => status.state.clone(),
        };
        let reason = status.reason.as_deref().unwrap_or_default();
        let fine = [Reason::Attached, Reason::Adopted].iter().any(|fine| fine.as_str() == reason);
        let word = if fine { style.good(reason) } else { style.warn(reason) };
        let mut head = format!("{}  {place}  {word}", status.address);
        if style.wide {
            let since = status.since.as_ref().map(|since| format!("for {}", age(since.0, now)));
            let details = since.into_iter().chain(status.provider_id.clone());
            head = details.fold(head, |head, detail| format!("{head}  {}", style.faint(&detail)));
        }
        let message = status.message.clone().filter(|_| !fine || style.wide).map(|m| style.faint(&m));
        let operation = status.operation.as_ref().map(|operation| {
            let to = operation.to.as_deref().unwrap_or("nowhere");
            style.warn(&format!(
                "on the way to {to} for {} ({})",
                age(operation.started_at.0, now),
                operation.cause
            ))
        });
        let pods = self.pods.iter().map(|pod| pod.here(style));
        let mut lines = tree(head, pods.collect());
        // What is said of the address itself comes before what hangs on it.
        let bar = if self.pods.is_empty() { "   " } else { "│  " };
        let said = message.into_iter().chain(operation).map(|said| format!("{bar}{said}"));
        lines.splice(1..1, said);
        lines
    }
}

impl PodLine {
    fn here(&self, style: Style) -> String {
        let state = if self.state == "Ready" { style.good(self.state) } else { style.warn(self.state) };
        format!("{}  {state}", self.name)
    }

    fn elsewhere(&self, style: Style) -> String {
        let place = self.node.as_ref().map_or(String::new(), |node| format!("  on {node}"));
        format!("{}{place}", self.here(style))
    }
}

/// A head with leaves below it.
fn tree(head: String, leaves: Vec<String>) -> Vec<String> {
    let last = leaves.len().saturating_sub(1);
    let mut lines = vec![head];
    for (number, leaf) in leaves.into_iter().enumerate() {
        lines.extend(hang(&[leaf], number == last));
    }
    lines
}

/// A branch as it hangs on a tree.
fn hang(branch: &[String], last: bool) -> Vec<String> {
    let (first, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
    let prefix = |number| if number == 0 { first } else { rest };
    branch.iter().enumerate().map(|(number, line)| format!("{}{line}", prefix(number))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(address: &str, node: Option<&str>, reason: &str, pods: Vec<PodLine>) -> Address {
        let status = IpStatus {
            address: address.to_owned(),
            state: if node.is_some() { "Attached" } else { "Free" }.to_owned(),
            node: node.map(str::to_owned),
            provider_id: node.map(|node| format!("gce://p/z/{node}")),
            since: None,
            reason: Some(reason.to_owned()),
            message: Some(format!("What {reason} means.")),
            operation: None,
        };
        Address { status, pods }
    }

    fn pod(name: &str, state: &'static str, node: Option<&str>) -> PodLine {
        PodLine { name: name.to_owned(), state, node: node.map(str::to_owned) }
    }

    fn sample() -> Report {
        let allocation = Allocation {
            name: "voice".to_owned(),
            ready: false,
            reason: "MoreAddressesThanNodes".to_owned(),
            message: String::new(),
            provider: Some("gcp".to_owned()),
            workload: Some("Deployment demo/sip".to_owned()),
            reserved: 2,
            attached: 1,
            troubles: vec!["Degraded (CloudUnknown): 429".to_owned()],
            addresses: vec![
                address("203.0.113.1", Some("n1"), "Attached", vec![pod("demo/sip-1", "Ready", Some("n1"))]),
                address("203.0.113.2", None, "WaitingForNode", Vec::new()),
            ],
            pods_elsewhere: vec![pod("demo/sip-2", "Pending", None), pod("demo/sip-3", "Ready", Some("n9"))],
        };
        let controller = Controller { alive: true, ..Controller::default() };
        Report { controller, allocations: vec![allocation], now: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn an_allocation_is_a_tree() {
        let expected = "\
voice  NotReady (MoreAddressesThanNodes)  1 of 2 attached  gcp  Deployment demo/sip
│  Degraded (CloudUnknown): 429
├─ 203.0.113.1  on n1  Attached
│  └─ demo/sip-1  Ready
├─ 203.0.113.2  Free  WaitingForNode
│     What WaitingForNode means.
└─ pods that are not on a node of it
   ├─ demo/sip-2  Pending
   └─ demo/sip-3  Ready  on n9
";
        assert_eq!(sample().text(Style::default()), expected);
    }

    #[test]
    fn a_dead_controller_is_said_first() {
        let controller = Controller { problem: "it is gone".to_owned(), ..Controller::default() };
        let text = Report { controller, ..sample() }.text(Style::default());
        assert!(text.starts_with("THE CONTROLLER IS NOT ALIVE: it is gone."), "{text}");
    }
}
