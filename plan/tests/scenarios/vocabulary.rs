//! The words of the notation that stand for single things: labels, taints, workloads, fields of a spec.

use crate::notation::{Words, short};
use plan::{AddressView, FailureClass, Node, Reason, Taint, WorkloadKey};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub fn default_id(name: &str) -> String {
    format!("gce://project/zone/{name}")
}

pub fn free(address: IpAddr) -> AddressView {
    AddressView::Free { token: format!("free {}", short(address)) }
}

pub fn attached(provider_id: &str, address: IpAddr) -> AddressView {
    AddressView::Attached {
        provider_id: provider_id.to_owned(),
        token: format!("{} on {provider_id}", short(address)),
    }
}

/// Gives a node the marks of an attached address.
pub fn mark(node: &mut Node, allocation: &str, address: IpAddr) {
    node.labels.insert(crds::LABEL_READY.to_owned(), "true".to_owned());
    node.labels.insert(crds::LABEL_ALLOCATION.to_owned(), allocation.to_owned());
    node.reserved_ip = Some(address.to_string());
}

pub fn unmark(node: &mut Node) {
    node.labels.remove(crds::LABEL_READY);
    node.labels.remove(crds::LABEL_ALLOCATION);
    node.reserved_ip = None;
}

/// One word about a node.
pub fn node_word(node: &mut Node, word: &str, words: &mut Words<'_>) -> Result<(), String> {
    let labels = &mut node.labels;
    match word {
        "zone" => {
            let zone = words.need("a zone")?.to_owned();
            labels.insert("topology.kubernetes.io/zone".to_owned(), zone);
        }
        "region" => {
            let region = words.need("a region")?.to_owned();
            labels.insert("topology.kubernetes.io/region".to_owned(), region);
        }
        "label" => {
            let (key, value) = pair(words.need("a label")?);
            labels.insert(key, value);
        }
        "unlabel" => {
            let key = words.need("a label")?;
            labels.remove(key).ok_or_else(|| format!("it has no label {key}"))?;
        }
        "marked" => {
            let allocation = words.need("an allocation")?;
            mark(node, allocation, words.address()?);
        }
        "unmarked" => unmark(node),
        "cordoned" => node.unschedulable = true,
        "uncordoned" => node.unschedulable = false,
        "notready" => node.ready = false,
        "ready" => node.ready = true,
        "deleting" => node.deleting = true,
        "uid" => words.need("a UID")?.clone_into(&mut node.uid),
        "id" => words.need("a provider ID")?.clone_into(&mut node.provider_id),
        "no-id" => node.provider_id.clear(),
        "taint" => node.taints.push(taint(words.need("a taint")?)?),
        "untainted" => node.taints.clear(),
        other => return Err(format!("`{other}` is nothing that a node has")),
    }
    Ok(())
}

