//! The live table: nodes, the addresses that they hold, the pods there, who leads, the last event.

use crate::line::{Line, Tone};
use crate::screen::{Screen, TABLE_LINES};
use anyhow::Result;
use crds::NetIPAllocation;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use playground::NAMESPACE;
use std::time::Duration;

/// How often it is looked at. A demo has a handful of objects.
const EVERY: Duration = Duration::from_millis(250);

/// Keeps the table up to date until the demo ends.
pub async fn keep(client: Client, namespace: &'static str, screen: Screen) {
    loop {
        // An API server that does not answer for a moment is no reason to stop.
        if let Ok(table) = look(&client, namespace).await {
            let _ = screen.show(table);
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn look(client: &Client, namespace: &str) -> Result<Vec<Line>> {
    let all = ListParams::default();
    let (allocations, events) =
        (Api::<NetIPAllocation>::all(client.clone()), Api::<Event>::all(client.clone()));
    let (nodes, pods) = (Api::<Node>::all(client.clone()), Api::<Pod>::namespaced(client.clone(), namespace));
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    let (nodes, pods, allocations, events, leases) = tokio::try_join!(
        nodes.list(&all),
        pods.list(&all),
        allocations.list(&all),
        events.list(&all),
        leases.list(&all)
    )?;
    let mut lines = vec![row(Tone::Title, ["NODE", "ZONE", "STATE", "ADDRESS", "PODS"])];
    for node in &nodes {
        lines.push(node_row(node, &allocations.items, &pods.items));
    }
    let pending: Vec<String> =
        pods.iter().filter(|pod| node_of(pod).is_none()).map(kube::ResourceExt::name_any).collect();
    if !pending.is_empty() {
        lines.push(row(Tone::Wrong, ["", "", "", "no node yet", &pending.join(" ")]));
    }
    lines.resize(usize::from(TABLE_LINES) - 3, Line::new(Tone::Told, ""));
    lines.push(addresses(&allocations.items));
    let leader = leases.iter().find_map(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
    // A replica's identity is its pod's name and something of its own.
    let pod = leader.and_then(|leader| leader.split('_').next()).unwrap_or_default();
    lines.push(Line::new(Tone::Told, format!("leader      {pod}")));
    lines.push(Line::new(Tone::Output, last_event(&events.items)));
    Ok(lines)
}

fn row(tone: Tone, cells: [&str; 5]) -> Line {
    let [node, zone, state, address, pods] = cells;
    Line::new(tone, format!("{node:<10}{zone:<16}{state:<20}{address:<16}{pods}"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn node_row(node: &Node, allocations: &[NetIPAllocation], pods: &[Pod]) -> Line {
    let name = node.name_any();
    let zone = node.labels().get("topology.kubernetes.io/zone").cloned().unwrap_or_default();
    let state = state(node);
    let ips = allocations.iter().filter_map(|object| object.status.as_ref()).flat_map(|status| &status.ips);
    let held = ips.filter(|ip| ip.node.as_deref() == Some(&name)).map(|ip| ip.address.as_str());
    let held: Vec<&str> = held.collect();
    let here = pods.iter().filter(|pod| node_of(pod) == Some(&name)).map(|pod| {
        let ends = if pod.metadata.deletion_timestamp.is_some() { " (ending)" } else { "" };
        format!("{}{ends}", pod.name_any())
    });
    let tone = match (state, held.is_empty()) {
        ("Ready", false) => Tone::Checked,
        ("Ready", true) => Tone::Told,
        _ => Tone::Command,
    };
    row(tone, [&name, &zone, state, &held.join(" "), &here.collect::<Vec<_>>().join(" ")])
}

fn state(node: &Node) -> &'static str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    match ready.map(|condition| condition.status.as_str()) {
        Some("True") if cordoned => "Ready, cordoned",
        Some("True") => "Ready",
        Some("Unknown") => "silent",
        _ => "NotReady",
    }
}

fn addresses(allocations: &[NetIPAllocation]) -> Line {
    let ips = allocations.iter().filter_map(|object| object.status.as_ref()).flat_map(|status| &status.ips);
    let each = ips.map(|ip| {
        let place = ip.node.as_deref().unwrap_or("-");
        let moving = ip.operation.as_ref().and_then(|operation| operation.to.as_deref());
        let way = moving.filter(|to| *to != place).map(|to| format!(" → {to}")).unwrap_or_default();
        let reason = ip.reason.as_deref().filter(|reason| !["Attached", "Adopted"].contains(reason));
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{} {place}{way}{reason}", ip.address)
    });
    Line::new(Tone::Told, format!("addresses   {}", each.collect::<Vec<_>>().join("   ")))
}

/// The last one about an allocation.
fn last_event(events: &[Event]) -> String {
    let ours = events.iter().filter(|event| {
        event.regarding.as_ref().is_some_and(|object| object.kind.as_deref() == Some("NetIPAllocation"))
    });
    let last = ours.max_by_key(|event| {
        let repeated = event.series.as_ref().map(|series| series.last_observed_time.0);
        repeated.or(event.event_time.as_ref().map(|time| time.0))
    });
    let told = last.map(|event| {
        format!(
            "{}: {}",
            event.reason.as_deref().unwrap_or_default(),
            event.note.as_deref().unwrap_or_default()
        )
    });
    format!("last event  {}", told.unwrap_or_default())
}
