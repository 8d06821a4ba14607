//! Pods and DaemonSets: exact ownership, nothing for anybody else.

use json_patch::Patch;
use plan::WorkloadKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use webhook::affinity::injected;
use webhook::index::Index;
use webhook::workload::{
    LeanPod, Ownership, TEMPLATE_SPEC, ownership, patch_daemon_set, patch_pod, set_daemon_set,
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
    index.apply_replica_set("prod", "rs-1", "web");
    index.apply_replica_set("prod", "rs-2", "web-canary");
    index
}

fn pod(kind: &str, name: &str, uid: &str, hash: &str) -> LeanPod {
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true });
    let object = json!({ "metadata": { "labels": { "pod-template-hash": hash, "app": "web" }, "ownerReferences": [owner] } });
    serde_json::from_value(object).expect("a pod")
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_owner_chain_is_exact() {
    let index = index();
    let owner = |pod: &LeanPod, namespace: &str| ownership(pod, namespace, &index);
    let web = key(crds::WorkloadKind::Deployment, "prod", "web");
    assert_eq!(owner(&pod("ReplicaSet", "web-abc", "rs-1", "abc"), "prod"), Ownership::Workload(web.clone()));
    let canary = key(crds::WorkloadKind::Deployment, "prod", "web-canary");
    assert_eq!(
        owner(&pod("ReplicaSet", "web-canary-abc", "rs-2", "abc"), "prod"),
        Ownership::Workload(canary)
    );
    assert_eq!(
        owner(&pod("ReplicaSet", "web-abc", "rs-1", "abc"), "other"),
        Ownership::ReplicaSet {
            uid: "rs-1".into(),
            guess: Some(key(crds::WorkloadKind::Deployment, "other", "web"))
        },
        "a ReplicaSet of another namespace is another one"
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
        let found = ownership(&pod("ReplicaSet", name, "new", hash), "prod", &Index::default());
        let guess = guess.map(|name| key(crds::WorkloadKind::Deployment, "prod", name));
        assert_eq!(found, Ownership::ReplicaSet { uid: "new".into(), guess }, "{name} {hash:?}");
    }
}

#[test]
fn bare_bound_and_foreign_pods_are_nobodys() {
    let index = index();
    let of = |object: Value| ownership(&serde_json::from_value(object).expect("a pod"), "prod", &index);
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
    let patch = patch_pod(
        &pod("ReplicaSet", "web-a", "rs-1", "a"),
        &key(crds::WorkloadKind::Deployment, "prod", "web"),
        &index(),
    );
    let mut object = json!({ "spec": {} });
    json_patch::patch(&mut object, &patch).expect("applies");
    assert_eq!(injected(&object["spec"]), Some(names(&["more", "voice"])));
    let other = key(crds::WorkloadKind::Deployment, "prod", "web-canary");
    assert_eq!(patch_pod(&pod("ReplicaSet", "web-a", "rs-1", "a"), &other, &index()), Patch::default());
}

#[test]
fn a_daemon_set_gets_it_when_it_is_new_and_keeps_it_when_it_had_it() {
    let (index, edge) = (index(), key(crds::WorkloadKind::DaemonSet, "prod", "edge"));
    let plain = json!({ "spec": { "template": { "spec": { "containers": [] } } } });
    let mut with = plain.clone();
    json_patch::patch(&mut with, &patch_daemon_set(&plain, None, &edge, &index)).expect("applies");
    assert_eq!(injected(with.pointer(TEMPLATE_SPEC).expect("there")), Some(names(&["edge"])), "new");
    let kept = patch_daemon_set(&plain, Some(&with), &edge, &index);
    assert!(!kept.0.is_empty(), "a user's apply does not take it away");
    assert_eq!(
        patch_daemon_set(&plain, Some(&plain), &edge, &index),
        Patch::default(),
        "a running one waits"
    );

    let mut bare = with.clone();
    json_patch::patch(&mut bare, &set_daemon_set(&with, &BTreeSet::new())).expect("applies");
    assert_eq!(bare, plain);
    let mut set = plain;
    json_patch::patch(&mut set, &set_daemon_set(&bare, &names(&["edge"]))).expect("applies");
    assert_eq!(set, with);
}

#[test]
fn the_index_follows_its_objects() {
    let mut index = index();
    let address = "203.0.113.1".parse().expect("an address");
    assert_eq!(index.holder(address, "other"), Some("voice"));
    assert_eq!(index.holder(address, "voice"), None, "one's own list is no duplicate");
    index.apply_allocation("voice", &allocation("Deployment", "web", "203.0.113.9"), false);
    assert_eq!(index.holder(address, "other"), None, "what was taken off is free");
    index.apply_allocation("voice", &allocation("Deployment", "web", "203.0.113.9"), true);
    let web = key(crds::WorkloadKind::Deployment, "prod", "web");
    assert_eq!(index.allocations_of(&web), Some(&names(&["more"])), "no pods for one that is being deleted");
    assert_eq!(
        index.holder("203.0.113.9".parse().expect("an address"), "x"),
        Some("voice"),
        "it still holds it"
    );
    for name in ["voice", "more", "sip", "edge"] {
        index.remove_allocation(name);
    }
    index.remove_replica_set("prod", "rs-1");
    index.remove_replica_set("prod", "rs-2");
    assert_eq!(index.sizes(), [0, 0, 0, 0]);
    assert!(index.namespaces().is_empty());
}

#[test]
fn an_allocation_in_mode_plan_changes_no_pod() {
    let mut index = Index::default();
    let mut spec = allocation("Deployment", "web", "203.0.113.1");
    spec["mode"] = json!("Plan");
    index.apply_allocation("voice", &spec, false);
    assert_eq!(index.allocations_of(&key(crds::WorkloadKind::Deployment, "prod", "web")), None);
}
