//! What a valid spec is. Works on raw JSON: whatever is wrong becomes a fault with its path, and all
//! faults are found at once.

mod address;
mod labels;
mod names;
mod reader;

pub use address::parse as parse_address;
pub use names::{Place, Wrong};
pub use reader::Fault;

use crate::WorkloadKey;
use crds::{
    CloudProvider, Eviction, Failover, Mode, NodeSelectorRequirement, NodeSelectorTerm, ReleasePolicy,
    SelectorOperator, Toleration, TolerationOperator, WorkloadKind,
};
use reader::Reader;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most addresses that one allocation may have.
pub const MAX_ADDRESSES: usize = 256;

/// A valid spec, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The addresses, in order of priority.
    pub addresses: Vec<IpAddr>,
    /// The workload that uses them.
    pub workload: Option<WorkloadKey>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Terms of which a node must match one, if there are any.
    pub terms: Vec<NodeSelectorTerm>,
    /// Taints that are accepted; `None`: see [`crate::Workload::tolerations`].
    pub tolerations: Option<Vec<Toleration>>,
    /// The cloud.
    pub provider: CloudProvider,
    /// Region that nodes must be in.
    pub region: Option<String>,
    /// Zones that nodes must be in, if there are any.
    pub zones: Vec<String>,
    /// Seconds between audits of the cloud.
    pub reconcile_interval: i32,
    /// When an address leaves a node.
    pub failover: Failover,
    /// How many addresses may be on the move at once by choice; at least 1.
    pub max_unavailable: usize,
    /// Whether misplaced pods are evicted.
    pub evict: bool,
    /// What a release does.
    pub release: ReleasePolicy,
    /// Whether anything is done at all.
    pub mode: Mode,
    /// No moves, no evictions.
    pub paused: bool,
}

/// Parses `spec` of a NetIPAllocation, or tells everything that is wrong with it.
pub fn parse(spec: &Value) -> Result<Spec, Vec<Fault>> {
    let mut reader = Reader::default();
    let parsed = read(&mut reader, spec);
    match parsed {
        Some(spec) if reader.faults.is_empty() => Ok(spec),
        _ => Err(reader.faults),
    }
}

/// What is wrong with the name of an allocation: it becomes the value of a node label.
pub fn check_name(name: &str) -> Result<(), Fault> {
    const MAX: usize = 63;
    let message = if name.len() > MAX {
        format!("has {} characters; at most {MAX} are allowed, since it becomes a label value", name.len())
    } else {
        match Place::Name.check(name) {
            Ok(()) => return Ok(()),
            Err(why) => why.to_string(),
        }
    };
    Err(Fault { path: "metadata.name".into(), message })
}

/// Whether `deploymentRef` and `workloadRef` are both there and name different workloads. No fault of a
/// stored object (workloadRef counts there), but one of a new one.
pub fn references_differ(spec: &Value) -> bool {
    let (workload, deployment) = (spec.get("workloadRef"), spec.get("deploymentRef"));
    let (Some(workload), Some(deployment)) =
        (workload.filter(|v| !v.is_null()), deployment.filter(|v| !v.is_null()))
    else {
        return false;
    };
    let namespace = |of: &Value| of.get("namespace").and_then(Value::as_str).unwrap_or("default").to_owned();
    workload.get("kind").and_then(Value::as_str) != Some("Deployment")
        || workload.get("name") != deployment.get("name")
        || namespace(workload) != namespace(deployment)
}

fn read(reader: &mut Reader, spec: &Value) -> Option<Spec> {
    let Some(object) = spec.as_object() else {
        reader.fault("spec", "is required and must be an object");
        return None;
    };
    let field = |name: &str| object.get(name).filter(|value| !value.is_null());
    let addresses = addresses(reader, field("reservedIPs"));
    let workload = workload(reader, field("workloadRef"), field("deploymentRef"));
    let (provider, region, zones) = cloud(reader, field("cloud"));
    let strategy = field("strategy");
    if strategy.is_some_and(|strategy| !strategy.is_object()) {
        reader.fault("spec.strategy", "must be an object, e.g. {maxUnavailable: 1}");
    }
    let max_unavailable = strategy.and_then(|s| s.get("maxUnavailable")).filter(|v| !v.is_null());
    let max_surge = strategy.and_then(|s| s.get("maxSurge")).filter(|v| !v.is_null());
    reader.integer("spec.strategy.maxSurge", max_surge, 0, 0, i32::MAX);
    Some(Spec {
        addresses,
        workload,
        node_selector: labels::selector(reader, "spec.nodeSelector", field("nodeSelector")),
        terms: terms(reader, field("nodeSelectorTerms")),
        tolerations: field("tolerations").map(|value| tolerations(reader, value)),
        provider: provider.unwrap_or(CloudProvider::Gcp),
        region,
        zones,
        reconcile_interval: reader.integer(
            "spec.reconcileInterval",
            field("reconcileInterval"),
            30,
            5,
            i32::MAX,
        ),
        failover: failover(reader, field("failover")),
        max_unavailable: usize::try_from(reader.integer(
            "spec.strategy.maxUnavailable",
            max_unavailable,
            1,
            0,
            i32::MAX,
        ))
        .unwrap_or(1)
        .max(1),
        evict: reader.choice("spec.eviction", field("eviction"), Eviction::Enabled) == Eviction::Enabled,
        release: reader.choice("spec.releasePolicy", field("releasePolicy"), ReleasePolicy::Detach),
        mode: reader.choice("spec.mode", field("mode"), Mode::Enforce),
        paused: reader.boolean("spec.paused", field("paused"), false),
    })
}

