//! Whose a requirement is: nothing is deleted or patched that somebody else wrote.
#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{from_value, json};

/// A pod or a template with what admission injects; then what is left of it.
fn injected(mark: Option<&str>) -> Value {
    let pair = json!([
        { "key": crds::LABEL_READY, "operator": "In", "values": ["true"] },
        { "key": crds::LABEL_ALLOCATION, "operator": "In", "values": ["voice"] },
    ]);
    let terms = json!([{ "matchExpressions": pair }]);
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    let annotations = mark.map_or(json!({}), |mark| json!({ ANNOTATION_INJECTED: mark }));
    json!({ "metadata": { "name": "x", "annotations": annotations }, "spec": { "affinity": affinity } })
}

fn daemon_set(template: &Value) -> plan::Workload {
    let object = json!({ "metadata": { "name": "x" }, "spec": { "selector": {}, "template": template } });
    from_value::<DaemonSet>(object).unwrap().for_planner()
}

#[test]
fn a_requirement_is_ours_only_with_its_mark() {
    for (mark, ours) in [(Some("voice"), true), (None, false), (Some("another"), false)] {
        let pod: Pod = from_value(injected(mark)).unwrap();
        assert_eq!(pod.injected(), Some(BTreeSet::from(["voice".to_owned()])), "{mark:?}");
        assert_eq!(pod.is_ours(), ours, "pod {mark:?}");
        let workload = daemon_set(&injected(mark));
        assert_eq!(workload.injected, Some(BTreeSet::from(["voice".to_owned()])), "{mark:?}");
        assert_eq!(workload.ours, ours, "template {mark:?}");
    }
}

#[test]
fn what_requires_nothing_is_nobodys() {
    let bare = json!({ "metadata": { "name": "x" }, "spec": {} });
    let pod: Pod = from_value(bare.clone()).unwrap();
    assert!(pod.injected().is_none() && !pod.is_ours());
    let workload = daemon_set(&bare);
    assert!(workload.injected.is_none() && !workload.ours);
}
