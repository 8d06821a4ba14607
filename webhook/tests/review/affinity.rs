//! Affinity by property: what is injected is what is meant, once, and can be taken out again.

use json_patch::{Patch, patch};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use webhook::affinity::{inject, is_ours, remove, required};

fn expression() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "key": "ip.ready", "operator": "In", "values": ["true"] })),
        Just(json!({ "key": "ip.ready", "operator": "In", "values": ["false"] })),
        ("[a-c]", "[a-c]")
            .prop_map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] })),
        "[a-c]".prop_map(|key| json!({ "key": key, "operator": "Exists" })),
        by_hand(),
    ]
}

/// What somebody else wrote about our label: by chance the very thing that we would write, too.
fn by_hand() -> impl Strategy<Value = Value> {
    let operator = prop_oneof![Just("In"), Just("In"), Just("NotIn")];
    (operator, prop::collection::btree_set("[a-b]", 1..3)).prop_map(|(operator, names)| {
        json!({ "key": "netinfra.darkbrains.com/allocation", "operator": operator, "values": names })
    })
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

/// Pods, or templates of them, with annotations of others or without.
fn pod() -> impl Strategy<Value = Value> {
    let metadata = prop_oneof![
        Just(json!({ "labels": { "app": "web" } })),
        Just(json!({ "labels": { "app": "web" }, "annotations": { "team": "voice" } })),
        Just(Value::Null),
    ];
    (metadata, pod_spec()).prop_map(|(metadata, spec)| {
        let mut pod = json!({ "spec": spec });
        if !metadata.is_null() {
            pod["metadata"] = metadata;
        }
        pod
    })
}

fn names() -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set("[a-b]{1,2}", 1..4)
}

fn apply(pod: &Value, operations: &Patch) -> Value {
    let mut object = json!({ "spec": { "template": pod } });
    patch(&mut object, operations).expect("applies");
    object["spec"]["template"].take()
}

const AT: &str = "/spec/template";

fn mark(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"]["netinfra.darkbrains.com/injected"].as_str()
}

