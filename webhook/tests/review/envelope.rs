//! Bytes that are a review, and bytes that are none.

use base64::Engine as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;
use webhook::decide::{Decision, Question, decide};
use webhook::index::Index;
use webhook::review::{self, Malformed};

pub fn review(group: &str, resource: &str, operation: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": operation, "namespace": "prod", "dryRun": false,
            "kind": { "group": group, "version": "v1", "kind": "X" },
            "resource": { "group": group, "version": "v1", "resource": resource },
            "userInfo": { "username": "somebody" }, "object": object, "oldObject": null, "options": null,
        },
    })
}

pub fn allocation_review(spec: &Value) -> Value {
    let object = json!({ "metadata": { "name": "x" }, "spec": spec });
    review("netinfra.darkbrains.com", "netipallocations", "CREATE", &object)
}

fn index() -> Index {
    let mut index = Index::new(BTreeSet::new());
    let spec = json!({ "reservedIPs": ["203.0.113.1"], "cloud": { "provider": "gcp" },
                       "workloadRef": { "kind": "StatefulSet", "name": "sip", "namespace": "prod" } });
    index.apply_allocation("voice", &spec, false);
    index
}

/// The response to bytes, decoded again.
fn respond(question: Question, bytes: &[u8]) -> Result<Value, Malformed> {
    let request = review::decode(bytes)?;
    match decide(question, &request, &index(), Instant::now(), true)? {
        Decision::Answer(verdict, _) => {
            let bytes = review::encode(&request.uid, &verdict).expect("encodes");
            Ok(serde_json::from_slice::<Value>(&bytes).expect("JSON")["response"].take())
        }
        Decision::Await(unknown) => panic!("{unknown:?}"),
    }
}

fn why(question: Question, review: &Value) -> String {
    match respond(question, review.to_string().as_bytes()) {
        Err(Malformed(why)) => why,
        Ok(response) => panic!("was answered: {response}"),
    }
}

#[test]
fn a_refusal_has_every_fault_with_its_field() {
    let review = allocation_review(&json!({ "reservedIPs": ["foo", 7], "cloud": {} }));
    let response = respond(Question::MutateAllocation, review.to_string().as_bytes()).expect("answered");
    assert_eq!(response["uid"], "u-1");
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 422);
    let message = response["status"]["message"].as_str().expect("text");
    for path in ["spec.reservedIPs[0]", "spec.reservedIPs[1]", "spec.cloud.provider"] {
        assert!(message.contains(path), "{message}");
        let causes = response["status"]["details"]["causes"].as_array().expect("a list");
        assert!(causes.iter().any(|cause| cause["field"] == path), "{causes:?}");
    }
    assert_eq!(response.get("patch"), None, "what is refused is not changed");
}

/// A spec can be megabytes of faults; the answer is not.
#[test]
fn an_answer_is_short_whatever_was_asked() {
    let selector: serde_json::Map<String, Value> =
        (0..20_000).map(|n| (format!("bad key {n}"), json!("x".repeat(200)))).collect();
    let mut review =
        allocation_review(&json!({ "reservedIPs": ["y".repeat(1 << 20)], "nodeSelector": selector }));
    let bytes = review.to_string();
    let response = respond(Question::MutateAllocation, bytes.as_bytes()).expect("answered").to_string();
    assert!(response.len() < 200_000, "{} bytes", response.len());
    assert!(response.contains("more"), "{response}");
    review["request"]["uid"] = json!("u".repeat(1 << 20));
    assert!(why(Question::MutateAllocation, &review).contains("no uid"));
}

#[test]
fn a_patch_is_base64() {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sip", "uid": "s", "controller": true });
    let mut object = json!({ "metadata": { "name": "sip-0", "ownerReferences": [owner] }, "spec": {} });
    let review = review("", "pods", "CREATE", &object);
    let response = respond(Question::MutateWorkload, review.to_string().as_bytes()).expect("answered");
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = base64::engine::general_purpose::STANDARD
        .decode(response["patch"].as_str().expect("text"))
        .expect("base64");
    json_patch::patch(&mut object, &serde_json::from_slice::<json_patch::Patch>(&patch).expect("a patch"))
        .expect("applies");
    assert_eq!(
        webhook::affinity::required(&object["spec"]["affinity"]),
        Some(BTreeSet::from(["voice".to_owned()]))
    );
}

#[test]
fn what_needs_no_change_gets_no_patch() {
    for object in
        [json!({}), json!({ "metadata": null, "spec": null }), json!({ "spec": { "nodeName": "n" } })]
    {
        let review = review("", "pods", "CREATE", &object);
        let response = respond(Question::MutateWorkload, review.to_string().as_bytes()).expect("answered");
        assert_eq!(response, json!({ "uid": "u-1", "allowed": true }), "{object}");
    }
}

