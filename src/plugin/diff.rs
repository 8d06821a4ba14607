//! `plan`: what the controller would do now, as a diff of the world.

use super::lease::Controller;
use super::show::{Show, Style};
use super::snapshot::Snapshot;
use super::status::workload_name;
use crds::{IpStatus, Operation, PlannedAction};
use plan::{Plan, Time, World};
use serde::Serialize;
use std::collections::BTreeSet;

/// How often to look ahead, at the times when the planner wants to be asked again.
const LOOKS_AHEAD: usize = 8;

/// What would be done.
#[derive(Debug, Serialize)]
pub struct Report {
    controller: Controller,
    changes: Vec<Change>,
}

/// One line of the diff.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    sign: char,
    /// The allocation that it is about; absent: about none alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation: Option<String>,
    text: String,
    cause: String,
    /// Seconds that it waits for at most, if nothing else changes; 0: it is done now.
    seconds: i64,
}

pub fn report(snapshot: &Snapshot, names: Vec<&str>) -> Report {
    let wanted: BTreeSet<&str> = names.into_iter().collect();
    let all = snapshot.world.allocations.len() == wanted.len();
    let mut changes = foresee(&snapshot.world, snapshot.time());
    changes.retain(|change| all || change.allocation.as_deref().is_some_and(|name| wanted.contains(name)));
    Report { controller: snapshot.controller.clone(), changes }
}

/// What is done now, and what is done when waiting times have passed and nothing else happened. What began
/// to wait earlier than now is not known here, so it may come sooner.
fn foresee(world: &World, now: Time) -> Vec<Change> {
    let mut world = world.clone();
    let mut changes: Vec<Change> = Vec::new();
    let mut at = now;
    for _ in 0..LOOKS_AHEAD {
        let plan = plan::plan(&world, at);
        let seconds = (at.millis_since(now) + 999) / 1000;
        let mut found = Changes { seconds, all: Vec::new() };
        found.addresses(&plan);
        found.nodes(&world, &plan);
        found.pods(&world, &plan);
        for change in found.all {
            let known = |known: &Change| known.text == change.text && known.allocation == change.allocation;
            if !changes.iter().any(known) {
                changes.push(change);
            }
        }
        let Some(next) = plan.wake_at else { break };
        world.noticed = plan.noticed;
        at = next;
    }
    changes
}

/// Changes in the making.
struct Changes {
    seconds: i64,
    all: Vec<Change>,
}

impl Changes {
    fn add(&mut self, sign: char, allocation: Option<&str>, text: String, cause: &str) {
        let (allocation, cause) = (allocation.map(str::to_owned), cause.to_owned());
        self.all.push(Change { sign, allocation, text, cause, seconds: self.seconds });
    }

    fn addresses(&mut self, plan: &Plan) {
        for (name, status) in &plan.statuses {
            for (ip, operation) in status.ips.iter().filter_map(|ip| Some((ip, ip.operation.as_ref()?))) {
                let (sign, text) = movement(ip, operation);
                self.add(sign, Some(name), text, &operation.cause);
            }
            for action in &status.plan {
                self.add('?', Some(name), only_said(action), &action.cause);
            }
        }
        for finalizer in &plan.finalizers {
            let sign = if finalizer.present { '+' } else { '-' };
            self.add(sign, Some(&finalizer.allocation), format!("finalizer {}", crds::FINALIZER), "");
        }
    }

    fn nodes(&mut self, world: &World, plan: &Plan) {
        for marks in &plan.labels {
            let node = &marks.node;
            if let Some((name, address)) = &marks.marks {
                self.add('+', Some(name), format!("marks on {node} for {address}"), "");
            } else {
                let name = world.nodes.get(node).and_then(|node| node.labels.allocation());
                self.add('-', name, format!("marks on {node}"), "");
            }
        }
    }

    fn pods(&mut self, world: &World, plan: &Plan) {
        for eviction in &plan.evictions {
            let text = format!("pod {}/{}", eviction.namespace, eviction.name);
            self.add('-', referring(world, &eviction.workload), text, eviction.cause.as_str());
        }
        for template in &plan.daemon_sets {
            let names: Vec<&str> = template.names.iter().map(String::as_str).collect();
            let sign = if names.is_empty() { '-' } else { '~' };
            let text =
                format!("affinity of {} for [{}]", workload_name(&template.workload), names.join(", "));
            self.add(sign, names.first().copied(), text, "");
        }
    }
}

