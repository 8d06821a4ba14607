//! What the audit log says.

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
        own: true,
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
    let other = json!({ "metadata": { "labels": { "tier": "edge" } } });
    let found = events(&line(200, "patch", &node, &other, &Value::Null));
    assert!(matches!(&found[..], [What::Marks(marks)] if !marks.own), "no mark is touched: {found:?}");
}

fn pod(name: &str) -> Value {
    json!({ "resource": "pods", "namespace": "prod", "name": name })
}

#[test]
fn pods_come_and_go() {
    let owner = json!([{ "kind": "ReplicaSet", "name": "web-canary-5d4f", "controller": true }]);
    let made = json!({
        "metadata": { "name": "web-1", "ownerReferences": owner },
        "spec": { "terminationGracePeriodSeconds": 20 },
    });
    let workload = Workload {
        kind: "Deployment".to_owned(),
        namespace: "prod".to_owned(),
        name: "web-canary".to_owned(),
    };
    let born = What::Pod { pod: "prod/web-1".to_owned(), workload: Some(workload), grace: 20 };
    assert_eq!(events(&line(201, "create", &pod(""), &json!({}), &made)), [born]);
    let mut binding = pod("web-1");
    binding["subresource"] = json!("binding");
    let bound = What::Bound { pod: "prod/web-1".to_owned(), node: "n".to_owned() };
    let target = json!({ "target": { "name": "n" } });
    assert_eq!(events(&line(201, "create", &binding, &target, &Value::Null)), [bound]);
    let deleted = |asked: Value, deletion: Value| {
        let mut made = json!({ "metadata": deletion });
        made["metadata"]["name"] = json!("web-1");
        events(&line(200, "delete", &pod("web-1"), &asked, &made))
    };
    let within = |seconds: i64| json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": seconds });
    let gone = What::PodEnds { pod: "prod/web-1".to_owned(), gone: true };
    let now = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(deleted(json!({}), within(20)), [], "it takes its time");
    assert_eq!(deleted(now, within(20)), std::slice::from_ref(&gone), "its kubelet ended it");
    assert_eq!(deleted(json!({}), within(0)), std::slice::from_ref(&gone), "it has no time to end");
    assert_eq!(deleted(json!({}), json!({})), [gone], "nobody waits for it");
}

#[test]
fn what_an_allocation_asks_for_is_read_from_what_came_of_a_write() {
    let made = json!({
        "metadata": { "name": "web", "generation": 2 },
        "spec": {
            "reservedIPs": ["203.0.113.1"], "releasePolicy": "Retain",
            "failover": { "drainTimeoutSeconds": 3 },
            "workloadRef": { "kind": "Deployment", "namespace": "prod", "name": "web" },
        },
    });
    let object = json!({ "resource": "netipallocations", "name": "web" });
    let patch = json!({ "spec": { "paused": false } });
    let workload =
        Workload { kind: "Deployment".to_owned(), namespace: "prod".to_owned(), name: "web".to_owned() };
    let expected = Spec {
        allocation: "web".to_owned(),
        generation: Some(2),
        addresses: "203.0.113.1".parse().into_iter().collect(),
        retain: true,
        drain: Some(Duration::from_secs(3)),
        workload: Some(workload),
    };
    assert_eq!(events(&line(200, "patch", &object, &patch, &made)), [What::Spec(expected)]);
    let gone = What::Going { allocation: "web".to_owned() };
    assert_eq!(events(&line(200, "delete", &object, &json!({}), &Value::Null)), [gone]);
}

#[test]
fn an_autoscalers_taint_is_a_cordon() {
    let node = json!({ "resource": "nodes", "name": "n" });
    let with = |key: &str| json!({ "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } });
    let expected = What::Cordon { node: "n".to_owned(), cordoned: true };
    let patched = |key: &str| events(&line(200, "patch", &node, &with(key), &Value::Null));
    assert_eq!(patched("karpenter.sh/disrupted"), [expected]);
    assert_eq!(patched("dedicated"), []);
}

#[test]
fn a_log_is_read_on_from_where_it_was_left() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit.log");
    let gone = |name: &str| {
        line(200, "delete", &json!({ "resource": "nodes", "name": name }), &Value::Null, &Value::Null)
    };
    let (first, second) = (gone("a"), gone("b"));
    let mut log = AuditLog::new(&path, USER);
    std::fs::write(&path, format!("{first}\n{}", &second[..20]))?;
    assert_eq!(log.events()?.len(), 1, "half a line is none");
    std::fs::write(&path, format!("{first}\n{second}\n"))?;
    assert_eq!(log.events()?.len(), 2);
    assert_eq!(log.events()?.len(), 2, "nothing is read twice");
    Ok(())
}

#[test]
fn nodes_leases_statuses_and_finalizers_are_read() {
    let made = json!({ "metadata": { "name": "n", "uid": "u" }, "spec": { "providerID": "gce://p/z/n" } });
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