#[test]
fn only_version_1_is_understood() {
    let mut review = allocation_review(&json!({}));
    for (version, kind) in [
        ("admission.k8s.io/v1beta1", "AdmissionReview"),
        ("admission.k8s.io/v2", "AdmissionReview"),
        ("", "AdmissionReview"),
        ("admission.k8s.io/v1", "ConversionReview"),
    ] {
        review["apiVersion"] = json!(version);
        review["kind"] = json!(kind);
        assert!(why(Question::MutateAllocation, &review).contains("admission.k8s.io/v1 is expected"));
    }
}

#[test]
fn what_is_missing_is_named() {
    let whole = allocation_review(&json!({}));
    for (path, value, words) in [
        ("/request", json!(null), "no request"),
        ("/request/uid", json!(""), "no uid"),
        ("/request/object", json!(null), "no object"),
        ("/request/operation", json!("DELETE"), "only CREATE and UPDATE"),
        ("/request/operation", json!("CONNECT"), "only CREATE and UPDATE"),
        ("/request/operation", json!("UPDATE"), "no oldObject"),
        ("/request/resource/resource", json!("pods"), "netipallocations are reviewed here"),
        ("/request/subResource", json!("status"), "subresources"),
    ] {
        let mut review = whole.clone();
        if path == "/request/subResource" {
            review["request"]["subResource"] = value;
        } else {
            *review.pointer_mut(path).expect("there") = value;
        }
        for question in [Question::MutateAllocation, Question::ValidateAllocation] {
            let why = why(question, &review);
            assert!(why.contains(words), "{path}: {why}");
        }
    }
    let mut without = whole;
    without["request"].as_object_mut().expect("an object").remove("uid");
    assert!(why(Question::MutateAllocation, &without).contains("no uid"));
}

#[test]
fn a_deletion_is_not_reviewed() {
    for (group, resource) in [("", "pods"), ("apps", "daemonsets")] {
        let review = review(group, resource, "DELETE", &json!(null));
        assert!(why(Question::MutateWorkload, &review).contains("only CREATE and UPDATE"));
    }
}

#[test]
fn hostile_bytes_are_refused() {
    let deep = |count: usize| format!("{}{}", "[".repeat(count), "]".repeat(count));
    let inside =
        |text: &str| allocation_review(&json!("HERE")).to_string().replace("\"HERE\"", text).into_bytes();
    let mut not_utf8 = allocation_review(&json!({})).to_string().into_bytes();
    let place = not_utf8.windows(8).position(|w| w == b"somebody").expect("there");
    not_utf8[place] = 0xff;
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("white space", b"  ".to_vec()),
        ("no JSON", b"uid=1".to_vec()),
        ("a list", b"[]".to_vec()),
        ("cut off", allocation_review(&json!({})).to_string().into_bytes()[..90].to_vec()),
        ("two documents", [allocation_review(&json!({})).to_string(), "{}".into()].concat().into_bytes()),
        ("depth", deep(100_000).into_bytes()),
        ("depth in the object", inside(&deep(100_000))),
        ("not UTF-8", not_utf8),
        (
            "a key twice",
            br#"{"apiVersion":"admission.k8s.io/v1","apiVersion":"x","kind":"AdmissionReview"}"#.to_vec(),
        ),
        ("a wrong type", inside("{}").iter().map(|b| if *b == b'{' { b'[' } else { *b }).collect()),
        ("a huge number", inside("1e999999")),
    ] {
        for question in Question::ALL {
            assert!(respond(question, &bytes).is_err(), "{what}");
        }
    }
}

/// What is not looked at may be as deep as it likes: it is skipped without recursion.
#[test]
fn depth_where_nobody_looks_is_skipped() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let review = review("", "pods", "CREATE", &json!({ "spec": { "containers": "HERE" } }));
    let bytes = review.to_string().replace("\"HERE\"", &deep);
    assert_eq!(
        respond(Question::MutateWorkload, bytes.as_bytes()).expect("answered"),
        json!({ "uid": "u-1", "allowed": true })
    );
}

#[test]
fn keys_that_come_twice_in_an_object_are_refused() {
    let twice = r#"{"metadata":{},"metadata":{"name":"y"},"spec":{}}"#;
    let pod = review("", "pods", "CREATE", &json!("HERE")).to_string().replace("\"HERE\"", twice);
    assert!(respond(Question::MutateWorkload, pod.as_bytes()).is_err());
    let twice = r#"{"reservedIPs":["203.0.113.1"],"reservedIPs":["203.0.113.2"],"cloud":{"provider":"gcp"}}"#;
    let allocation = allocation_review(&json!("HERE")).to_string().replace("\"HERE\"", twice);
    for question in [Question::MutateAllocation, Question::ValidateAllocation] {
        assert!(respond(question, allocation.as_bytes()).is_err());
    }
}
