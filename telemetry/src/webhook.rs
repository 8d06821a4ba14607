//! Metrics of admission.

use crate::{Family, Kind, Telemetry};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

const REQUESTS: Family = Family {
    name: "netipallocation_webhook_requests_total",
    kind: Kind::Counter,
    labels: &["webhook", "operation", "outcome"],
    help: "Reviews answered, by webhook, operation (create, update, other) and outcome (allowed, patched, refused, malformed, not_synced)",
};
const DURATION: Family = Family {
    name: "netipallocation_webhook_request_duration_seconds",
    kind: Kind::Histogram(&[
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    ]),
    labels: &["webhook"],
    help: "How long a review took, by webhook",
};
const IN_FLIGHT: Family = Family {
    name: "netipallocation_webhook_in_flight_requests",
    kind: Kind::Gauge,
    labels: &["webhook"],
    help: "Reviews that are being answered now, by webhook",
};
const REFUSALS: Family = Family {
    name: "netipallocation_webhook_refusals_total",
    kind: Kind::Counter,
    labels: &["webhook", "reason"],
    help: "Objects refused, by webhook and reason (invalid, duplicate)",
};
const INDEX_SIZE: Family = Family {
    name: "netipallocation_webhook_index_entries",
    kind: Kind::Gauge,
    labels: &["index"],
    help: "Entries of the index that reviews are answered from (allocations, addresses, workloads, replicasets)",
};
const INDEX_SYNCED: Family = Family {
    name: "netipallocation_webhook_index_synced",
    kind: Kind::Gauge,
    labels: &["index"],
    help: "1 when what feeds the index has been listed (allocations, replicasets of every namespace that is referred to)",
};
const NAMESPACE_SYNCED: Family = Family {
    name: "netipallocation_webhook_namespace_synced",
    kind: Kind::Gauge,
    labels: &["namespace"],
    help: "1 when the ReplicaSets of a namespace that allocations refer to have been listed and can be watched; 0: its pods are known by name only",
};
const WATCH_ERRORS: Family = Family {
    name: "netipallocation_webhook_watch_errors_total",
    kind: Kind::Counter,
    labels: &["index"],
    help: "Errors of the watches that feed the index",
};

/// The families of admission.
pub const FAMILIES: &[Family] =
    &[REQUESTS, DURATION, IN_FLIGHT, REFUSALS, INDEX_SIZE, INDEX_SYNCED, NAMESPACE_SYNCED, WATCH_ERRORS];

/// Handles of admission's families.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Metrics {
    pub requests: IntCounterVec,
    pub duration: HistogramVec,
    pub in_flight: IntGaugeVec,
    pub refusals: IntCounterVec,
    pub index_size: IntGaugeVec,
    pub index_synced: IntGaugeVec,
    pub namespace_synced: IntGaugeVec,
    pub watch_errors: IntCounterVec,
}

impl Metrics {
    /// Registers the families.
    pub fn new(telemetry: &Telemetry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            requests: telemetry.counter(&REQUESTS)?,
            duration: telemetry.histogram(&DURATION)?,
            in_flight: telemetry.gauge(&IN_FLIGHT)?,
            refusals: telemetry.counter(&REFUSALS)?,
            index_size: telemetry.gauge(&INDEX_SIZE)?,
            index_synced: telemetry.gauge(&INDEX_SYNCED)?,
            namespace_synced: telemetry.gauge(&NAMESPACE_SYNCED)?,
            watch_errors: telemetry.counter(&WATCH_ERRORS)?,
        })
    }
}
