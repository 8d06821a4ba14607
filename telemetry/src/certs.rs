//! Metrics of the webhook's certificates.

use crate::{Family, Kind, Telemetry};
use prometheus::{IntCounterVec, IntGaugeVec};

const NOT_AFTER: Family = Family {
    name: "netipallocation_certificate_not_after_seconds",
    kind: Kind::Gauge,
    labels: &["certificate"],
    help: "When a certificate expires, in seconds since 1970: leaf (what this replica serves), ca (what signed it)",
};

const ROTATIONS: Family = Family {
    name: "netipallocation_certificate_rotations_total",
    kind: Kind::Counter,
    labels: &["kind"],
    help: "Changes of the certificates' Secret by this replica: bootstrap, stage_ca, promote, retire, \
           renew_leaf, restore (it was lost or damaged); and reload (another leaf is served now)",
};

const FAILURES: Family = Family {
    name: "netipallocation_certificate_failures_total",
    kind: Kind::Counter,
    labels: &["cause"],
    help: "What went wrong with certificates: damaged (the Secret cannot be used), files (nor can they), \
           write (the Secret could not be written), inject (nor could a caBundle), watch, issue",
};

const INJECTIONS: Family = Family {
    name: "netipallocation_certificate_injections_total",
    kind: Kind::Counter,
    labels: &["target"],
    help: "How often this replica wrote a caBundle, by the object that it was written to",
};

const TRUSTED: Family = Family {
    name: "netipallocation_certificate_trusted",
    kind: Kind::Gauge,
    labels: &["target"],
    help: "1 if the object's caBundle contains the CA of what this replica serves, else 0",
};

/// All families of this file.
pub const FAMILIES: &[Family] = &[NOT_AFTER, ROTATIONS, FAILURES, INJECTIONS, TRUSTED];

/// Handles to the certificates' metrics.
#[derive(Clone, Debug)]
pub struct CertMetrics {
    /// Ends of life.
    pub not_after: IntGaugeVec,
    /// Changes.
    pub rotations: IntCounterVec,
    /// What went wrong.
    pub failures: IntCounterVec,
    /// Bundles written.
    pub injections: IntCounterVec,
    /// Who trusts us.
    pub trusted: IntGaugeVec,
}

impl CertMetrics {
    /// Registers the families.
    pub fn register(telemetry: &Telemetry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            not_after: telemetry.gauge(&NOT_AFTER)?,
            rotations: telemetry.counter(&ROTATIONS)?,
            failures: telemetry
                .counter_of(&FAILURES, &["damaged", "files", "write", "inject", "watch", "issue"])?,
            injections: telemetry.counter(&INJECTIONS)?,
            trusted: telemetry.gauge(&TRUSTED)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_on_certificates_names_every_metric() {
        let page = include_str!("../../docs/certificates.md");
        for family in super::FAMILIES {
            assert!(page.contains(family.name), "{} is not in docs/certificates.md", family.name);
        }
    }
}
