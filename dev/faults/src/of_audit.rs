//! What was written to an API server, by its audit log.

use crate::history::{Event, Lease, Marks, Scope, Status, What};
use crds::{ANNOTATION_RESERVED_IP, FINALIZER, LABEL_ALLOCATION, LABEL_READY};
use serde_json::Value;

/// An entry of the log, as far as it matters.
struct Entry<'a> {
    user: &'a str,
    verb: &'a str,
    resource: &'a str,
    subresource: &'a str,
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
        found.push(What::Write { by: entry.user.to_owned(), text: entry.asked.to_string() });
    }
    let name = entry.name.to_owned();
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
    let value = entry.asked.pointer("/spec/unschedulable")?;
    Some(What::Cordon { node: entry.name.to_owned(), cordoned: value.as_bool().unwrap_or(false) })
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
mod tests {
    use super::*;
    use serde_json::json;

    const USER: &str = "system:serviceaccount:ip-address-controller:ip-address-controller";

    fn line(code: u16, verb: &str, reference: &Value, asked: &Value, made: &Value) -> String {
        json!({
            "stage": "ResponseComplete", "verb": verb, "user": { "username": USER },
            "objectRef": reference, "responseStatus": { "code": code },
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
            "stageTimestamp": "2026-01-01T00:00:01.000000Z",
            "requestObject": asked, "responseObject": made,
        })
        .to_string()
    }

    fn events(line: &str) -> Vec<What> {
        let events = of_audit(line, &Scope::default()).into_iter().map(|event| event.what);
        events.filter(|what| !matches!(what, What::Write { .. })).collect()
    }

    #[test]
    fn marks_are_read_from_apply_and_from_patches() {
        let node = json!({ "resource": "nodes", "name": "node-1" });
        let apply = json!({ "metadata": {
            "uid": "u", "labels": { "ip.ready": "true", "netinfra.darkbrains.com/allocation": "web" },
            "annotations": { "netinfra.darkbrains.com/reserved-ip": "203.0.113.1" },
        }});
        let set = Marks {
            by: USER.to_owned(),
            node: "node-1".to_owned(),
            uid: Some("u".to_owned()),
            address: "203.0.113.1".parse().ok(),
            allocation: Some("web".to_owned()),
            others: Vec::new(),
        };
        assert_eq!(events(&line(200, "patch", &node, &apply, &Value::Null)), [What::Marks(set.clone())]);
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u" },
            { "op": "test", "path": "/metadata/labels/ip.ready", "value": "true" },
            { "op": "remove", "path": "/metadata/labels/ip.ready" },
            { "op": "remove", "path": "/metadata/annotations/netinfra.darkbrains.com~1reserved-ip" },
            { "op": "remove", "path": "/metadata/labels/somebody.else~1s" },
        ]);
        let others = vec!["somebody.else/s".to_owned()];
        let gone = Marks { address: None, allocation: None, others, ..set };
        assert_eq!(events(&line(200, "patch", &node, &patch, &Value::Null)), [What::Marks(gone)]);
        assert_eq!(events(&line(409, "patch", &node, &patch, &Value::Null)), [], "it was refused");
    }

    #[test]
    fn nodes_leases_statuses_and_finalizers_are_read() {
        let made =
            json!({ "metadata": { "name": "n", "uid": "u" }, "spec": { "providerID": "gce://p/z/n" } });
        let node = json!({ "resource": "nodes", "name": "n" });
        let expected =
            What::Node { name: "n".to_owned(), uid: "u".to_owned(), provider_id: "gce://p/z/n".to_owned() };
        assert_eq!(events(&line(201, "create", &node, &json!({}), &made)), [expected]);
        let cordon = json!({ "spec": { "unschedulable": true } });
        let expected = What::Cordon { node: "n".to_owned(), cordoned: true };
        assert_eq!(events(&line(200, "patch", &node, &cordon, &Value::Null)), [expected]);
        let lease = json!({ "resource": "leases", "name": "l", "namespace": "x" });
        let spec = json!({ "spec": {
            "holderIdentity": "first_1", "leaseDurationSeconds": 4, "leaseTransitions": 2,
        }});
        let expected = Lease { holder: Some("first_1".to_owned()), seconds: 4, transitions: 2 };
        let written = line(200, "update", &lease, &spec, &Value::Null);
        assert_eq!(events(&written), [What::Lease(expected)]);
        assert_eq!(events(&written.replace(USER, "system:apiserver")), [], "others have leases of their own");
        let status = json!({ "resource": "netipallocations", "subresource": "status", "name": "web" });
        let patch = json!([{ "op": "add", "path": "/status", "value": {
            "observedGeneration": 3,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "AllAttached" }],
        }}]);
        let expected = Status {
            by: USER.to_owned(),
            allocation: "web".to_owned(),
            ready: true,
            observed: Some(3),
            reasons: vec!["AllAttached".to_owned()],
        };
        assert_eq!(events(&line(200, "patch", &status, &patch, &Value::Null)), [What::Status(expected)]);
        let object = json!({ "resource": "netipallocations", "name": "web" });
        for (left, gone) in [(json!([]), true), (json!([FINALIZER]), false)] {
            let patch = json!([{ "op": "add", "path": "/metadata/finalizers", "value": left }]);
            let found = events(&line(200, "patch", &object, &patch, &Value::Null));
            assert_eq!(found.len(), usize::from(gone), "{found:?}");
        }
    }

    #[test]
    fn what_we_write_can_be_searched_and_half_a_line_is_no_harm() {
        let node = json!({ "resource": "nodes", "name": "n" });
        let text = line(200, "patch", &node, &json!({ "password": "x" }), &Value::Null);
        let found = of_audit(&format!("{text}\n{{\"half"), &Scope::default());
        assert!(matches!(&found[0].what, What::Write { text, .. } if text.contains("password")), "{found:?}");
    }
}
