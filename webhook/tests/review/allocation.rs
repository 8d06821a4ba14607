//! Conversion, canonical text and refusals of NetIPAllocations, on raw JSON.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use webhook::allocation::{Answer, Request, duplicates, mutate, validate};

fn object(spec: &Value) -> Value {
    json!({ "metadata": { "name": "x" }, "spec": spec })
}

fn valid() -> Value {
    json!({ "reservedIPs": ["203.0.113.1"], "cloud": { "provider": "gcp" } })
}

fn with(field: &str, value: Value) -> Value {
    let mut spec = valid();
    spec[field] = value;
    spec
}

fn create(spec: &Value) -> (Answer, Value) {
    respond(&object(spec), None)
}

fn update(old: &Value, new: &Value) -> (Answer, Value) {
    respond(&object(new), Some(&object(old)))
}

/// The answer, and the spec after its patch.
fn respond(object: &Value, old: Option<&Value>) -> (Answer, Value) {
    let excluded = BTreeSet::from(["kube-system".to_owned()]);
    let old = old.map(|old| &old["spec"]);
    let name = object["metadata"]["name"].as_str().expect("a name");
    let answer = mutate(name, object["spec"].clone(), old, &excluded);
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &answer.patch).expect("applies");
    (answer, patched["spec"].take())
}

fn paths(answer: &Answer) -> Vec<&str> {
    answer.faults.iter().map(|fault| fault.path.as_str()).collect()
}

#[test]
fn a_valid_object_passes_as_it_is() {
    assert_eq!(create(&valid()).0, Answer::default());
}

#[test]
fn deployment_ref_becomes_workload_ref() {
    let (answer, spec) = create(&with("deploymentRef", json!({ "name": "app", "namespace": "prod" })));
    assert_eq!(spec["workloadRef"], json!({ "kind": "Deployment", "name": "app", "namespace": "prod" }));
    assert_eq!(spec.get("deploymentRef"), None);
    assert!(answer.warnings[0].contains("deprecated"), "{answer:?}");
    assert!(answer.faults.is_empty(), "{answer:?}");
}

/// A person looks for what is wrong where they wrote it.
#[test]
fn faults_of_a_deployment_ref_have_its_path() {
    for (reference, path) in [
        (json!({}), "spec.deploymentRef.name"),
        (json!({ "name": 7 }), "spec.deploymentRef.name"),
        (json!({ "name": "app", "namespace": "" }), "spec.deploymentRef.namespace"),
    ] {
        assert_eq!(paths(&create(&with("deploymentRef", reference)).0), [path]);
    }
}

#[test]
fn two_references_to_one_workload_are_one() {
    let mut spec = with("deploymentRef", json!({ "name": "app" }));
    spec["workloadRef"] = json!({ "kind": "Deployment", "name": "app", "namespace": "default" });
    let (answer, spec) = create(&spec);
    assert!(answer.faults.is_empty(), "{answer:?}");
    assert_eq!(spec.get("deploymentRef"), None);
}

#[test]
fn two_references_to_different_workloads_are_refused_on_create() {
    let mut spec = with("deploymentRef", json!({ "name": "app" }));
    for workload in [
        json!({ "kind": "Deployment", "name": "other" }),
        json!({ "kind": "StatefulSet", "name": "app" }),
        json!({ "kind": "Deployment", "name": "app", "namespace": "prod" }),
    ] {
        spec["workloadRef"] = workload;
        assert_eq!(paths(&create(&spec).0), ["spec.deploymentRef"]);
    }
}

/// A legacy manifest can be changed and applied again for ever.
#[test]
fn what_the_user_changed_counts_on_update() {
    let stored = with("workloadRef", json!({ "kind": "Deployment", "name": "a", "namespace": "default" }));
    let mut legacy = stored.clone();
    legacy["deploymentRef"] = json!({ "name": "b", "namespace": "default" });
    let (answer, spec) = update(&stored, &legacy);
    assert!(answer.faults.is_empty(), "{answer:?}");
    assert_eq!(spec["workloadRef"]["name"], "b", "deploymentRef is what changed");

    let mut old = stored.clone();
    old["deploymentRef"] = json!({ "name": "a" });
    let mut new = old.clone();
    new["workloadRef"]["name"] = json!("c");
    assert_eq!(update(&old, &new).1["workloadRef"]["name"], "c", "workloadRef is what changed");

    let mut both = stored.clone();
    both["deploymentRef"] = json!({ "name": "d" });
    both["workloadRef"]["name"] = json!("e");
    assert_eq!(paths(&update(&stored, &both).0), ["spec.deploymentRef"], "both changed");
}

#[test]
fn addresses_become_canonical() {
    let (answer, spec) =
        create(&with("reservedIPs", json!(["2001:DB8:0::1", "::ffff:203.0.113.7", "203.0.113.8"])));
    assert!(answer.faults.is_empty(), "{answer:?}");
    assert_eq!(spec["reservedIPs"], json!(["2001:db8::1", "203.0.113.7", "203.0.113.8"]));
}

#[test]
fn five_faults_are_five_lines_with_five_paths() {
    let spec = json!({
        "reservedIPs": ["foo", "10.0.0.1"],
        "cloud": { "provider": "ovh" },
        "reconcileInterval": "30s",
        "workloadRef": { "kind": "Job", "name": "x" },
    });
    let (answer, _) = create(&spec);
    let expected = [
        "spec.reservedIPs[0]",
        "spec.reservedIPs[1]",
        "spec.workloadRef.kind",
        "spec.cloud.provider",
        "spec.reconcileInterval",
    ];
    assert_eq!(paths(&answer).into_iter().collect::<BTreeSet<_>>(), expected.into_iter().collect());
}

