//! The index follows its objects; what was just let through counts too.

use plan::WorkloadKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use webhook::decide::Claim;
use webhook::index::{Index, Sizes};

fn allocation(name: &str, address: &str) -> Value {
    json!({ "reservedIPs": [address], "cloud": { "provider": "gcp" },
            "workloadRef": { "kind": "Deployment", "name": name, "namespace": "prod" } })
}

fn web() -> WorkloadKey {
    WorkloadKey { kind: crds::WorkloadKind::Deployment, namespace: "prod".into(), name: "web".into() }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn it_follows_its_objects() {
    let (mut index, now) = (Index::default(), Instant::now());
    index.apply_allocation("voice", &allocation("web", "203.0.113.1"), false);
    index.apply_allocation("more", &allocation("web", "203.0.113.2"), false);
    index.apply_replica_set("prod", "rs-1", Some("web"));
    assert_eq!(index.holder(address("203.0.113.1"), "other", now), Some("voice"));
    assert_eq!(index.holder(address("203.0.113.1"), "voice", now), None, "one's own list is no duplicate");
    assert_eq!(index.allocations_of(&web()), Some(&names(&["more", "voice"])));
    index.apply_allocation("voice", &allocation("web", "203.0.113.9"), false);
    assert_eq!(index.holder(address("203.0.113.1"), "other", now), None, "what was taken off is free");
    index.apply_allocation("voice", &allocation("web", "203.0.113.9"), true);
    assert_eq!(
        index.allocations_of(&web()),
        Some(&names(&["more"])),
        "no pods for one that is being deleted"
    );
    assert_eq!(index.holder(address("203.0.113.9"), "x", now), Some("voice"), "it still holds it");
    index.retain_allocations(&names(&["more"]));
    assert_eq!(index.holder(address("203.0.113.9"), "x", now), None, "not in a later list");
    assert_eq!(index.namespaces(), names(&["prod"]));
    index.remove_allocation("more");
    index.retain_replica_sets("prod", &BTreeSet::new());
    assert_eq!(index.sizes(), Sizes::default());
    assert!(index.namespaces().is_empty());
}

#[test]
fn two_objects_that_share_an_address_are_both_owners() {
    let (mut index, now) = (Index::default(), Instant::now());
    for name in ["b", "a"] {
        index.apply_allocation(name, &allocation("web", "203.0.113.1"), false);
    }
    assert_eq!(index.holder(address("203.0.113.1"), "x", now), Some("a"));
    assert_eq!(index.holder(address("203.0.113.1"), "a", now), Some("b"));
    index.remove_allocation("a");
    assert_eq!(index.holder(address("203.0.113.1"), "x", now), Some("b"));
}

#[test]
fn workloads_in_excluded_namespaces_are_not_in_it() {
    let mut index = Index::new(names(&["prod"]));
    index.apply_allocation("voice", &allocation("web", "203.0.113.1"), false);
    assert_eq!(index.allocations_of(&web()), None);
    assert!(index.namespaces().is_empty());
    assert_eq!(index.holder(address("203.0.113.1"), "x", Instant::now()), Some("voice"));
}

#[test]
fn what_was_just_let_through_is_held() {
    let (mut index, now) = (Index::default(), Instant::now());
    let claim =
        |name: &str| Claim { name: name.into(), addresses: vec![address("203.0.113.1")], kept: vec![] };
    assert!(index.claim(&claim("a"), now));
    assert!(index.claim(&claim("a"), now), "the API server may ask twice");
    assert!(!index.claim(&claim("b"), now), "somebody was faster");
    assert_eq!(index.holder(address("203.0.113.1"), "b", now), Some("a"));
    let later = now + Duration::from_secs(3);
    assert_eq!(index.holder(address("203.0.113.1"), "b", later), None, "it was not stored after all");
    assert!(index.claim(&claim("b"), later));
}

#[test]
fn the_watch_ends_a_claim() {
    let (mut index, now) = (Index::default(), Instant::now());
    let one = address("203.0.113.1");
    let claim = |name: &str, addresses: &[IpAddr]| Claim {
        name: name.into(),
        addresses: addresses.to_vec(),
        kept: vec![],
    };
    assert!(index.claim(&claim("a", &[one]), now));
    index.apply_allocation("a", &allocation("web", "203.0.113.5"), false);
    assert_eq!(index.holder(one, "b", now), Some("a"), "an older version of a says nothing about it");
    index.apply_allocation("a", &allocation("web", "203.0.113.1"), false);
    index.apply_allocation("a", &allocation("web", "203.0.113.5"), false);
    assert_eq!(index.holder(one, "b", now), None, "shown, and taken off since");

    assert!(index.claim(&claim("a", &[one]), now));
    index.remove_allocation("a");
    assert_eq!(index.holder(one, "b", now), None, "deleted");

    assert!(index.claim(&claim("a", &[one]), now));
    assert!(index.claim(&claim("a", &[address("203.0.113.2")]), now));
    assert_eq!(index.holder(one, "b", now), None, "let through again without it");
}

/// A second update comes before the watch has shown the first: what the object keeps is still its own.
#[test]
fn a_second_update_keeps_the_claim_of_the_first() {
    let (mut index, now) = (Index::default(), Instant::now());
    let (one, two) = (address("203.0.113.1"), address("203.0.113.2"));
    let claim = |addresses: &[IpAddr], kept: &[IpAddr]| Claim {
        name: "a".into(),
        addresses: addresses.to_vec(),
        kept: kept.to_vec(),
    };
    assert!(index.claim(&claim(&[one], &[]), now));
    assert!(index.claim(&claim(&[two], &[one]), now));
    assert_eq!(index.holder(one, "b", now), Some("a"), "it still lists it");
    assert_eq!(index.holder(two, "b", now), Some("a"));
    assert!(index.claim(&claim(&[], &[two]), now));
    assert_eq!(index.holder(one, "b", now), None, "let through again without it");
    assert_eq!(index.holder(two, "b", now), Some("a"));
}
