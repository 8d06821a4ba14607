//! Metrics of the controller. Names and labels of the first part are those of the system it supersedes:
//! people have dashboards on them.

use crate::Kind::{Counter, Gauge, Histogram};
use crate::{Family, Telemetry};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

macro_rules! families {
    ($($field:ident: $type:ident $method:ident = $name:literal, $kind:expr, $labels:expr, $help:literal;)*) => {
        /// The table.
        pub const FAMILIES: &[Family] = &[$(Family { name: $name, kind: $kind, labels: &$labels, help: $help }),*];

        /// Handles.
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub struct Metrics {
            $(pub $field: $type),*
        }

        impl Metrics {
            /// Registers everything.
            pub fn new(telemetry: &Telemetry) -> Result<Self, prometheus::Error> {
                Ok(Self {
                    $($field: telemetry.$method(&Family { name: $name, kind: $kind, labels: &$labels, help: $help })?),*
                })
            }
        }
    };
}

families! {
    crd_status: IntGaugeVec gauge = "netipallocation_crd_status", Gauge, ["crd_name"],
        "1 if the allocation is Ready, else 0";
    reserved_ips: IntGaugeVec gauge = "netipallocation_reserved_ips_total", Gauge, ["crd_name"],
        "Addresses that the allocation lists";
    attached_ips: IntGaugeVec gauge = "netipallocation_attached_ips_total", Gauge, ["crd_name"],
        "Addresses of the allocation that are attached to a node";
    unattached_ips: IntGaugeVec gauge = "netipallocation_unattached_ips_total", Gauge, ["crd_name"],
        "Addresses of the allocation that are not attached";
    ip_attached: IntGaugeVec gauge = "netipallocation_ip_attached", Gauge, ["crd_name", "ip", "node"],
        "1 while the address is attached to the node";
    ip_reason: IntGaugeVec gauge = "netipallocation_ip_reason", Gauge, ["crd_name", "ip", "reason"],
        "1 for the reason that status.ips gives for the address; docs/reasons.md lists them";
    condition: IntGaugeVec gauge = "netipallocation_condition", Gauge, ["crd_name", "type", "reason"],
        "1 if the condition (Ready, Progressing, Degraded, Conflict) is True, 0 if it is False, for its reason";
    node_ip_ready: IntGaugeVec gauge = "netipallocation_node_ip_ready", Gauge, ["node", "crd_name"],
        "1 while the node carries ip.ready=true for the allocation";
    node_cordoned: IntGaugeVec gauge = "netipallocation_node_cordoned", Gauge, ["node"],
        "1 if a node that holds an address is cordoned, else 0";
    is_leader: IntGaugeVec gauge = "netipallocation_controller_is_leader", Gauge, ["pod_name"],
        "1 while this replica leads, else 0";
    healthy: IntGaugeVec gauge = "netipallocation_controller_healthy", Gauge, ["pod_name"],
        "1 while the controller's loop turns, else 0";
    ready: IntGaugeVec gauge = "netipallocation_controller_ready", Gauge, ["pod_name"],
        "1 once allocations and nodes are in sync, else 0";
    info: IntGaugeVec gauge = "netipallocation_controller_info", Gauge, ["version", "pod_name"],
        "Always 1; says which version runs where";
    reconciles: IntCounterVec counter = "netipallocation_reconcile_total", Counter, ["crd_name", "status"],
        "Audits of the cloud that were decided upon, by allocation and whether it is Degraded (success, error)";
    reconcile_duration: HistogramVec histogram = "netipallocation_reconcile_duration_seconds",
        Histogram(&[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]), ["crd_name"],
        "From the beginning of an audit of the cloud to the decision that follows it";
    attaches: IntCounterVec counter = "netipallocation_ip_attach_total", Counter, ["crd_name", "status"],
        "Attach calls by outcome (success, error)";
    detaches: IntCounterVec counter = "netipallocation_ip_detach_total", Counter, ["crd_name", "status"],
        "Detach calls by outcome (success, error)";
    gcp_errors: IntCounterVec counter = "netipallocation_gcp_api_errors_total", Counter, ["operation", "error_type"],
        "Failed calls to GCP (operations attach, detach, check_ip); other clouds are in netipallocation_cloud_calls_total";
    gcp_duration: HistogramVec histogram = "netipallocation_gcp_api_duration_seconds",
        Histogram(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]), ["operation"],
        "Duration of calls to GCP";
    plan_duration: HistogramVec histogram = "netipallocation_plan_duration_seconds",
        Histogram(&[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5]), [],
        "How long one plan for the whole world takes";
    moves: IntCounterVec counter = "netipallocation_moves_total", Counter, ["crd_name", "cause"],
        "Moves that ended, by their cause";
    move_duration: HistogramVec histogram = "netipallocation_move_duration_seconds",
        Histogram(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0]), ["cause"],
        "From the decision to move an address to its being verified at the new node";
    steps_in_flight: IntGaugeVec gauge = "netipallocation_steps_in_flight", Gauge, [],
        "Calls to clouds that change something and are under way";
    unknown: IntGaugeVec gauge = "netipallocation_cloud_state_unknown", Gauge, ["crd_name"],
        "Addresses of the allocation of which the cloud's word is missing";
    cloud_reads: IntCounterVec counter = "netipallocation_cloud_reads_total", Counter, ["account", "outcome"],
        "Batch reads of an account (complete, incomplete)";
    kubernetes_writes: IntCounterVec counter = "netipallocation_kubernetes_writes_total", Counter, ["kind", "outcome"],
        "Writes to the API server by what is written (allocation, node, pod: an eviction, template) and outcome (done, conflict, refused by a disruption budget or for want of a right, throttled by the API server, failed)";
    events_dropped: IntCounterVec counter = "netipallocation_events_dropped_total", Counter, [],
        "Events that were not told because too much happened at once; what happened is in the status too";
    lease_transitions: IntCounterVec counter = "netipallocation_lease_transitions_total", Counter, [],
        "How often this replica began to lead";
    watch_restarts: IntCounterVec counter = "netipallocation_watch_restarts_total", Counter, ["kind"],
        "Watches that failed and were begun anew";
}
