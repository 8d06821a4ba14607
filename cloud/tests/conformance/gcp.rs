//! What only GCP does.

use crate::bed::{Bed, call, error, in_sim, ip, node, small_world, within};
use cloud::{AddressState, Call, Class, Cloud, InstanceState};
use serde_json::Value;
use sim::{AddressSpec, Change, Fault, Rule};
use std::sync::atomic::{AtomicUsize, Ordering};

const GCP: Cloud = Cloud::Gcp;

/// The access config of a node, by the simulator's own word.
pub async fn access_config(bed: &Bed, n: usize) -> Value {
    let path = node(GCP, n).replace("gce://dev-project/", "");
    let (zone, name) = path.split_once('/').unwrap();
    let url = format!("{}/compute/v1/projects/dev-project/zones/{zone}/instances/{name}", bed.sim.gcp_url());
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    let instance: Value = serde_json::from_str(&text).unwrap();
    instance["networkInterfaces"][0]["accessConfigs"][0].clone()
}

async fn bed_with_a_private_node() -> Bed {
    let mut world = small_world(GCP);
    world.instances[2].ephemeral = false;
    Bed::of(GCP, world).await
}

pub async fn the_name_says_address_and_whether_there_was_one() {
    let bed = bed_with_a_private_node().await;
    bed.attach(1, 1, "k").await.unwrap();
    bed.attach(2, 3, "k").await.unwrap();
    let (public, private) = (access_config(&bed, 1).await, access_config(&bed, 3).await);
    assert!(public["name"].as_str().unwrap().starts_with("netip-203-0-113-1-ephemeral-"), "{public}");
    assert!(private["name"].as_str().unwrap().starts_with("netip-203-0-113-2-private-"), "{private}");
}

pub async fn a_released_node_gets_an_address_of_its_own_back() {
    let bed = bed_with_a_private_node().await;
    for (n, to) in [(1, 1), (2, 3)] {
        bed.attach(n, to, "k").await.unwrap();
        let token = bed.attached_token(n).await;
        bed.detach(n, to, &token, "d").await.unwrap();
        assert_eq!(access_config(&bed, to).await, Value::Null);
        for key in ["r", "r", "another"] {
            bed.restarted().restore(&bed.node(to), Some(&token), &call(key)).await.unwrap();
        }
    }
    assert_eq!(access_config(&bed, 1).await["name"], "external-nat");
    assert!(access_config(&bed, 1).await["natIP"].is_string());
    assert_eq!(access_config(&bed, 3).await, Value::Null, "a private node stays private");
}

pub async fn a_crash_after_making_room_forgets_nothing() {
    for key in ["k", "another attempt"] {
        let bed = Bed::new(GCP).await;
        let free = bed.free_token(1).await;
        let writes = AtomicUsize::new(0);
        // The lease is lost between the two writes.
        let may_write = || writes.fetch_add(1, Ordering::SeqCst) == 0;
        let fenced = Call { deadline: within(20), key: "k", may_write: &may_write };
        let refused = bed.provider.attach(ip(1), &bed.node(1), &free, &fenced).await.unwrap_err();
        assert_eq!(refused.class, Class::Fenced, "{refused}");
        assert_eq!(access_config(&bed, 1).await, Value::Null, "room was made");
        bed.restarted().attach(ip(1), &bed.node(1), &free, &call(key)).await.unwrap();
        let name = access_config(&bed, 1).await["name"].to_string();
        assert!(name.contains("-ephemeral-"), "{name}");
    }
}

pub async fn a_private_node_that_was_released_stays_private() {
    let bed = bed_with_a_private_node().await;
    bed.attach(1, 3, "k1").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.detach(1, 3, &token, "k2").await.unwrap();
    bed.attach(1, 3, "k3").await.unwrap();
    let name = access_config(&bed, 3).await["name"].to_string();
    assert!(name.contains("-private-"), "our own detach is not taken for making room: {name}");
}

