//! From bytes to bytes, by property: the patch makes the intended object of generated pods and DaemonSets,
//! and the decision depends on the request and the index alone.

use crate::affinity::pod_spec;
use crate::envelope::review;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use webhook::affinity::{is_ours, required};
use webhook::decide::{Decision, Question, decide};
use webhook::index::Index;
use webhook::review::{self as envelope, Verdict};

fn index(kind: &str, names: &[&str]) -> Index {
    let mut index = Index::default();
    for (number, name) in names.iter().enumerate() {
        let spec = json!({ "reservedIPs": [format!("203.0.113.{}", number + 1)], "cloud": { "provider": "gcp" },
                           "workloadRef": { "kind": kind, "name": "web", "namespace": "prod" } });
        index.apply_allocation(name, &spec, false);
    }
    index.apply_replica_set("prod", "rs-1", Some("web"));
    index
}

fn verdict(review: &Value, index: &Index, now: Instant) -> Verdict {
    let bytes = review.to_string().into_bytes();
    let request = envelope::decode(&bytes).expect("a review");
    match decide(Question::MutateWorkload, &request, index, now, true).expect("an answer") {
        Decision::Answer(verdict, _) => verdict,
        Decision::Await(unknown) => panic!("{unknown:?}"),
    }
}

fn pod(spec: &Value, owner: &str) -> Value {
    let (kind, name) = if owner == "Deployment" { ("ReplicaSet", "web-abc") } else { (owner, "web") };
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "rs-1", "controller": true });
    json!({ "metadata": { "generateName": "web-", "ownerReferences": [owner] }, "spec": spec })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_patch_makes_the_intended_pod(spec in pod_spec(), owner in prop_oneof![Just("Deployment"), Just("StatefulSet")]) {
        let (index, now) = (index(owner, &["a", "b"]), Instant::now());
        let object = pod(&spec, owner);
        let request = review("", "pods", "CREATE", &object);
        let first = verdict(&request, &index, now);
        prop_assert_eq!(&first, &verdict(&request, &index, now + Duration::from_hours(1)), "time changes nothing");
        let mut patched = object.clone();
        json_patch::patch(&mut patched, &first.patch).expect("applies");
        if patched != object {
            let affinity = &patched["spec"]["affinity"];
            // Somebody else may ask for less by hand.
            let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
            prop_assert!(required(affinity).is_some_and(|names| names.is_subset(&both)), "{}", affinity);
            let mark = patched["metadata"]["annotations"]["netinfra.darkbrains.com/injected"].as_str();
            prop_assert_eq!(mark, Some("a,b"));
            prop_assert!(is_ours(mark, affinity));
        }
        // Nothing but the affinity and its mark is touched.
        let mut before = object.clone();
        let mut after = patched.clone();
        before["spec"].as_object_mut().expect("an object").remove("affinity");
        after["spec"].as_object_mut().expect("an object").remove("affinity");
        after["metadata"].as_object_mut().expect("an object").remove("annotations");
        prop_assert_eq!(before, after);
        let again = verdict(&review("", "pods", "CREATE", &patched), &index, now);
        prop_assert!(again.patch.0.is_empty(), "no patch on the second pass");
    }

    #[test]
    fn nobodys_pods_get_no_patch(spec in pod_spec(), owner in prop_oneof![Just("Job"), Just("DaemonSet"), Just("ReplicaSet")]) {
        let request = review("", "pods", "CREATE", &pod(&spec, owner));
        prop_assert_eq!(verdict(&request, &index("StatefulSet", &["a"]), Instant::now()), Verdict::default());
    }

    #[test]
    fn a_daemon_set_keeps_what_it_had(spec in pod_spec()) {
        let (index, now) = (index("DaemonSet", &["a"]), Instant::now());
        let plain = json!({ "metadata": { "name": "web" }, "spec": { "template": { "spec": spec } } });
        let mut created = plain.clone();
        let patch = verdict(&review("apps", "daemonsets", "CREATE", &plain), &index, now).patch;
        json_patch::patch(&mut created, &patch).expect("applies");
        let mut request = review("apps", "daemonsets", "UPDATE", &plain);
        request["request"]["oldObject"] = created.clone();
        let mut updated = plain.clone();
        json_patch::patch(&mut updated, &verdict(&request, &index, now).patch).expect("applies");
        prop_assert_eq!(updated, created);
    }
}
