//! What was written to an API server, by its audit log.

use crate::history::{Event, Lease, Marks, Scope, Spec, Status, What, Workload};
use anyhow::{Context as _, Result};
use crds::{ANNOTATION_RESERVED_IP, FINALIZER, LABEL_ALLOCATION, LABEL_READY};
use serde_json::Value;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Taints by which autoscalers drain a node.
const DRAINS: [&str; 2] = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];

/// An audit log that is read on from where it was left.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    scope: Scope,
    read: u64,
    events: Vec<Event>,
}

impl AuditLog {
    /// The log of an API server at which that user is ours.
    pub fn new(path: &Path, user: &str) -> Self {
        let scope = Scope { user: user.to_owned(), ..Scope::default() };
        Self { path: path.to_owned(), scope, read: 0, events: Vec::new() }
    }

    /// All that was written so far, oldest first.
    pub fn events(&mut self) -> Result<&[Event]> {
        let mut file = std::fs::File::open(&self.path).with_context(|| self.path.display().to_string())?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be half written: it is read the next time.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.read += bytes.len() as u64;
        self.events.extend(of_audit(&String::from_utf8_lossy(&bytes), &self.scope));
        self.events.sort_by_key(|event| event.at);
        Ok(&self.events)
    }
}

/// An entry of the log, as far as it matters.
struct Entry<'a> {
    user: &'a str,
    verb: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
    /// What was asked for: the object, or the patch.
    asked: &'a Value,
    /// What came of it, where the log has that.
    made: &'a Value,
}

/// The entries of an audit log, one JSON object a line, that were let through. The scope says which user is ours.
pub fn of_audit(text: &str, scope: &Scope) -> Vec<Event> {
    let mut events = Vec::new();
    for line in text.lines() {
        // Reads are many, and change nothing.
        if [r#""verb":"get""#, r#""verb":"list""#, r#""verb":"watch""#].iter().any(|verb| line.contains(verb))
        {
            continue;
        }
        // The last line may be half written.
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        // A write counts from when it came: what its writer knew is older, and what follows from it is newer.
        let came = entry["requestReceivedTimestamp"].as_str().and_then(|time| time.parse().ok());
        let (Some(at), Some(code)) = (came, entry["responseStatus"]["code"].as_i64()) else { continue };
        if entry["stage"] != "ResponseComplete" || !(200..300).contains(&code) {
            continue;
        }
        events.extend(read(&of(&entry), scope).into_iter().map(|what| Event { at, what }));
    }
    events.sort_by_key(|event: &Event| event.at);
    events
}

fn of(entry: &Value) -> Entry<'_> {
    let reference = &entry["objectRef"];
    Entry {
        user: entry["user"]["username"].as_str().unwrap_or_default(),
        verb: entry["verb"].as_str().unwrap_or_default(),
        resource: reference["resource"].as_str().unwrap_or_default(),
        subresource: reference["subresource"].as_str().unwrap_or_default(),
        namespace: reference["namespace"].as_str().unwrap_or_default(),
        name: reference["name"].as_str().unwrap_or_default(),
        asked: &entry["requestObject"],
        made: &entry["responseObject"],
    }
}

fn read(entry: &Entry<'_>, scope: &Scope) -> Vec<What> {
    let mut found = Vec::new();
    if matches!(entry.verb, "get" | "list" | "watch") {
        return found;
    }
    if entry.user == scope.user && !entry.asked.is_null() {
        let (by, object) = (entry.user.to_owned(), entry.name.to_owned());
        found.push(What::Write { by, object, text: entry.asked.to_string() });
    }
    let name = entry.name.to_owned();
    if entry.resource == "netipallocations" && entry.subresource.is_empty() {
        found.extend(spec(entry).map(What::Spec));
    }
    match (entry.resource, entry.subresource, entry.verb) {
        ("nodes", "", "create") => found.extend(node(entry)),
        ("nodes", "", "delete") => found.push(What::NodeGone { name }),
        ("nodes", "", _) => {
            found.extend(cordon(entry));
            found.extend(marks(entry).map(What::Marks));
        }
        ("netipallocations", "status", _) => found.extend(status(entry).map(What::Status)),
        ("netipallocations", "", "patch" | "update") if takes_finalizer(entry.asked) => {
            found.push(What::FinalizerGone { by: entry.user.to_owned(), allocation: name });
        }
        ("netipallocations", "", "delete") => found.push(What::Going { allocation: name }),
        ("pods", _, _) => found.extend(pod(entry)),
        // The API server and others have leases of their own.
        ("leases", "", "create" | "update" | "patch") if entry.user == scope.user => {
            found.extend(lease(entry).map(What::Lease));
        }
        _ => {}
    }
    found
}