pub async fn an_address_that_follows_another_forgets_nothing() {
    let bed = Bed::new(GCP).await;
    bed.attach(1, 1, "k1").await.unwrap();
    let first = bed.attached_token(1).await;
    bed.detach(1, 1, &first, "k2").await.unwrap();
    // Before the node got its own address back.
    bed.attach(2, 1, "k3").await.unwrap();
    bed.provider.restore(&bed.node(1), Some(&first), &call("r1")).await.unwrap();
    bed.assert_on(2, 1).await;
    let second = bed.attached_token(2).await;
    assert!(second.contains("-ephemeral-"), "{second}");
    bed.detach(2, 1, &second, "k4").await.unwrap();
    bed.provider.restore(&bed.node(1), Some(&second), &call("r2")).await.unwrap();
    assert!(access_config(&bed, 1).await["natIP"].is_string());
}

pub async fn an_attach_that_fails_leaves_no_node_without_an_address() {
    let bed = Bed::new(GCP).await;
    let free = bed.free_token(1).await;
    bed.once("instances.addAccessConfig", error("invalid"));
    let refused = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
    assert_eq!(refused.class, Class::Permanent, "{refused}");
    let back = access_config(&bed, 1).await;
    assert_eq!(back["name"], "external-nat", "{back}");
    assert!(back["natIP"].is_string(), "{back}");
}

/// An attach that nobody answered for has made room; then the address went elsewhere.
pub async fn a_node_that_an_attach_left_bare_gets_its_own_address_back() {
    let bed = bed_with_a_private_node().await;
    let free = bed.free_token(1).await;
    for node in [1, 3] {
        bed.once("instances.addAccessConfig", error("backendError"));
        let failed = bed.provider.attach(ip(1), &bed.node(node), &free, &call("k")).await.unwrap_err();
        assert_eq!(failed.class, Class::Transient, "{failed}");
        assert_eq!(access_config(&bed, node).await, Value::Null, "it is bare");
        bed.provider.restore(&bed.node(node), None, &call("r")).await.unwrap();
    }
    assert_eq!(access_config(&bed, 1).await["name"], "external-nat");
    assert_eq!(access_config(&bed, 3).await, Value::Null, "it never had one");
    let since = bed.last_event();
    bed.provider.restore(&bed.node(1), None, &call("r2")).await.unwrap();
    bed.provider.restore(&bed.node(2), None, &call("r2")).await.unwrap();
    assert_eq!(bed.writes(since), 0, "who has one gets no other");
}

pub async fn the_tier_of_the_address_is_copied() {
    let mut world = small_world(GCP);
    world.addresses.clear();
    let standard = AddressSpec { tier: Some("STANDARD".to_owned()), ..AddressSpec::free(in_sim(GCP), ip(1)) };
    let bed = Bed::of(GCP, world.reserved(standard)).await;
    bed.attach(1, 1, "k").await.unwrap();
    assert_eq!(access_config(&bed, 1).await["networkTier"], "STANDARD");
}

pub async fn a_node_made_anew_under_its_name_is_another_one() {
    let bed = Bed::new(GCP).await;
    bed.attach(1, 1, "k").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.sim.recreate_instance(&bed.node(1)).unwrap();
    bed.sim.attach(ip(1), &bed.node(1)).unwrap();
    let stale = bed.detach(1, 1, &token, "d").await.unwrap_err();
    assert_eq!(stale.class, Class::Conflict, "{stale}");
    bed.sim.detach(ip(1)).unwrap();
    let since = bed.last_event();
    bed.provider.restore(&bed.node(1), Some(&token), &call("r")).await.unwrap();
    assert_eq!(bed.writes(since), 0, "the new one is nobody's to change");
}

