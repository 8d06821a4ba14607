//! NetIPAllocations: converted, made canonical, and refused with everything that is wrong at once.
//!
//! Both functions see raw JSON. The mutating one comes first in the API server's order, before the
//! schema, so it is the one whose refusal a person reads; the validating one judges the final object by
//! the same rules, and by the other objects.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use plan::parse::{self, Fault};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What is asked: a spec, and the stored one if it is an update.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// Name of the object; empty if the API server is to make one up.
    pub name: &'r str,
    /// The spec as it came.
    pub spec: &'r Value,
    /// The spec as it is stored; `None`: the object is being created.
    pub old: Option<&'r Value>,
}

/// What is answered: faults are a refusal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What to change.
    pub patch: Patch,
    /// What to tell the client.
    pub warnings: Vec<String>,
    /// Why it is refused.
    pub faults: Vec<Fault>,
}

/// Converts `deploymentRef`, makes addresses canonical, and refuses what cannot become valid.
pub fn mutate(name: &str, mut spec: Value, old: Option<&Value>, excluded: &BTreeSet<String>) -> Answer {
    let mut answer = Answer::default();
    let converted = convert(old, &mut spec, &mut answer);
    canonicalise(&mut spec, &mut answer);
    judge(Request { name, spec: &spec, old }, &mut answer);
    if converted {
        name_what_was_written(&mut answer.faults);
    }
    warn(&spec, excluded, &mut answer);
    answer
}

/// Judges the final object by the same rules.
pub fn validate(request: Request<'_>) -> Vec<Fault> {
    let mut answer = Answer::default();
    judge(request, &mut answer);
    answer.faults.extend(reference_fault(request.old, request.spec));
    answer.faults
}

/// Addresses that another object has; `holder` names it.
pub fn duplicates(request: Request<'_>, holder: impl Fn(IpAddr) -> Option<String>) -> Vec<Fault> {
    let fault = |(number, address): (usize, IpAddr)| {
        let other = holder(address)?;
        let message =
            format!("{address} is already in NetIPAllocation {other:?}; an address may be in one only");
        Some(Fault { path: format!("spec.reservedIPs[{number}]"), message })
    };
    new_addresses(request).filter_map(fault).collect()
}

/// Addresses that the object did not list before, with their places. What it did is no news: two objects
/// may share it from before this rule.
pub fn new_addresses(request: Request<'_>) -> impl Iterator<Item = (usize, IpAddr)> + '_ {
    let before = addresses(request.old);
    listed(Some(request.spec)).filter(move |(_, address)| !before.contains(address))
}

/// Addresses that the object listed before and still does.
pub fn kept_addresses(request: Request<'_>) -> impl Iterator<Item = IpAddr> + '_ {
    let before = addresses(request.old);
    listed(Some(request.spec)).map(|(_, address)| address).filter(move |address| before.contains(address))
}

fn addresses(spec: Option<&Value>) -> BTreeSet<IpAddr> {
    listed(spec).map(|(_, address)| address).collect()
}

fn listed(spec: Option<&Value>) -> impl Iterator<Item = (usize, IpAddr)> + '_ {
    let list = spec.and_then(|spec| spec.get("reservedIPs")).and_then(Value::as_array);
    let texts = list.into_iter().flatten().enumerate();
    texts.filter_map(|(number, text)| Some((number, parse::parse_address(text.as_str()?).ok()?)))
}

/// `deploymentRef` becomes `workloadRef`. When both are there and differ, what the user changed counts;
/// when that is both, or the object is new, nobody can tell. True: `workloadRef` is made of it.
fn convert(old: Option<&Value>, spec: &mut Value, answer: &mut Answer) -> bool {
    let Some(deployment) = present(spec, "deploymentRef").cloned() else { return false };
    answer.warnings.push(
        "spec.deploymentRef is deprecated: use spec.workloadRef {kind: Deployment, name, namespace}".into(),
    );
    if let Some(fault) = reference_fault(old, spec) {
        answer.faults.push(fault);
        return false;
    }
    let mut converted = json!({ "kind": "Deployment" });
    for field in ["name", "namespace"] {
        if let Some(value) = deployment.get(field) {
            converted[field] = value.clone();
        }
    }
    let Some(object) = spec.as_object_mut() else { return false };
    object.remove("deploymentRef");
    answer.patch.0.push(PatchOperation::Remove(RemoveOperation { path: pointer(&["deploymentRef"]) }));
    // An old deploymentRef beside a workloadRef says nothing new.
    let counts = is_new(old, "deploymentRef", &deployment) || !object.contains_key("workloadRef");
    if counts {
        object.insert("workloadRef".into(), converted.clone());
        let add = AddOperation { path: pointer(&["workloadRef"]), value: converted };
        answer.patch.0.push(PatchOperation::Add(add));
    }
    counts
}

/// A person looks for what is wrong where they wrote it.
fn name_what_was_written(faults: &mut [Fault]) {
    for fault in faults {
        if let Some(rest) = fault.path.strip_prefix("spec.workloadRef") {
            fault.path = format!("spec.deploymentRef{rest}");
        }
    }
}

fn reference_fault(old: Option<&Value>, spec: &Value) -> Option<Fault> {
    let (deployment, workload) = (present(spec, "deploymentRef")?, present(spec, "workloadRef")?);
    let both_new = is_new(old, "deploymentRef", deployment) && is_new(old, "workloadRef", workload);
    (both_new && parse::references_differ(spec)).then(|| Fault {
        path: "spec.deploymentRef".into(),
        message:
            "names another workload than workloadRef: keep workloadRef, deploymentRef is its deprecated form"
                .into(),
    })
}

fn is_new(old: Option<&Value>, field: &str, value: &Value) -> bool {
    let old = old.and_then(|old| present(old, field));
    !old.is_some_and(|old| same(value, old))
}

fn present<'v>(spec: &'v Value, field: &str) -> Option<&'v Value> {
    spec.get(field).filter(|value| !value.is_null())
}

