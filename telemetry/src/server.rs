//! Metrics of the webhook's server.

use crate::{Family, Kind, Telemetry};
use prometheus::{IntCounterVec, IntGauge};

const CONNECTIONS: Family = Family {
    name: "netipallocation_webhook_connections",
    kind: Kind::Gauge,
    labels: &[],
    help: "Connections that are open on the webhook's port, handshakes included",
};

const EVICTED: Family = Family {
    name: "netipallocation_webhook_connections_evicted_total",
    kind: Kind::Counter,
    labels: &["phase"],
    help: "Connections that were closed to make room for a new one, by what they were at: handshake, idle, \
           header, body; newcomer (all others were being answered, so it was the new one that went)",
};

const HANDSHAKES: Family = Family {
    name: "netipallocation_webhook_tls_handshakes_total",
    kind: Kind::Counter,
    labels: &["outcome"],
    help: "TLS handshakes by outcome: ok; rejected (the client does not trust our certificate); timeout; \
           evicted (made room for another); gone (the client hung up); unsupported (no common version or cipher); malformed (not TLS)",
};

const REFUSED: Family = Family {
    name: "netipallocation_webhook_requests_refused_total",
    kind: Kind::Counter,
    labels: &["reason"],
    help: "Requests that no handler saw, or that it did not answer: too_large, too_slow, encoding, broken, \
           overloaded, timeout, panic",
};

/// All families of this file.
pub const FAMILIES: &[Family] = &[CONNECTIONS, EVICTED, HANDSHAKES, REFUSED];

/// Handles to the server's metrics.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// Open connections.
    pub connections: IntGauge,
    /// Connections closed to make room.
    pub evicted: IntCounterVec,
    /// Handshakes by outcome.
    pub handshakes: IntCounterVec,
    /// Requests that were not answered by their handler.
    pub refused: IntCounterVec,
}

impl ServerMetrics {
    /// Registers the families.
    pub fn register(telemetry: &Telemetry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            connections: telemetry.gauge(&CONNECTIONS)?.with_label_values::<&str>(&[]),
            evicted: telemetry.counter(&EVICTED)?,
            handshakes: telemetry.counter_of(
                &HANDSHAKES,
                &["ok", "rejected", "timeout", "evicted", "gone", "unsupported", "malformed"],
            )?,
            refused: telemetry.counter_of(
                &REFUSED,
                &["too_large", "too_slow", "encoding", "broken", "overloaded", "timeout", "panic"],
            )?,
        })
    }
}