fn addresses(reader: &mut Reader, value: Option<&Value>) -> Vec<IpAddr> {
    let path = "spec.reservedIPs";
    let Some(list) = reader.list(path, value, "a list of addresses, e.g. [\"203.0.113.10\"]") else {
        if value.is_none() {
            reader.fault(path, "is required: list the reserved public addresses");
        }
        return Vec::new();
    };
    if list.is_empty() {
        reader.fault(path, "must have at least one address");
    }
    if list.len() > MAX_ADDRESSES {
        reader.fault(path, &format!("has {} addresses; at most {MAX_ADDRESSES} are allowed", list.len()));
        return Vec::new();
    }
    let mut addresses: Vec<IpAddr> = Vec::with_capacity(list.len());
    for (index, entry) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(text) = reader.string(&path, Some(entry)) else {
            continue;
        };
        match address::parse(&text) {
            Err(why) => reader.fault(&path, &format!("{} {why}", names::quoted(&text))),
            Ok(address) => match addresses.iter().position(|other| *other == address) {
                Some(first) => reader.fault(&path, &format!("{text:?} is the same address as entry {first}")),
                None => addresses.push(address),
            },
        }
    }
    addresses
}

fn workload(
    reader: &mut Reader,
    workload: Option<&Value>,
    deployment: Option<&Value>,
) -> Option<WorkloadKey> {
    let old = deployment
        .map(|value| reference(reader, "spec.deploymentRef", value, Some(WorkloadKind::Deployment)));
    let new = workload.map(|value| reference(reader, "spec.workloadRef", value, None));
    new.or(old).flatten()
}

fn reference(
    reader: &mut Reader,
    path: &str,
    value: &Value,
    kind: Option<WorkloadKind>,
) -> Option<WorkloadKey> {
    if !value.is_object() {
        reader.fault(path, "must be an object with name and namespace");
        return None;
    }
    let field = |name: &str| value.get(name).filter(|value| !value.is_null());
    let kind = kind.or_else(|| {
        reader.required_choice(&format!("{path}.kind"), field("kind"), "Deployment, StatefulSet or DaemonSet")
    });
    let name =
        reader.required_string(&format!("{path}.name"), field("name"), Place::Name, "the workload's name");
    let namespace = match field("namespace") {
        None => Some("default".to_owned()),
        given => reader.required_string(&format!("{path}.namespace"), given, Place::Namespace, "a namespace"),
    };
    Some(WorkloadKey { kind: kind?, namespace: namespace?, name: name? })
}

fn cloud(reader: &mut Reader, value: Option<&Value>) -> (Option<CloudProvider>, Option<String>, Vec<String>) {
    let Some(cloud) = value.filter(|value| value.is_object()) else {
        reader.fault("spec.cloud", "is required: name the provider, e.g. {provider: gcp}");
        return (None, None, Vec::new());
    };
    let field = |name: &str| cloud.get(name).filter(|value| !value.is_null());
    let provider = reader.required_choice("spec.cloud.provider", field("provider"), "gcp, aws or azure");
    let region = field("region").and_then(|value| {
        reader.required_string("spec.cloud.region", Some(value), Place::Location, "a region")
    });
    let zones = reader.list("spec.cloud.zones", field("zones"), "a list of zones").unwrap_or_default();
    if zones.len() > 64 {
        reader.fault("spec.cloud.zones", "may have at most 64 zones");
    }
    let zones = zones
        .iter()
        .enumerate()
        .filter_map(|(i, zone)| {
            reader.required_string(&format!("spec.cloud.zones[{i}]"), Some(zone), Place::Location, "a zone")
        })
        .collect();
    (provider, region, zones)
}

