//! Gauges, set from the world and the plan. Series of what is gone go too.

use super::Settings;
use plan::{Plan, World};
use prometheus::IntGaugeVec;
use std::collections::BTreeMap;
use telemetry::controller::Metrics;

/// The labels of the series that are set.
type Series = BTreeMap<Vec<String>, i64>;

/// Gauges and what they were set to last.
pub struct Gauges {
    metrics: Metrics,
    pod_name: String,
    set: [Series; 8],
}

impl Gauges {
    pub fn new(metrics: Metrics, settings: &Settings) -> Self {
        let (version, pod) = (settings.version.as_str(), settings.pod_name.as_str());
        metrics.info.with_label_values(&[version, pod]).set(1);
        metrics.healthy.with_label_values(&[pod]).set(1);
        Self { metrics, pod_name: settings.pod_name.clone(), set: Default::default() }
    }

    /// How this replica is.
    pub fn pulse(&self, ready: bool, leading: bool) {
        let pod = [self.pod_name.as_str()];
        self.metrics.ready.with_label_values(&pod).set(ready.into());
        self.metrics.is_leader.with_label_values(&pod).set(leading.into());
    }

    /// What holds for each allocation, address and node.
    pub fn set(&mut self, world: &World, plan: &Plan) {
        let mut series: [Series; 8] = Default::default();
        for (name, status) in &plan.statuses {
            let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            let unknown = status.ips.iter().filter(|ip| ip.state == "Unknown").count();
            let by_name = vec![name.clone()];
            series[0].insert(by_name.clone(), ready.into());
            series[1].insert(by_name.clone(), status.reserved.into());
            series[2].insert(by_name.clone(), status.attached.into());
            series[3].insert(by_name.clone(), status.unattached.into());
            series[4].insert(by_name, i64::try_from(unknown).unwrap_or(i64::MAX));
            for ip in status.ips.iter().filter(|ip| ip.state == "Attached") {
                let Some(node_name) = &ip.node else { continue };
                series[5].insert(vec![name.clone(), ip.address.clone(), node_name.clone()], 1);
                let node = world.nodes.get(node_name);
                let marked = node.is_some_and(|node| node.labels.allocation() == Some(name));
                series[6].insert(vec![node_name.clone(), name.clone()], marked.into());
                let cordoned = node.is_some_and(|node| node.unschedulable);
                series[7].insert(vec![node_name.clone()], cordoned.into());
            }
        }
        let m = &self.metrics;
        let gauges = [
            &m.crd_status,
            &m.reserved_ips,
            &m.attached_ips,
            &m.unattached_ips,
            &m.unknown,
            &m.ip_attached,
            &m.node_ip_ready,
            &m.node_cordoned,
        ];
        for ((gauge, before), after) in gauges.into_iter().zip(&mut self.set).zip(series) {
            replace(gauge, before, after);
        }
        let in_flight = i64::try_from(world.in_flight.len()).unwrap_or(i64::MAX);
        m.steps_in_flight.with_label_values::<&str>(&[]).set(in_flight);
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