#[test]
fn wrong_types_are_faults_too() {
    for (spec, path) in [
        (json!(null), "spec"),
        (json!([]), "spec"),
        (with("reservedIPs", json!("203.0.113.1")), "spec.reservedIPs"),
        (with("reservedIPs", json!([1])), "spec.reservedIPs[0]"),
        (with("cloud", json!("gcp")), "spec.cloud"),
        (with("paused", json!("yes")), "spec.paused"),
        (with("nodeSelector", json!(["a"])), "spec.nodeSelector"),
        (with("failover", json!(3)), "spec.failover"),
    ] {
        assert_eq!(paths(&create(&spec).0), [path], "{spec}");
    }
}

#[test]
fn a_name_that_is_no_label_value_is_refused_on_create_only() {
    let mut long = object(&valid());
    long["metadata"]["name"] = json!("n".repeat(64));
    assert_eq!(paths(&respond(&long, None).0), ["metadata.name"]);
    assert_eq!(respond(&long, Some(&long)).0, Answer::default());
}

/// What an earlier schema let in stands in nobody's way.
#[test]
fn old_faults_do_not_block_other_changes() {
    let old = json!({ "reservedIPs": ["foo"], "cloud": {} });
    let mut new = old.clone();
    new["paused"] = json!(true);
    assert!(update(&old, &new).0.faults.is_empty());
    new["reservedIPs"] = json!(["foo", "bar"]);
    assert_eq!(paths(&update(&old, &new).0), ["spec.reservedIPs[0]", "spec.reservedIPs[1]"]);
}

/// It is we who make the text canonical: that is no reason to judge the list anew.
#[test]
fn canonical_text_is_no_change_of_the_list() {
    let old = json!({ "reservedIPs": ["2001:DB8::1", "foo"], "cloud": { "provider": "gcp" } });
    let mut new = old.clone();
    new["paused"] = json!(true);
    let (answer, spec) = update(&old, &new);
    assert!(answer.faults.is_empty(), "{answer:?}");
    assert_eq!(spec["reservedIPs"], json!(["2001:db8::1", "foo"]));
    assert_eq!(validate(Request { name: "x", spec: &spec, old: Some(&old) }), []);
}

#[test]
fn warnings_are_short_and_to_the_point() {
    let mut spec = with("strategy", json!({ "maxSurge": 1, "maxUnavailable": 0 }));
    let long = "n".repeat(63);
    spec["deploymentRef"] = json!({ "name": "app", "namespace": long });
    let excluded = BTreeSet::from([long.clone()]);
    let answer = mutate("x", spec, None, &excluded);
    for (warning, words) in answer.warnings.iter().zip(["deprecated", "maxSurge", "counts as 1", &long]) {
        assert!(warning.contains(words), "{warning}");
        assert!(warning.len() <= 120, "{} characters: {warning}", warning.len());
    }
    assert_eq!(answer.warnings.len(), 4);
}

#[test]
fn duplicates_across_objects_name_the_other_object() {
    let holder =
        |address: std::net::IpAddr| (address.to_string() == "2001:db8::1").then(|| "other".to_owned());
    let new = with("reservedIPs", json!(["203.0.113.1", "2001:db8::1"]));
    let asked = |old| Request { name: "x", spec: &new, old };
    let faults = duplicates(asked(None), holder);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].path, "spec.reservedIPs[1]");
    assert!(faults[0].message.contains("\"other\""), "{faults:?}");
    assert!(faults[0].message.contains("2001:db8::1"), "{faults:?}");
    // What was there before is no reason to refuse an edit elsewhere.
    assert!(duplicates(asked(Some(&new)), holder).is_empty());
    assert_eq!(duplicates(asked(Some(&valid())), holder), faults);
}

fn any_spec() -> impl Strategy<Value = Value> {
    let address =
        prop_oneof!["203\\.0\\.113\\.[1-9]", Just("2001:DB8::1".to_owned()), Just("foo".to_owned())];
    let reference = prop::option::of("[ab]".prop_map(|name| json!({ "name": name })));
    (prop::collection::vec(address, 0..4), reference.clone(), reference).prop_map(
        |(addresses, deployment, workload)| {
            let mut spec = json!({ "reservedIPs": addresses, "cloud": { "provider": "gcp" } });
            if let Some(deployment) = deployment {
                spec["deploymentRef"] = deployment;
            }
            if let Some(mut workload) = workload {
                workload["kind"] = json!("Deployment");
                spec["workloadRef"] = workload;
            }
            spec
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_mutate_lets_through_validate_accepts(spec in any_spec()) {
        let (answer, patched) = create(&spec);
        let faults = validate(Request { name: "x", spec: &patched, old: None });
        prop_assert_eq!(answer.faults.is_empty(), faults.is_empty());
    }

    #[test]
    fn a_second_pass_changes_nothing(spec in any_spec()) {
        let (answer, patched) = create(&spec);
        if answer.faults.is_empty() {
            let (again, same) = create(&patched);
            prop_assert!(again.patch.0.is_empty());
            prop_assert_eq!(same, patched);
        }
    }
}