fn node(entry: &Entry<'_>) -> Option<What> {
    let made = if entry.made.is_null() { entry.asked } else { entry.made };
    Some(What::Node {
        name: made["metadata"]["name"].as_str()?.to_owned(),
        uid: made["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        provider_id: made["spec"]["providerID"].as_str().unwrap_or_default().to_owned(),
    })
}

fn cordon(entry: &Entry<'_>) -> Option<What> {
    let node = entry.name.to_owned();
    let taints = entry.asked.pointer("/spec/taints").and_then(Value::as_array);
    let drains = |taint: &Value| taint["key"].as_str().is_some_and(|key| DRAINS.contains(&key));
    if taints.is_some_and(|taints| taints.iter().any(drains)) {
        return Some(What::Cordon { node, cordoned: true });
    }
    let value = entry.asked.pointer("/spec/unschedulable")?;
    Some(What::Cordon { node, cordoned: value.as_bool().unwrap_or(false) })
}

/// What became of a pod, if the write tells.
fn pod(entry: &Entry<'_>) -> Vec<What> {
    let named = |name: &str| format!("{}/{name}", entry.namespace);
    match (entry.subresource, entry.verb) {
        ("", "create") => {
            let made = entry.made;
            let Some(name) = made["metadata"]["name"].as_str() else { return Vec::new() };
            let grace = made["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
            let mut all = vec![What::Pod { pod: named(name), workload: workload(entry, made), grace }];
            let node = made["spec"]["nodeName"].as_str();
            all.extend(node.map(|node| What::Bound { pod: named(name), node: node.to_owned() }));
            all
        }
        ("binding", "create") => {
            let node = entry.asked["target"]["name"].as_str();
            node.map(|node| What::Bound { pod: named(entry.name), node: node.to_owned() })
                .into_iter()
                .collect()
        }
        ("eviction", "create") => vec![What::PodEnds { pod: named(entry.name), gone: false }],
        ("", "delete") => {
            // Its kubelet ends it like this, and so does whoever does not wait for that.
            let now = entry.asked["gracePeriodSeconds"].as_i64() == Some(0);
            let (made, metadata) = (!entry.made.is_null(), &entry.made["metadata"]);
            let at_once =
                metadata["deletionTimestamp"].is_null() || metadata["deletionGracePeriodSeconds"] == 0;
            let gone = now || (made && at_once);
            gone.then(|| What::PodEnds { pod: named(entry.name), gone }).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// What a pod belongs to.
fn workload(entry: &Entry<'_>, pod: &Value) -> Option<Workload> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
    // Between a Deployment and its pods there is a ReplicaSet that has a hash behind the name.
    let (kind, name) = match kind {
        "ReplicaSet" => ("Deployment", name.rsplit_once('-')?.0),
        _ => (kind, name),
    };
    Some(Workload { kind: kind.to_owned(), namespace: entry.namespace.to_owned(), name: name.to_owned() })
}

/// What an allocation asks for after a write, where the log has that.
fn spec(entry: &Entry<'_>) -> Option<Spec> {
    let spec = entry.made.get("spec")?;
    let listed = spec["reservedIPs"].as_array().map_or(&[][..], Vec::as_slice);
    let drain = spec["failover"]["drainTimeoutSeconds"].as_u64().filter(|seconds| *seconds > 0);
    let part = |of: &Value, key: &str| of[key].as_str().map(str::to_owned);
    let workload = &spec["workloadRef"];
    Some(Spec {
        allocation: entry.made["metadata"]["name"].as_str()?.to_owned(),
        generation: entry.made["metadata"]["generation"].as_i64(),
        addresses: listed.iter().filter_map(|address| address.as_str()?.parse().ok()).collect(),
        retain: spec["releasePolicy"] == "Retain",
        drain: drain.map(Duration::from_secs),
        workload: part(workload, "kind").zip(part(workload, "name")).map(|(kind, name)| Workload {
            kind,
            name,
            namespace: part(workload, "namespace").unwrap_or_default(),
        }),
    })
}

/// Marks that a write sets or takes away; none if it is about something else.
fn marks(entry: &Entry<'_>) -> Option<Marks> {
    let mut marks = Marks { by: entry.user.to_owned(), node: entry.name.to_owned(), ..Marks::default() };
    let touched = match entry.asked {
        Value::Array(operations) => patched(operations, &mut marks),
        object => applied(object, &mut marks),
    };
    let ours = [LABEL_READY, LABEL_ALLOCATION, ANNOTATION_RESERVED_IP];
    let (own, others): (Vec<String>, Vec<String>) =
        touched.into_iter().partition(|key| ours.contains(&key.as_str()));
    marks.others = others;
    marks.own = !own.is_empty();
    (!own.is_empty() || !marks.others.is_empty()).then_some(marks)
}

/// An object that is applied or merged. Gives the keys of labels and annotations in it.
fn applied(object: &Value, marks: &mut Marks) -> Vec<String> {
    let metadata = &object["metadata"];
    marks.uid = metadata["uid"].as_str().map(str::to_owned);
    let address = metadata["annotations"][ANNOTATION_RESERVED_IP].as_str();
    let ready = metadata["labels"][LABEL_READY].as_str() == Some("true");
    marks.address = address.filter(|_| ready).and_then(|address| address.parse().ok());
    marks.allocation = metadata["labels"][LABEL_ALLOCATION].as_str().map(str::to_owned);
    let keys = ["labels", "annotations"].into_iter().filter_map(|part| metadata[part].as_object());
    keys.flat_map(|map| map.keys().cloned()).collect()
}

/// A JSON patch. Gives the keys of labels and annotations that it changes.
fn patched(operations: &[Value], marks: &mut Marks) -> Vec<String> {
    let mut keys = Vec::new();
    for operation in operations {
        let path = operation["path"].as_str().unwrap_or_default();
        if operation["op"] == "test" {
            if path == "/metadata/uid" {
                marks.uid = operation["value"].as_str().map(str::to_owned);
            }
            continue;
        }
        let of = path.strip_prefix("/metadata/labels/").or(path.strip_prefix("/metadata/annotations/"));
        let Some(key) = of.map(|key| key.replace("~1", "/").replace("~0", "~")) else { continue };
        let value = operation["value"].as_str();
        match key.as_str() {
            ANNOTATION_RESERVED_IP => marks.address = value.and_then(|address| address.parse().ok()),
            LABEL_ALLOCATION => marks.allocation = value.map(str::to_owned),
            _ => {}
        }
        keys.push(key);
    }
    keys
}

fn status(entry: &Entry<'_>) -> Option<Status> {
    let written = match entry.asked {
        Value::Array(operations) => {
            &operations.iter().find(|operation| operation["path"] == "/status")?["value"]
        }
        object => object.get("status")?,
    };
    let conditions = written["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let reasons = conditions.iter().filter_map(|condition| condition["reason"].as_str());
    Some(Status {
        by: entry.user.to_owned(),
        allocation: entry.name.to_owned(),
        ready: conditions.iter().any(|of| of["type"] == "Ready" && of["status"] == "True"),
        observed: written["observedGeneration"].as_i64(),
        reasons: reasons.map(str::to_owned).collect(),
    })
}

fn takes_finalizer(asked: &Value) -> bool {
    let finalizers = match asked {
        Value::Array(operations) => operations
            .iter()
            .find(|operation| operation["path"] == "/metadata/finalizers")
            .map(|operation| &operation["value"]),
        object => object.pointer("/metadata/finalizers"),
    };
    finalizers.is_some_and(|left| !left.to_string().contains(FINALIZER))
}

fn lease(entry: &Entry<'_>) -> Option<Lease> {
    let spec = entry.asked.get("spec")?;
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
    Some(Lease {
        holder: holder.map(str::to_owned),
        seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or(0),
        transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
    })
}

#[cfg(test)]
#[path = "of_audit_tests.rs"]
mod tests;
