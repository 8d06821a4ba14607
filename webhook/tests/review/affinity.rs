//! Affinity by property: what is injected is what is meant, once, and can be taken out again.

use json_patch::{Patch, patch};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use webhook::affinity::{inject, injected, remove};

fn expression() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "key": "ip.ready", "operator": "In", "values": ["true"] })),
        Just(json!({ "key": "ip.ready", "operator": "In", "values": ["false"] })),
        ("[a-c]", "[a-c]")
            .prop_map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] })),
        "[a-c]".prop_map(|key| json!({ "key": key, "operator": "Exists" })),
    ]
}

fn term() -> impl Strategy<Value = Value> {
    let fields = Just(json!([{ "key": "metadata.name", "operator": "In", "values": ["n"] }]));
    (prop::collection::vec(expression(), 0..4), prop::option::of(fields)).prop_map(|(expressions, fields)| {
        let mut term = json!({});
        if !expressions.is_empty() {
            term["matchExpressions"] = json!(expressions);
        }
        if let Some(fields) = fields {
            term["matchFields"] = fields;
        }
        term
    })
}

fn preferred() -> Value {
    json!([{ "weight": 1, "preference": { "matchExpressions": [{ "key": "p", "operator": "Exists" }] } }])
}

/// Pod specs as the API server stores them, with every part of an affinity there or not.
pub fn pod_spec() -> impl Strategy<Value = Value> {
    (prop::collection::vec(term(), 0..4), any::<bool>(), any::<bool>()).prop_map(|(terms, prefers, spreads)| {
        let mut spec = json!({ "containers": [{ "name": "main" }] });
        if !terms.is_empty() {
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
                json!(terms);
        }
        if prefers {
            spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred();
        }
        if spreads {
            spec["affinity"]["podAntiAffinity"] = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [] });
        }
        spec
    })
}

fn names() -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set("[a-z]{1,4}", 1..4)
}

fn apply(pod_spec: &Value, operations: &Patch) -> Value {
    let mut object = json!({ "spec": pod_spec });
    patch(&mut object, operations).expect("applies");
    object["spec"].take()
}

fn terms(pod_spec: &Value) -> Vec<Value> {
    let path = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    pod_spec.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Kubernetes' own reading of a term.
fn matches(term: &Value, labels: &[(&str, &str)]) -> bool {
    let list = |key: &str| term.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    let holds = |expression: &Value| {
        let value = labels.iter().find(|(key, _)| expression["key"] == *key).map(|(_, value)| *value);
        match expression["operator"].as_str() {
            Some("Exists") => value.is_some(),
            _ => value.is_some_and(|value| {
                expression["values"].as_array().is_some_and(|all| all.contains(&json!(value)))
            }),
        }
    };
    !(expressions.is_empty() && fields.is_empty()) && expressions.iter().all(holds)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_matched_before_matches_now_on_ready_nodes_only(
        spec in pod_spec(), names in names(), labels in prop::collection::vec(("[a-c]", "[a-c]"), 0..3),
        ready in any::<bool>(), owner in "[a-z]{1,4}",
    ) {
        let after = apply(&spec, &inject(&spec, "/spec", &names));
        let mut all: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        if ready {
            all.push(("ip.ready", "true"));
            all.push(("netinfra.darkbrains.com/allocation", &owner));
        }
        let before = terms(&spec);
        let selected = before.is_empty() || before.iter().any(|term| matches(term, &all));
        let belongs = ready && names.contains(&owner);
        prop_assert_eq!(terms(&after).iter().any(|term| matches(term, &all)), selected && belongs);
    }

    #[test]
    fn a_second_pass_changes_nothing(spec in pod_spec(), names in names()) {
        let after = apply(&spec, &inject(&spec, "/spec", &names));
        prop_assert_eq!(inject(&after, "/spec", &names), Patch(vec![]));
    }

    #[test]
    fn what_was_injected_can_be_taken_out(spec in pod_spec(), names in names()) {
        let after = apply(&spec, &inject(&spec, "/spec", &names));
        prop_assert_eq!(apply(&after, &remove(&after, "/spec")), spec);
    }

    #[test]
    fn other_names_replace_the_first(spec in pod_spec(), first in names(), second in names()) {
        let once = apply(&spec, &inject(&spec, "/spec", &first));
        let twice = apply(&once, &inject(&once, "/spec", &second));
        prop_assert_eq!(twice, apply(&spec, &inject(&spec, "/spec", &second)));
    }

    #[test]
    fn the_names_can_be_read_back(spec in pod_spec(), names in names()) {
        let after = apply(&spec, &inject(&spec, "/spec", &names));
        let changed = after != spec;
        prop_assert_eq!(injected(&after), changed.then_some(names));
        prop_assert_eq!(injected(&spec), None);
    }

    #[test]
    fn nothing_else_is_touched(spec in pod_spec(), names in names()) {
        let after = apply(&spec, &inject(&spec, "/spec", &names));
        prop_assert_eq!(&after["containers"], &spec["containers"]);
        prop_assert_eq!(after["affinity"].get("podAntiAffinity"), spec["affinity"].get("podAntiAffinity"));
        let preferred = "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
        prop_assert_eq!(after.pointer(preferred), spec.pointer(preferred));
        for (before, now) in terms(&spec).iter().zip(terms(&after)) {
            prop_assert_eq!(before.get("matchFields"), now.get("matchFields"));
        }
    }

    #[test]
    fn no_input_panics(value in "\\PC*", names in names()) {
        let spec: Value = serde_json::from_str(&value).unwrap_or_else(|_| json!({ "affinity": value }));
        inject(&spec, "/spec", &names);
        remove(&spec, "/spec");
        injected(&spec);
    }
}
