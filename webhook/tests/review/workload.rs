//! Pods and DaemonSets: exact ownership, nothing for anybody else.

use json_patch::Patch;
use plan::WorkloadKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use webhook::affinity::{is_ours, required};
use webhook::index::Index;
use webhook::workload::{
    LeanDaemonSet, LeanPod, Ownership, disown, ownership, patch_daemon_set, patch_pod, set_daemon_set,
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
    let mut object = json!({ "metadata": {}, "spec": {} });
    json_patch::patch(&mut object, &patch("web")).expect("applies");
    assert_eq!(required(&object["spec"]["affinity"]), Some(names(&["more", "voice"])));
    assert_eq!(
        object["metadata"],
        json!({ "annotations": { "netinfra.darkbrains.com/injected": "more,voice" } })
    );
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
    let plain = json!({ "metadata": { "name": "edge" }, "spec": { "template": {
        "metadata": { "labels": { "app": "edge" }, "annotations": { "team": "voice" } }, "spec": { "containers": [] },
    } } });
    let affinity =
        |object: &Value| object.pointer("/spec/template/spec/affinity").cloned().unwrap_or_default();
    let mut with = plain.clone();
    json_patch::patch(&mut with, &patch(&plain, None)).expect("applies");
    assert_eq!(required(&affinity(&with)), Some(names(&["edge"])), "new");
    assert!(is_ours(Some("edge"), &affinity(&with)));
    assert_eq!(
        with["spec"]["template"]["metadata"]["annotations"],
        json!({ "team": "voice", "netinfra.darkbrains.com/injected": "edge" })
    );
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

/// A DaemonSet that an earlier version injected has no mark: it keeps the requirement through users' writes, and
/// nobody takes it out.
#[test]
fn what_carries_no_mark_is_kept_and_never_taken_out() {
    let plain =
        json!({ "metadata": { "name": "edge" }, "spec": { "template": { "metadata": {}, "spec": {} } } });
    let mut unmarked = plain.clone();
    json_patch::patch(&mut unmarked, &set_daemon_set(&plain, &names(&["edge"]))).expect("applies");
    unmarked["spec"]["template"]["metadata"] = json!({});
    assert_eq!(set_daemon_set(&unmarked, &BTreeSet::new()), Patch::default());
    assert_eq!(set_daemon_set(&unmarked, &names(&["edge"])), Patch::default(), "nothing is missing");
    let (object, old) = (plain.to_string(), unmarked.to_string());
    let object: LeanDaemonSet<'_> = serde_json::from_str(&object).expect("readable");
    let old: LeanDaemonSet<'_> = serde_json::from_str(&old).expect("readable");
    let kept = patch_daemon_set(&object, Some(&old), "prod", &index()).expect("readable");
    assert!(!kept.0.is_empty(), "a user's apply does not take it away");
}

/// Its pods could not be made: the name is no label value.
#[test]
fn an_allocation_with_too_long_a_name_is_injected_nowhere() {
    let mut index = Index::default();
    let key = key(crds::WorkloadKind::StatefulSet, "prod", "sip");
    index.apply_allocation(&"n".repeat(64), &allocation("StatefulSet", "sip", "203.0.113.1"), false);
    assert_eq!(index.allocations_of(&key), None);
    index.apply_allocation(&"n".repeat(63), &allocation("StatefulSet", "sip", "203.0.113.2"), false);
    assert_eq!(index.allocations_of(&key), Some(&names(&[&"n".repeat(63)])));
}

/// Nobody waits for a namespace that cannot be watched.
#[test]
fn a_namespace_that_cannot_be_watched_is_known_to_be_one() {
    let mut index = index();
    assert!(!index.is_failing("prod"));
    index.set_failing("prod", true);
    assert!(index.is_failing("prod") && !index.is_failing("other"));
    index.set_failing("prod", false);
    assert!(!index.is_failing("prod"));
}

#[test]
fn what_a_write_made_ours_is_given_up() {
    let manager = |name: &str, operation: &str| json!({ "manager": name, "operation": operation });
    let fields = [
        manager("kubectl", "Apply"),
        manager("ip-address-controller", "Update"),
        manager("ip-address-controller", "Apply"),
        manager("kube-controller-manager", "Update"),
        manager("ip-address-controller", "Update"),
    ];
    let mut object = json!({ "metadata": { "managedFields": fields } });
    let patch = disown(&object);
    json_patch::patch(&mut object, &patch).expect("applies");
    let expected = json!([fields[0], fields[2], fields[3]]);
    assert_eq!(object["metadata"]["managedFields"], expected);
    assert_eq!(disown(&object), Patch::default());
    assert_eq!(disown(&json!({})), Patch::default());
}