fn terms(pod: &Value) -> Vec<Value> {
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    pod.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Kubernetes' own reading of a term.
fn matches(term: &Value, labels: &[(&str, &str)]) -> bool {
    let list = |key: &str| term.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    let holds = |expression: &Value| {
        let value = labels.iter().find(|(key, _)| expression["key"] == *key).map(|(_, value)| *value);
        match expression["operator"].as_str() {
            Some("Exists") => value.is_some(),
            Some("NotIn") => !value.is_some_and(|value| {
                expression["values"].as_array().is_some_and(|all| all.contains(&json!(value)))
            }),
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
        pod in pod(), names in names(), labels in prop::collection::vec(("[a-c]", "[a-c]"), 0..3),
        ready in any::<bool>(), owner in "[a-b]{1,2}",
    ) {
        let after = apply(&pod, &inject(&pod, AT, &names));
        let mut all: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        if ready {
            all.push(("ip.ready", "true"));
            all.push(("netinfra.darkbrains.com/allocation", &owner));
        }
        let before = terms(&pod);
        let selected = before.is_empty() || before.iter().any(|term| matches(term, &all));
        let belongs = ready && names.contains(&owner);
        prop_assert_eq!(terms(&after).iter().any(|term| matches(term, &all)), selected && belongs);
    }

    #[test]
    fn a_second_pass_changes_nothing(pod in pod(), names in names()) {
        let after = apply(&pod, &inject(&pod, AT, &names));
        prop_assert_eq!(inject(&after, AT, &names), Patch(vec![]));
    }

    #[test]
    fn what_was_injected_can_be_taken_out(pod in pod(), names in names()) {
        let after = apply(&pod, &inject(&pod, AT, &names));
        prop_assert_eq!(apply(&after, &remove(&after, AT)), pod);
    }

    #[test]
    fn what_was_not_injected_stays(pod in pod()) {
        prop_assert_eq!(remove(&pod, AT), Patch(vec![]));
        prop_assert!(!is_ours(None, &pod["spec"]["affinity"]));
    }

    #[test]
    fn other_names_replace_the_first(pod in pod(), first in names(), second in names()) {
        let once = apply(&pod, &inject(&pod, AT, &first));
        let direct = apply(&pod, &inject(&pod, AT, &second));
        // Where the user's own hand does as much already, nothing is added; but what is there stays.
        prop_assume!((mark(&once).is_some()) == (mark(&direct).is_some()));
        let twice = apply(&once, &inject(&once, AT, &second));
        prop_assert_eq!(twice, direct);
    }

    #[test]
    fn the_mark_is_beside_what_was_injected(pod in pod(), names in names()) {
        let after = apply(&pod, &inject(&pod, AT, &names));
        let joined = names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        if after == pod {
            prop_assert_eq!(mark(&after), None);
        } else {
            prop_assert_eq!(mark(&after), Some(joined.as_str()));
            prop_assert!(is_ours(mark(&after), &after["spec"]["affinity"]));
            let required = required(&after["spec"]["affinity"]).expect("it has the requirement");
            prop_assert!(required.is_subset(&names), "{required:?}");
        }
    }

    #[test]
    fn nothing_else_is_touched(pod in pod(), names in names()) {
        let after = apply(&pod, &inject(&pod, AT, &names));
        prop_assert_eq!(&after["spec"]["containers"], &pod["spec"]["containers"]);
        let (old, new) = (&pod["spec"]["affinity"], &after["spec"]["affinity"]);
        prop_assert_eq!(new.get("podAntiAffinity"), old.get("podAntiAffinity"));
        let preferred = "/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
        prop_assert_eq!(new.pointer(preferred), old.pointer(preferred));
        for (before, now) in terms(&pod).iter().zip(terms(&after)) {
            prop_assert_eq!(before.get("matchFields"), now.get("matchFields"));
        }
        prop_assert_eq!(after["metadata"].get("labels"), pod["metadata"].get("labels"));
        prop_assert_eq!(after["metadata"]["annotations"].get("team"), pod["metadata"]["annotations"].get("team"));
    }

    #[test]
    fn no_input_panics(value in "\\PC*", names in names()) {
        let spec: Value = serde_json::from_str(&value).unwrap_or_else(|_| json!({ "affinity": value }));
        for pod in [json!({ "spec": spec.clone() }), json!({ "metadata": spec.clone() }), spec] {
            inject(&pod, AT, &names);
            remove(&pod, AT);
            required(&pod);
            is_ours(Some(&value), &pod);
        }
    }
}

/// Whatever somebody else asks of our label in another way is not what we inject.
#[test]
fn another_operator_or_half_the_pair_is_no_requirement() {
    let with = |expressions: Value| {
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": expressions }] } } })
    };
    let ready = json!({ "key": "ip.ready", "operator": "In", "values": ["true"] });
    let ours = |operator: &str| json!({ "key": "netinfra.darkbrains.com/allocation", "operator": operator, "values": ["voice"] });
    let voice = BTreeSet::from(["voice".to_owned()]);
    assert_eq!(required(&with(json!([ready, ours("In")]))), Some(voice));
    assert_eq!(required(&with(json!([ready, ours("NotIn")]))), None);
    assert_eq!(required(&with(json!([ours("In")]))), None, "half of the pair");
    assert!(is_ours(Some("voice"), &with(json!([ready, ours("In")]))));
    assert!(!is_ours(Some("voice"), &with(json!([ready, ours("NotIn")]))));
    assert!(!is_ours(Some("other"), &with(json!([ready, ours("In")]))), "another mark");
    assert!(!is_ours(Some(""), &with(json!([ready, ours("In")]))));
    assert!(!is_ours(None, &with(json!([ready, ours("In")]))), "by hand");
}