fn only_said(action: &PlannedAction) -> String {
    let from = action.from.as_ref().map(|from| format!("from {from}"));
    let to = action.to.as_ref().map(|to| format!("to {to}"));
    let words = [Some(action.action.clone()), action.address.clone(), from, to];
    format!("{} (mode Plan: only said)", words.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

fn movement(ip: &IpStatus, operation: &Operation) -> (char, String) {
    let address = &ip.address;
    let from = operation.from.as_deref().or(operation.from_provider_id.as_deref());
    match (from, operation.to.as_deref()) {
        (None, Some(to)) => ('+', format!("{address} to {to}")),
        (Some(from), Some(to)) => ('~', format!("{address} from {from} to {to}")),
        (Some(from), None) => ('-', format!("{address} from {from}")),
        (None, None) => ('~', address.clone()),
    }
}

fn referring<'w>(world: &'w World, workload: &plan::WorkloadKey) -> Option<&'w str> {
    let refers = |object: &plan::Allocation| {
        object.spec.as_ref().is_ok_and(|spec| spec.workload.as_ref() == Some(workload))
    };
    world.allocations.iter().find(|(_, object)| refers(object)).map(|(name, _)| name.as_str())
}

impl Show for Report {
    fn text(&self, style: Style) -> String {
        let mut text = self.controller.warning(style);
        let mut titles: Vec<Option<&str>> = self.changes.iter().map(|c| c.allocation.as_deref()).collect();
        titles.sort_unstable();
        titles.dedup();
        for title in titles {
            text.push_str(&style.strong(title.unwrap_or("(no allocation)")));
            text.push('\n');
            for change in self.changes.iter().filter(|change| change.allocation.as_deref() == title) {
                text.push_str(&change.line(style));
                text.push('\n');
            }
        }
        text
    }
}

impl Change {
    fn line(&self, style: Style) -> String {
        let line = format!("{} {}", self.sign, self.text);
        let line = match self.sign {
            '+' => style.good(&line),
            '-' => style.bad(&line),
            _ => style.warn(&line),
        };
        let cause = if self.cause.is_empty() { String::new() } else { format!("  {}", self.cause) };
        let wait = if self.seconds == 0 { String::new() } else { format!("  within {}s", self.seconds) };
        format!("  {line}{}", style.faint(&format!("{cause}{wait}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(sign: char, allocation: Option<&str>, text: &str, seconds: i64) -> Change {
        let allocation = allocation.map(str::to_owned);
        Change { sign, allocation, text: text.to_owned(), cause: "NodeDrained".to_owned(), seconds }
    }

    #[test]
    fn a_plan_is_a_diff_and_nothing_is_nothing() {
        let controller = Controller { alive: true, ..Controller::default() };
        let changes = vec![
            change('~', Some("voice"), "203.0.113.1 from n1 to n2", 0),
            change('-', None, "pod demo/sip-1", 30),
        ];
        let report = Report { controller: controller.clone(), changes };
        let expected = "(no allocation)\n  - pod demo/sip-1  NodeDrained  within 30s\n\
                        voice\n  ~ 203.0.113.1 from n1 to n2  NodeDrained\n";
        assert_eq!(report.text(Style::default()), expected);
        assert_eq!(Report { controller, changes: Vec::new() }.text(Style::default()), "");
    }

    /// Two nodes, the first of which holds the address and is not Ready.
    fn world(spec: &serde_json::Value) -> World {
        let mut status = crds::NetIPAllocationStatus::default();
        status.ips.push(IpStatus {
            address: "203.0.113.1".to_owned(),
            state: "Attached".to_owned(),
            node: Some("n1".to_owned()),
            provider_id: Some("gce://p/z/n1".to_owned()),
            since: None,
            reason: Some("Attached".to_owned()),
            message: None,
            operation: None,
        });
        let mut world = World::default();
        for (name, ready) in [("n1", false), ("n2", true)] {
            let provider_id = format!("gce://p/z/{name}");
            let node = plan::Node { uid: name.to_owned(), provider_id, ready, ..plan::Node::default() };
            world.nodes.insert(name.to_owned(), node);
        }
        let allocation = plan::Allocation {
            uid: "a".to_owned(),
            created: Time(0),
            generation: 1,
            deleting: false,
            has_finalizer: true,
            spec: plan::parse::parse(spec).map(std::sync::Arc::new),
            status: status.into(),
        };
        world.allocations.insert("voice".to_owned(), allocation);
        super::super::published::believe(&mut world, Time(0));
        world
    }

    #[test]
    fn what_waits_for_a_time_to_pass_is_foreseen() {
        let mut spec = serde_json::json!({ "reservedIPs": ["203.0.113.1"], "cloud": { "provider": "gcp" } });
        let moves = |spec: &serde_json::Value, sign: char| {
            let found = foresee(&world(spec), Time(0)).into_iter().filter(|change| change.sign == sign);
            found.map(|change| change.line(Style::default())).collect::<Vec<_>>()
        };
        assert_eq!(moves(&spec, '~'), ["  ~ 203.0.113.1 from n1 to n2  NodeNotReady  within 30s"]);
        spec["mode"] = "Plan".into();
        assert_eq!(
            moves(&spec, '?').last().map(String::as_str),
            Some("  ? Move 203.0.113.1 from n1 to n2 (mode Plan: only said)  NodeNotReady  within 30s")
        );
    }
}
