//! Gauges, set from the world and the plan. Series of what is gone go too, and a replica that does not lead
//! has none: what it last knew may be wrong by now.

use super::Settings;
use super::publish::Target;
use crds::NetIPAllocationStatus;
use plan::{Plan, Reason, World};
use prometheus::IntGaugeVec;
use std::collections::BTreeMap;
use std::time::Duration;
use telemetry::controller::Metrics;
use tokio::time::Instant;

/// The labels of the series that are set.
type Series = BTreeMap<Vec<String>, i64>;

/// How many families there are whose series come and go.
const FAMILIES: usize = 10;

/// Gauges and what they were set to last.
pub struct Gauges {
    metrics: Metrics,
    pod_name: String,
    set: [Series; FAMILIES],
    /// When they were set last, and how long that took.
    last: Option<(Instant, Duration)>,
}

/// What takes longer than this is not done with every plan: tens of thousands of series cost more than the plan.
const CHEAP: Duration = Duration::from_millis(5);
/// Then it is done after so many times as long.
const PAUSES: u32 = 20;
/// While there is something else to do, after so long.
const BUSY: Duration = Duration::from_secs(5);

impl Gauges {
    pub fn new(metrics: Metrics, settings: &Settings) -> Self {
        let (version, pod) = (settings.version.as_str(), settings.pod_name.as_str());
        metrics.info.with_label_values(&[version, pod]).set(1);
        metrics.healthy.with_label_values(&[pod]).set(1);
        for kind in Target::KINDS {
            // As with the counters of allocations below.
            metrics.kubernetes_writes.with_label_values(&[kind, "failed"]);
        }
        Self { metrics, pod_name: settings.pod_name.clone(), set: Default::default(), last: None }
    }

    /// How this replica is.
    pub fn pulse(&self, ready: bool, leading: bool) {
        let pod = [self.pod_name.as_str()];
        self.metrics.ready.with_label_values(&pod).set(ready.into());
        self.metrics.is_leader.with_label_values(&pod).set(leading.into());
    }

    /// What holds for each allocation, address and node. When it is to be called again at the latest: many of
    /// them are not set with every plan, and while there is something else to do, only after a longer while.
    pub fn set(&mut self, world: &World, plan: &Plan, is_busy: bool) -> Option<Instant> {
        let began = Instant::now();
        let least = if is_busy { BUSY } else { Duration::ZERO };
        let due =
            self.last.filter(|(_, cost)| *cost > CHEAP).map(|(at, cost)| at + (cost * PAUSES).max(least));
        if due.is_some_and(|due| due > began) {
            return due;
        }
        let mut series: [Series; FAMILIES] = Default::default();
        for (name, status) in &plan.statuses {
            add(&mut series, name, status, world);
        }
        let in_flight = i64::try_from(world.in_flight.len()).unwrap_or(i64::MAX);
        self.replace(series, in_flight);
        self.last = Some((Instant::now(), began.elapsed()));
        None
    }

    /// This replica does not lead, and says nothing of the world.
    pub fn clear(&mut self) {
        self.last = None;
        self.replace(Default::default(), 0);
    }

    fn replace(&mut self, series: [Series; FAMILIES], in_flight: i64) {
        let m = &self.metrics;
        for name in series[0].keys().filter(|name| !self.set[0].contains_key(*name)) {
            begin_counters(m, &name[0]);
        }
        for name in self.set[0].keys().filter(|name| !series[0].contains_key(*name)) {
            end_counters(m, &name[0]);
        }
        let gauges: [&IntGaugeVec; FAMILIES] = [
            &m.crd_status,
            &m.reserved_ips,
            &m.attached_ips,
            &m.unattached_ips,
            &m.unknown,
            &m.ip_attached,
            &m.node_ip_ready,
            &m.node_cordoned,
            &m.condition,
            &m.ip_reason,
        ];
        for ((gauge, before), after) in gauges.into_iter().zip(&mut self.set).zip(series) {
            replace(gauge, before, after);
        }
        m.steps_in_flight.with_label_values::<&str>(&[]).set(in_flight);
    }
}

/// The series of one allocation.
fn add(series: &mut [Series; FAMILIES], name: &str, status: &NetIPAllocationStatus, world: &World) {
    let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let unknown = status.ips.iter().filter(|ip| ip.state == "Unknown").count();
    let by_name = vec![name.to_owned()];
    series[0].insert(by_name.clone(), ready.into());
    series[1].insert(by_name.clone(), status.reserved.into());
    series[2].insert(by_name.clone(), status.attached.into());
    series[3].insert(by_name.clone(), status.unattached.into());
    series[4].insert(by_name, i64::try_from(unknown).unwrap_or(i64::MAX));
    for condition in &status.conditions {
        let labels = vec![name.to_owned(), condition.type_.clone(), condition.reason.clone()];
        series[8].insert(labels, (condition.status == "True").into());
    }
    for ip in &status.ips {
        if let Some(reason) = &ip.reason {
            series[9].insert(vec![name.to_owned(), ip.address.clone(), reason.clone()], 1);
        }
        let Some(node_name) = ip.node.as_ref().filter(|_| ip.state == "Attached") else { continue };
        series[5].insert(vec![name.to_owned(), ip.address.clone(), node_name.clone()], 1);
        let node = world.nodes.get(node_name);
        let marked = node.is_some_and(|node| node.labels.allocation() == Some(name));
        series[6].insert(vec![node_name.clone(), name.to_owned()], marked.into());
        let cordoned = node.is_some_and(|node| node.unschedulable);
        series[7].insert(vec![node_name.clone()], cordoned.into());
    }
}

/// The counters of an allocation are there before the first event: that is a rise then and not a birth, which
/// `increase()` would not see.
fn begin_counters(metrics: &Metrics, name: &str) {
    for status in ["success", "error"] {
        for counter in [&metrics.reconciles, &metrics.attaches, &metrics.detaches] {
            counter.with_label_values(&[name, status]);
        }
    }
}

fn end_counters(metrics: &Metrics, name: &str) {
    // What is not there need not be removed.
    for status in ["success", "error"] {
        for counter in [&metrics.reconciles, &metrics.attaches, &metrics.detaches] {
            let _ = counter.remove_label_values(&[name, status]);
        }
    }
    let _ = metrics.reconcile_duration.remove_label_values(&[name]);
    for cause in Reason::ALL {
        let _ = metrics.moves.remove_label_values(&[name, cause.as_str()]);
    }
}

/// Sets what differs, and removes what is not there any more.
fn replace(gauge: &IntGaugeVec, before: &mut Series, after: Series) {
    for values in before.keys().filter(|values| !after.contains_key(*values)) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let _ = gauge.remove_label_values(&values);
    }
    for (values, value) in after.iter().filter(|(values, value)| before.get(*values) != Some(value)) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        gauge.with_label_values(&values).set(*value);
    }
    *before = after;
}
