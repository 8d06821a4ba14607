//! Metrics, and spans in [`traces`]. Each part of the program has a table of families in a file of its own; the documentation is
//! made from the tables, and rules and dashboard are tested against them.

pub mod certs;
pub mod cloud;
pub mod controller;
pub mod server;
pub mod traces;
pub mod webhook;

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::collections::HashMap;

/// A metric family.
#[derive(Debug)]
pub struct Family {
    /// Name, as scraped.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Label names. `cluster` is added to all when `CLUSTER_NAME` is set.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// Types of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram(&'static [f64]),
}

/// All tables, each with the title that it has in the documentation.
pub const TABLES: &[(&str, &[Family])] = &[
    ("Controller", controller::FAMILIES),
    ("Clouds", cloud::FAMILIES),
    ("Admission", webhook::FAMILIES),
    ("Webhook server", server::FAMILIES),
    ("Certificates", certs::FAMILIES),
];

/// Where families are registered. Handles are cheap to clone.
#[derive(Clone, Debug)]
pub struct Telemetry {
    registry: Registry,
}

impl Telemetry {
    /// With the `cluster` label, if the cluster has a name.
    pub fn new(cluster: Option<&str>) -> Result<Self, prometheus::Error> {
        let labels = cluster.map(|name| HashMap::from([("cluster".to_owned(), name.to_owned())]));
        Ok(Self { registry: Registry::new_custom(None, labels)? })
    }

    /// Registers a counter.
    pub fn counter(&self, family: &Family) -> Result<IntCounterVec, prometheus::Error> {
        let counter = IntCounterVec::new(Opts::new(family.name, family.help), family.labels)?;
        self.registry.register(Box::new(counter.clone()))?;
        Ok(counter)
    }

    /// Registers a counter of one label whose values are all known: each is there from the beginning, so that
    /// the first event is a rise and not a birth, which `increase()` would not see.
    pub fn counter_of(&self, family: &Family, values: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        let counter = self.counter(family)?;
        for value in values {
            counter.get_metric_with_label_values(&[value])?;
        }
        Ok(counter)
    }

    /// Registers a gauge.
    pub fn gauge(&self, family: &Family) -> Result<IntGaugeVec, prometheus::Error> {
        let gauge = IntGaugeVec::new(Opts::new(family.name, family.help), family.labels)?;
        self.registry.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    }

    /// Registers a histogram.
    pub fn histogram(&self, family: &Family) -> Result<HistogramVec, prometheus::Error> {
        let Kind::Histogram(buckets) = family.kind else {
            return Err(prometheus::Error::Msg(format!("{} is not a histogram", family.name)));
        };
        let options = HistogramOpts::new(family.name, family.help).buckets(buckets.to_vec());
        let histogram = HistogramVec::new(options, family.labels)?;
        self.registry.register(Box::new(histogram.clone()))?;
        Ok(histogram)
    }

    /// What `/metrics` answers.
    pub fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