/// The same reference, with the default namespace filled in.
fn same(one: &Value, other: &Value) -> bool {
    let parts = |value: &Value| {
        let text = |field: &str| value.get(field).cloned().unwrap_or(Value::Null);
        let namespace = Some(text("namespace")).filter(|namespace| !namespace.is_null());
        (text("kind"), text("name"), namespace.unwrap_or(json!("default")))
    };
    parts(one) == parts(other)
}

fn canonicalise(spec: &mut Value, answer: &mut Answer) {
    let Some(list) = spec.get_mut("reservedIPs").and_then(Value::as_array_mut) else { return };
    for (number, entry) in list.iter_mut().enumerate() {
        let canonical = canonical(entry);
        if *entry != canonical {
            *entry = canonical.clone();
            let path = pointer(&["reservedIPs", &number.to_string()]);
            answer.patch.0.push(PatchOperation::Replace(ReplaceOperation { path, value: canonical }));
        }
    }
}

/// An address in canonical text; what is none stays as it is.
fn canonical(entry: &Value) -> Value {
    match entry.as_str().map(parse::parse_address) {
        Some(Ok(address)) => json!(address.to_string()),
        _ => entry.clone(),
    }
}

/// Whether a field of the spec means what it meant before. Canonical text is no change: it is we who
/// make it so.
fn unchanged(field: &str, old: Option<&Value>, new: Option<&Value>) -> bool {
    match (old.and_then(Value::as_array), new.and_then(Value::as_array)) {
        (Some(old), Some(new)) if field == "reservedIPs" => {
            old.iter().map(canonical).eq(new.iter().map(canonical))
        }
        _ => old == new,
    }
}

/// All faults; on an update only those of fields that were changed: what an earlier schema let in must
/// not stand in the way of everything else.
fn judge(request: Request<'_>, answer: &mut Answer) {
    let Request { name, spec, old } = request;
    let faults = parse::parse(spec).err().unwrap_or_default();
    match old {
        None => {
            answer.faults.extend(faults);
            answer
                .faults
                .extend(Some(name).filter(|name| !name.is_empty()).and_then(|n| parse::check_name(n).err()));
        }
        Some(old) => {
            let changed = |field: &str| !unchanged(field, old.get(field), spec.get(field));
            let new = faults.into_iter().filter(|fault| top_field(&fault.path).is_none_or(changed));
            answer.faults.extend(new);
        }
    }
}

/// `reservedIPs` of `spec.reservedIPs[1]`.
fn top_field(path: &str) -> Option<&str> {
    path.strip_prefix("spec.")?.split(['.', '[']).next()
}

/// Each at most 120 characters; the API server cuts longer ones.
fn warn(spec: &Value, excluded: &BTreeSet<String>, answer: &mut Answer) {
    if spec.pointer("/strategy/maxSurge").is_some_and(|value| !value.is_null()) {
        answer
            .warnings
            .push("spec.strategy.maxSurge has no effect: an address cannot be on two nodes at once".into());
    }
    if spec.pointer("/strategy/maxUnavailable") == Some(&json!(0)) {
        answer.warnings.push(
            "spec.strategy.maxUnavailable 0 counts as 1: an address has to leave before it can arrive".into(),
        );
    }
    let namespace = spec
        .get("workloadRef")
        .map(|workload| workload.get("namespace").and_then(Value::as_str).unwrap_or("default"));
    if let Some(namespace) = namespace.filter(|namespace| excluded.contains(*namespace)) {
        answer.warnings.push(format!("namespace {namespace} is excluded: no injection, no eviction there"));
    }
}

fn pointer(tokens: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(std::iter::once("spec").chain(tokens.iter().copied()))
}
