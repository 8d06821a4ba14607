//! Pods and DaemonSets: exact ownership, nothing for anybody else.

use json_patch::Patch;
use plan::WorkloadKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use webhook::affinity::injected;
use webhook::index::Index;
use webhook::workload::{
    LeanDaemonSet, LeanPod, Ownership, TEMPLATE_SPEC, ownership, patch_daemon_set, patch_pod, set_daemon_set,
};

fn key(kind: crds::WorkloadKind, namespace: &str, name: &str) -> WorkloadKey {
    WorkloadKey { kind, namespace: namespace.into(), name: name.into() }
}

fn allocation(kind: &str, name: &str, address: &str) -> Value {
    json!({ "reservedIPs": [address], "cloud": { "provider": "gcp" },
            "workloadRef": { "kind": kind, "name": name, "namespace": "prod" } })
}

fn index() -> Index {
    let mut index = Index::default();
    index.apply_allocation("voice", &allocation("Deployment", "web", "203.0.113.1"), false);
    index.apply_allocation("more", &allocation("Deployment", "web", "203.0.113.2"), false);
    index.apply_allocation("sip", &allocation("StatefulSet", "sip", "203.0.113.3"), false);
    index.apply_allocation("edge", &allocation("DaemonSet", "edge", "203.0.113.4"), false);
    index.apply_replica_set("prod", "rs-1", Some("web"));
    index.apply_replica_set("prod", "rs-2", Some("web-canary"));
    index.apply_replica_set("prod", "rs-3", None);
    index
}

fn read(text: &str) -> LeanPod<'_> {
    serde_json::from_str(text).expect("a pod")
}

fn pod(kind: &str, name: &str, uid: &str, hash: &str) -> String {
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true });
    let object = json!({ "metadata": { "labels": { "pod-template-hash": hash, "app": "web" }, "ownerReferences": [owner] } });
    object.to_string()
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_owner_chain_is_exact() {
    let index = index();
    let owner = |pod: &str, namespace: &str| ownership(&read(pod), namespace, &index);
    let web = key(crds::WorkloadKind::Deployment, "prod", "web");
    assert_eq!(owner(&pod("ReplicaSet", "web-abc", "rs-1", "abc"), "prod"), Ownership::Workload(web.clone()));
    let canary = key(crds::WorkloadKind::Deployment, "prod", "web-canary");
    assert_eq!(
        owner(&pod("ReplicaSet", "web-canary-abc", "rs-2", "abc"), "prod"),
        Ownership::Workload(canary)
    );
    assert_eq!(
        owner(&pod("ReplicaSet", "web-abc", "rs-1", "abc"), "other"),
        Ownership::Nobody,
        "nobody refers to a Deployment in that namespace, so there is nothing to wait for"
    );
    assert_eq!(
        owner(&pod("ReplicaSet", "web-abc", "rs-9", "abc"), "prod"),
        Ownership::ReplicaSet { uid: "rs-9".into(), guess: Some(web) },
        "not shown yet"
    );
    assert_eq!(
        owner(&pod("ReplicaSet", "web-abc", "rs-3", "abc"), "prod"),
        Ownership::Nobody,
        "known to be of no Deployment, whatever its name"
    );
    let sip = key(crds::WorkloadKind::StatefulSet, "prod", "sip");
    assert_eq!(owner(&pod("StatefulSet", "sip", "u", ""), "prod"), Ownership::Workload(sip));
    for kind in ["DaemonSet", "Job", "ReplicationController", "Node"] {
        assert_eq!(owner(&pod(kind, "web", "u", "abc"), "prod"), Ownership::Nobody, "{kind}");
    }
}