fn failover(reader: &mut Reader, value: Option<&Value>) -> Failover {
    let default = Failover::default();
    let Some(failover) = value else { return default };
    if !failover.is_object() {
        reader.fault("spec.failover", "must be an object");
        return default;
    }
    let mut seconds = |name: &str, default, min, max| {
        let field = failover.get(name).filter(|value| !value.is_null());
        reader.integer(&format!("spec.failover.{name}"), field, default, min, max)
    };
    Failover {
        not_ready_grace_seconds: seconds(
            "notReadyGraceSeconds",
            default.not_ready_grace_seconds,
            0,
            i32::MAX,
        ),
        drain_timeout_seconds: seconds("drainTimeoutSeconds", default.drain_timeout_seconds, 0, i32::MAX),
        min_hold_seconds: seconds("minHoldSeconds", default.min_hold_seconds, 0, i32::MAX),
        storm_threshold_percent: seconds("stormThresholdPercent", default.storm_threshold_percent, 1, 100),
    }
}

fn terms(reader: &mut Reader, value: Option<&Value>) -> Vec<NodeSelectorTerm> {
    let path = "spec.nodeSelectorTerms";
    let list = reader.list(path, value, "a list of node selector terms").unwrap_or_default();
    list.iter()
        .enumerate()
        .filter_map(|(index, value)| {
            let path = format!("{path}[{index}]");
            let term: NodeSelectorTerm =
                reader.typed(&path, value, "a node selector term with matchExpressions or matchFields")?;
            for (i, requirement) in term.match_expressions.iter().enumerate() {
                expression(reader, &format!("{path}.matchExpressions[{i}]"), requirement);
            }
            for (i, requirement) in term.match_fields.iter().enumerate() {
                field_expression(reader, &format!("{path}.matchFields[{i}]"), requirement);
            }
            Some(term)
        })
        .collect()
}

fn expression(reader: &mut Reader, path: &str, requirement: &NodeSelectorRequirement) {
    reader.fits(&format!("{path}.key"), Place::Key, &requirement.key);
    let values = &requirement.values;
    let wrong = match requirement.operator {
        SelectorOperator::In | SelectorOperator::NotIn if values.is_empty() => {
            Some("needs at least one value")
        }
        SelectorOperator::Exists | SelectorOperator::DoesNotExist if !values.is_empty() => {
            Some("takes no values")
        }
        SelectorOperator::Gt | SelectorOperator::Lt
            if values.len() != 1 || values[0].parse::<i64>().is_err() =>
        {
            Some("needs exactly one integer")
        }
        _ => None,
    };
    if let Some(why) = wrong {
        reader.fault(&format!("{path}.values"), &format!("{:?} {why}", requirement.operator));
    }
    if matches!(requirement.operator, SelectorOperator::In | SelectorOperator::NotIn) {
        for (i, value) in values.iter().enumerate() {
            reader.fits(&format!("{path}.values[{i}]"), Place::Value, value);
        }
    }
}

fn field_expression(reader: &mut Reader, path: &str, requirement: &NodeSelectorRequirement) {
    if requirement.key != "metadata.name" {
        reader.fault(
            &format!("{path}.key"),
            "must be metadata.name, the only field that Kubernetes can select nodes by",
        );
    }
    if !matches!(requirement.operator, SelectorOperator::In | SelectorOperator::NotIn)
        || requirement.values.len() != 1
    {
        reader.fault(path, "needs operator In or NotIn and exactly one value");
    } else {
        reader.fits(&format!("{path}.values[0]"), Place::Node, &requirement.values[0]);
    }
}

fn tolerations(reader: &mut Reader, value: &Value) -> Vec<Toleration> {
    let path = "spec.tolerations";
    let list = reader.list(path, Some(value), "a list of tolerations").unwrap_or_default();
    list.iter()
        .enumerate()
        .filter_map(|(index, value)| {
            let path = format!("{path}[{index}]");
            let toleration: Toleration =
                reader.typed(&path, value, "a toleration with key, operator, value and effect")?;
            let exists = toleration.operator == TolerationOperator::Exists;
            if exists && toleration.value.as_ref().is_some_and(|value| !value.is_empty()) {
                reader.fault(&path, "operator Exists takes no value");
            }
            if !exists && toleration.key.as_ref().is_none_or(String::is_empty) {
                reader
                    .fault(&path, "without a key the operator must be Exists (which tolerates every taint)");
            }
            if let Some(key) = toleration.key.as_ref().filter(|key| !key.is_empty()) {
                reader.fits(&format!("{path}.key"), Place::Key, key);
            }
            if let Some(value) = toleration.value.as_ref().filter(|_| !exists) {
                reader.fits(&format!("{path}.value"), Place::Value, value);
            }
            Some(toleration)
        })
        .collect()
}
