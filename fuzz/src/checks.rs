//! What holds for any bytes. `make fuzz` looks for some for which it does not; the tests of admission
//! (`webhook/tests/review`) run it on the corpus.

#![allow(dead_code)] // each target uses one of them

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Instant;
use webhook::decide::{Decision, Question, decide};
use webhook::index::Index;
use webhook::{affinity, review};

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index::new(BTreeSet::from(["kube-system".to_owned()]));
    for (name, kind) in
        [("voice", "StatefulSet"), ("more", "StatefulSet"), ("web", "Deployment"), ("edge", "DaemonSet")]
    {
        let spec = json!({ "reservedIPs": ["203.0.113.1"], "cloud": { "provider": "gcp" },
                           "workloadRef": { "kind": kind, "name": "web", "namespace": "prod" } });
        index.apply_allocation(name, &spec, false);
    }
    index.apply_replica_set("prod", "rs-1", Some("web"));
    index
});

/// Whatever comes is answered or refused: the answer names the request, does not depend on anything but
/// request and index, and its patch can be applied to the object that it is for.
pub fn review(bytes: &[u8]) {
    let Ok(request) = review::decode(bytes) else { return };
    let now = Instant::now();
    for question in [Question::MutateAllocation, Question::ValidateAllocation, Question::MutateWorkload] {
        let Ok(Decision::Answer(verdict, _)) = decide(question, &request, &INDEX, now, true) else {
            continue;
        };
        let Ok(Decision::Answer(again, _)) = decide(question, &request, &INDEX, now, true) else {
            panic!("a second look is another one")
        };
        assert_eq!(verdict, again);
        let answer = review::encode(&request.uid, &verdict).expect("an answer is JSON");
        let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        assert_eq!(answer["response"]["uid"], *request.uid);
        assert_eq!(answer["response"]["allowed"], verdict.refusal.is_none());
        for warning in &verdict.warnings {
            assert!(warning.len() <= 120, "{warning}");
        }
        let object = request.object.map(|raw| serde_json::from_str::<Value>(raw.get()));
        if let (None, Some(Ok(mut object))) = (&verdict.refusal, object)
            && object.pointer("/spec").is_none_or(Value::is_object)
            && !verdict.patch.0.is_empty()
            && object.get("spec").is_some()
        {
            // DaemonSets without a template are refused by the API server before we are asked.
            let applied = json_patch::patch(&mut object, &verdict.patch);
            let template = object.pointer("/spec/template/spec").is_some_and(Value::is_object);
            assert!(applied.is_ok() || (request.is_about("apps", "daemonsets") && !template), "{applied:?}");
        }
    }
}

/// Whatever a pod spec is, the patch applies, and a second pass changes nothing.
pub fn affinity(bytes: &[u8]) {
    let Ok(spec @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else { return };
    let names = BTreeSet::from(["more".to_owned(), "voice".to_owned()]);
    let mut object = json!({ "spec": spec });
    let first = affinity::inject(&object, "", &names);
    json_patch::patch(&mut object, &first).expect("the patch applies");
    let second = affinity::inject(&object, "", &names);
    assert!(second.0.is_empty(), "{second}");
    let removal = affinity::remove(&object, "");
    assert_eq!(
        removal.0.is_empty(),
        first.0.is_empty(),
        "what was put in can be taken out, and nothing else"
    );
    json_patch::patch(&mut object, &removal).expect("the removal applies");
    assert!(object.get("metadata").is_none(), "{object}");
}