/// One word about an allocation's spec.
pub fn spec_word(spec: &mut Map<String, Value>, word: &str, words: &mut Words<'_>) -> Result<(), String> {
    let (path, value): (&[&str], Value) = match word {
        "ips" => {
            let mut list = Vec::new();
            while words.peek().is_some_and(|word| crate::notation::address(word).is_some()) {
                list.push(words.address()?.to_string());
            }
            (&["reservedIPs"], json!(list))
        }
        "workload" => (&["workloadRef"], reference(words.need("a workload")?)?),
        "selector" => {
            let (key, value) = pair(words.need("a label")?);
            (&["nodeSelector"], json!({ key: value }))
        }
        "provider" => (&["cloud", "provider"], json!(words.need("a provider")?)),
        "region" => (&["cloud", "region"], json!(words.need("a region")?)),
        "zones" => (&["cloud", "zones"], json!(names(words.need("zones")?))),
        "grace" => (&["failover", "notReadyGraceSeconds"], json!(words.seconds()?)),
        "drain-timeout" => (&["failover", "drainTimeoutSeconds"], json!(words.seconds()?)),
        "min-hold" => (&["failover", "minHoldSeconds"], json!(words.seconds()?)),
        "storm" => (&["failover", "stormThresholdPercent"], json!(words.number::<i64>()?)),
        "max-unavailable" => (&["strategy", "maxUnavailable"], json!(words.number::<i64>()?)),
        "interval" => (&["reconcileInterval"], json!(words.seconds()?)),
        "tolerates" => {
            let mut list: Vec<Value> = Vec::new();
            if words.peek() == Some("nothing") {
                words.next();
            } else {
                list.push(toleration(words.need("a toleration")?));
            }
            (&["tolerations"], json!(list))
        }
        "no-eviction" => (&["eviction"], json!("Disabled")),
        "retain" => (&["releasePolicy"], json!("Retain")),
        "plan-only" => (&["mode"], json!("Plan")),
        "enforced" => (&["mode"], json!("Enforce")),
        "paused" => (&["paused"], json!(true)),
        "resumed" => (&["paused"], json!(false)),
        "terms" => {
            let terms = serde_json::from_str(words.need("JSON")?).map_err(|why| why.to_string())?;
            (&["nodeSelectorTerms"], json!([Value::Object(terms)]))
        }
        "also" => {
            let fields = serde_json::from_str(words.need("JSON")?).map_err(|why| why.to_string())?;
            let fields: Map<String, Value> = fields;
            spec.extend(fields);
            return Ok(());
        }
        other => return Err(format!("`{other}` is nothing that an allocation has")),
    };
    set(spec, path, value);
    Ok(())
}

fn set(object: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [field] => {
            object.insert((*field).to_owned(), value);
        }
        [field, rest @ ..] => {
            let inner = object.entry(*field).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

/// `Deployment/sip` is in namespace default, `Deployment/media/sip` in namespace media.
pub fn workload_key(word: &str) -> Result<WorkloadKey, String> {
    let parts: Vec<&str> = word.split('/').collect();
    let (kind, namespace, name) = match parts[..] {
        [kind, name] => (kind, "default", name),
        [kind, namespace, name] => (kind, namespace, name),
        _ => return Err(format!("`{word}` is no workload such as Deployment/sip")),
    };
    let kind = serde_json::from_value(json!(kind)).map_err(|why| why.to_string())?;
    Ok(WorkloadKey { kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

pub fn workload_word(key: &WorkloadKey) -> String {
    match key.namespace.as_str() {
        "default" => format!("{:?}/{}", key.kind, key.name),
        namespace => format!("{:?}/{namespace}/{}", key.kind, key.name),
    }
}

fn reference(word: &str) -> Result<Value, String> {
    let key = workload_key(word)?;
    Ok(json!({"kind": key.kind, "namespace": key.namespace, "name": key.name}))
}

pub fn names(word: &str) -> BTreeSet<String> {
    word.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn pair(word: &str) -> (String, String) {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    (key.to_owned(), value.to_owned())
}

/// `key:NoSchedule` or `key=value:NoExecute`.
fn taint(word: &str) -> Result<Taint, String> {
    let (label, effect) = word.rsplit_once(':').ok_or("a taint has an effect, e.g. role=sip:NoSchedule")?;
    let (key, value) = pair(label);
    Ok(Taint { key, value, effect: effect.to_owned() })
}

/// `everything`, `key`, `key=value`, `key:Effect` or `key=value:Effect`.
pub fn toleration(word: &str) -> Value {
    if word == "everything" {
        return json!({"operator": "Exists"});
    }
    let (label, effect) = match word.rsplit_once(':') {
        Some((label, effect)) => (label, Some(effect)),
        None => (word, None),
    };
    let mut toleration = match label.split_once('=') {
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": label, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    toleration
}

pub fn reason(word: &str) -> Result<Reason, String> {
    Reason::from_name(word).ok_or_else(|| format!("`{word}` is no reason"))
}

pub fn class(word: &str) -> Result<FailureClass, String> {
    Ok(match word {
        "Throttled" => FailureClass::Throttled,
        "Transient" => FailureClass::Transient,
        "Conflict" => FailureClass::Conflict,
        "Permanent" => FailureClass::Permanent,
        "Denied" => FailureClass::Denied,
        other => return Err(format!("`{other}` is no class of failures")),
    })
}
