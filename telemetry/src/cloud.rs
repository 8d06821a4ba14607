//! Metrics of calls to clouds.

use crate::Kind::{Counter, Gauge, Histogram};
use crate::{Family, Telemetry};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};
use std::time::Duration;

const CALLS: Family = Family {
    name: "netipallocation_cloud_calls_total",
    kind: Counter,
    labels: &["cloud", "operation", "outcome"],
    help: "Requests to clouds by the cloud's name of the operation and how they ended (ok, throttled, transient, \
           conflict, permanent, unsupported, denied, fenced)",
};
const DURATION: Family = Family {
    name: "netipallocation_cloud_call_duration_seconds",
    kind: Histogram(&[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]),
    labels: &["cloud", "operation"],
    help: "From sending a request to a cloud to its answer",
};
const BUDGET: Family = Family {
    name: "netipallocation_cloud_budget_percent",
    kind: Gauge,
    labels: &["account"],
    help: "Share of its rate that an account is called with: 100 unless the cloud throttles, 0 while it is left alone",
};

/// The table.
pub const FAMILIES: &[Family] = &[CALLS, DURATION, BUDGET];

/// Handles.
#[derive(Clone, Debug)]
pub struct CloudMetrics {
    calls: IntCounterVec,
    duration: HistogramVec,
    budget: IntGaugeVec,
}

impl CloudMetrics {
    /// Registers everything.
    pub fn new(telemetry: &Telemetry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            calls: telemetry.counter(&CALLS)?,
            duration: telemetry.histogram(&DURATION)?,
            budget: telemetry.gauge(&BUDGET)?,
        })
    }

    /// A request ended.
    pub fn called(&self, cloud: &str, operation: &str, outcome: &str, took: Duration) {
        self.calls.with_label_values(&[cloud, operation, outcome]).inc();
        self.duration.with_label_values(&[cloud, operation]).observe(took.as_secs_f64());
    }

    /// The share of its rate that an account is called with, from 0 to 1.
    pub fn budget(&self, account: &str, level: f64) {
        #[allow(clippy::cast_possible_truncation)] // a share
        let percent = (level.clamp(0.0, 1.0) * 100.0).round() as i64;
        self.budget.with_label_values(&[account]).set(percent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_scraped_by_their_names() {
        let telemetry = Telemetry::new(None).unwrap();
        let metrics = CloudMetrics::new(&telemetry).unwrap();
        metrics.called("aws", "AssociateAddress", "conflict", Duration::from_millis(80));
        metrics.budget("aws/eu-west-1", 0.5);
        let text = String::from_utf8(telemetry.text().unwrap()).unwrap();
        for line in [
            "netipallocation_cloud_calls_total{cloud=\"aws\",operation=\"AssociateAddress\",outcome=\"conflict\"} 1",
            "netipallocation_cloud_budget_percent{account=\"aws/eu-west-1\"} 50",
            "netipallocation_cloud_call_duration_seconds_count{cloud=\"aws\",operation=\"AssociateAddress\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