pub async fn a_region_that_does_not_answer_is_unknown_and_the_others_are_not() {
    let mut world = small_world(GCP);
    let far =
        AddressSpec { region: Some("europe-west4".to_owned()), ..AddressSpec::free(in_sim(GCP), ip(70)) };
    world = world.reserved(far);
    let bed = Bed::of(GCP, world).await;
    bed.always("addresses.aggregatedList", Fault::PartialList { missing: vec!["europe-west4".to_owned()] });
    let mut ask = bed.ask();
    ask.addresses.insert(ip(70));
    let reading = bed.provider.read(&ask, within(20)).await;
    assert!(matches!(reading.addresses[&ip(70)], AddressState::Unknown(_)));
    assert!(matches!(reading.addresses[&ip(1)], AddressState::Free { .. }));
    let state = &reading.instances[&bed.node(1)];
    assert!(
        matches!(state, InstanceState::Unknown(_)),
        "its ephemeral address could be one of there: {state:?}"
    );
}

pub async fn a_global_address_is_not_for_nodes() {
    let mut world = small_world(GCP);
    world.addresses.clear();
    let global = AddressSpec { region: Some("global".to_owned()), ..AddressSpec::free(in_sim(GCP), ip(1)) };
    let bed = Bed::of(GCP, world.reserved(global)).await;
    assert!(matches!(bed.state(1).await, AddressState::HeldByOther { .. }));
    let refused = bed.provider.preflight(ip(1), &bed.node(1), within(20)).await.unwrap_err();
    assert_eq!(refused.class, Class::Permanent, "{refused}");
}

pub async fn organisation_policy_is_told_from_a_stale_condition() {
    let bed = Bed::new(GCP).await;
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = true);
    let denied = bed.attach(1, 3, "k").await.unwrap_err();
    assert_eq!(denied.class, Class::Denied, "{denied}");
    assert!(denied.message.contains("vmExternalIpAccess"), "{denied}");
}

pub async fn quota_for_the_own_address_is_no_throttling() {
    let bed = Bed::new(GCP).await;
    bed.attach(1, 1, "k").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.detach(1, 1, &token, "d").await.unwrap();
    bed.sim.set(|settings| settings.gcp.in_use_quota = Some(2));
    let refused = bed.provider.restore(&bed.node(1), Some(&token), &call("r")).await.unwrap_err();
    assert_eq!(refused.class, Class::Permanent, "{refused}");
    bed.sim.set(|settings| settings.gcp.in_use_quota = None);
    bed.provider.restore(&bed.node(1), Some(&token), &call("r")).await.unwrap();
    assert!(access_config(&bed, 1).await["natIP"].is_string());
}

pub async fn an_instance_that_is_busy_is_a_conflict() {
    let bed = Bed::new(GCP).await;
    bed.sim.set(|settings| settings.gcp.operation = sim::Pace::Seconds(3600.0));
    let free = bed.free_token(1).await;
    let may_write = || true;
    let short = Call {
        deadline: tokio::time::Instant::now() + std::time::Duration::from_secs(2),
        key: "k",
        may_write: &may_write,
    };
    let first = bed.provider.attach(ip(1), &bed.node(1), &free, &short).await.unwrap_err();
    assert_eq!(first.class, Class::Transient, "still under way: {first}");
    let second = bed.provider.attach(ip(2), &bed.node(1), &free, &call("k2")).await.unwrap_err();
    assert_eq!(second.class, Class::Conflict, "{second}");
}

pub async fn a_name_that_nothing_has_removes_nothing() {
    let bed = Bed::new(GCP).await;
    bed.attach(1, 1, "k").await.unwrap();
    let token = bed.attached_token(1).await;
    // Between our read and our write it is detached and attached again by somebody else.
    let change = Change::Attach { address: ip(1), instance: bed.node(1), name: Some("theirs".to_owned()) };
    bed.sim
        .fault(Rule::once(bed.on("instances.deleteAccessConfig"), Fault::Outside { change, after: false }));
    bed.detach(1, 1, &token, "d").await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn links_may_name_either_host() {
    let bed = Bed::new(GCP).await;
    bed.sim.set(|settings| "compute.googleapis.com".clone_into(&mut settings.gcp.link_host));
    bed.attach(1, 1, "k").await.unwrap();
    assert!(matches!(bed.state(1).await, AddressState::Attached { .. }));
}