#[test]
fn an_unknown_replica_set_is_guessed_by_the_whole_hash_only() {
    for (name, hash, guess) in [
        ("web-5d4f", "5d4f", Some("web")),
        ("web-canary-5d4f", "5d4f", Some("web-canary")),
        ("web-5d4f", "4f", None),
        ("web-5d4f", "", None),
        ("-5d4f", "5d4f", None),
        ("handmade", "5d4f", None),
    ] {
        let found = ownership(&read(&pod("ReplicaSet", name, "new", hash)), "prod", &index());
        let guess = guess.map(|name| key(crds::WorkloadKind::Deployment, "prod", name));
        assert_eq!(found, Ownership::ReplicaSet { uid: "new".into(), guess }, "{name} {hash:?}");
    }
}

#[test]
fn bare_bound_and_foreign_pods_are_nobodys() {
    let index = index();
    let of = |object: Value| ownership(&read(&object.to_string()), "prod", &index);
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-a", "uid": "rs-1", "controller": true }]);
    assert_eq!(of(json!({ "metadata": {} })), Ownership::Nobody);
    assert_eq!(
        of(json!({ "metadata": { "ownerReferences": owner }, "spec": { "nodeName": "n1" } })),
        Ownership::Nobody
    );
    let mut foreign = owner.clone();
    foreign[0]["apiVersion"] = json!("example.com/v1");
    assert_eq!(of(json!({ "metadata": { "ownerReferences": foreign } })), Ownership::Nobody);
    let mut mere_owner = owner;
    mere_owner[0]["controller"] = json!(false);
    assert_eq!(of(json!({ "metadata": { "ownerReferences": mere_owner } })), Ownership::Nobody);
}

#[test]
fn two_allocations_of_one_workload_are_in_one_requirement() {
    let text = pod("ReplicaSet", "web-a", "rs-1", "a");
    let patch = |name| {
        patch_pod(&read(&text), &key(crds::WorkloadKind::Deployment, "prod", name), &index())
            .expect("readable")
    };
    let mut object = json!({ "spec": {} });
    json_patch::patch(&mut object, &patch("web")).expect("applies");
    assert_eq!(injected(&object["spec"]), Some(names(&["more", "voice"])));
    assert_eq!(patch("web-canary"), Patch::default());
}

#[test]
fn a_daemon_set_gets_it_when_it_is_new_and_keeps_it_when_it_had_it() {
    let index = index();
    let patch = |object: &Value, old: Option<&Value>| {
        let (object, old) = (object.to_string(), old.map(Value::to_string));
        let old: Option<LeanDaemonSet<'_>> =
            old.as_ref().map(|old| serde_json::from_str(old).expect("readable"));
        let object = serde_json::from_str(&object).expect("readable");
        patch_daemon_set(&object, old.as_ref(), "prod", &index).expect("readable")
    };
    let plain =
        json!({ "metadata": { "name": "edge" }, "spec": { "template": { "spec": { "containers": [] } } } });
    let mut with = plain.clone();
    json_patch::patch(&mut with, &patch(&plain, None)).expect("applies");
    assert_eq!(injected(with.pointer(TEMPLATE_SPEC).expect("there")), Some(names(&["edge"])), "new");
    assert!(!patch(&plain, Some(&with)).0.is_empty(), "a user's apply does not take it away");
    assert_eq!(patch(&plain, Some(&plain)), Patch::default(), "a running one waits");
    let mut other = plain.clone();
    other["metadata"]["name"] = json!("edge-2");
    assert_eq!(patch(&other, None), Patch::default(), "a look-alike");

    let mut bare = with.clone();
    json_patch::patch(&mut bare, &set_daemon_set(&with, &BTreeSet::new())).expect("applies");
    assert_eq!(bare, plain);
    let mut set = plain;
    json_patch::patch(&mut set, &set_daemon_set(&bare, &names(&["edge"]))).expect("applies");
    assert_eq!(set, with);
}

#[test]
fn an_allocation_in_mode_plan_changes_no_pod() {
    let mut index = Index::default();
    let mut spec = allocation("Deployment", "web", "203.0.113.1");
    spec["mode"] = json!("Plan");
    index.apply_allocation("voice", &spec, false);
    assert_eq!(index.allocations_of(&key(crds::WorkloadKind::Deployment, "prod", "web")), None);
}
