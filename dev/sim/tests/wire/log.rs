//! The log over all clouds, and who held what at any moment of it.

use crate::kit::{AWS_1, AWS_2, Bed, GCP_1, I_1, azure_node, ip, small_world};
use reqwest::Method;
use serde_json::json;
use sim::{Cloud, Kind, Purpose};
use std::time::Duration;

#[tokio::test]
async fn events_of_all_clouds_have_one_order() {
    let bed = Bed::small().await;
    bed.gcp_get("regions/us-central1/addresses").await;
    bed.associate("203.0.2.1", I_1, "false").await;
    bed.azure_attach("node-1", "203.0.3.1").await;
    let events = bed.sim.events(0);
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let clouds: Vec<Cloud> = events.iter().map(|event| event.cloud).collect();
    assert!(clouds.is_sorted(), "{clouds:?}");
    assert_eq!(bed.sim.events(2).first().map(|event| event.seq), Some(3));
}

#[tokio::test]
async fn mutating_calls_are_told_from_reads() {
    let bed = Bed::small().await;
    bed.associate("203.0.2.1", I_1, "false").await;
    bed.associate("203.0.2.1", I_1, "false").await;
    let events = bed.sim.events(0);
    let mutating: Vec<_> = events.iter().filter(|event| event.mutating).collect();
    assert!(mutating.iter().all(|event| event.action == "AssociateAddress"));
    let outcomes: Vec<_> = mutating.iter().map(|event| (event.status, event.code.as_deref())).collect();
    assert_eq!(outcomes, [(Some(200), None), (Some(400), Some("Resource.AlreadyAssociated"))]);
    assert_eq!(mutating.iter().map(|event| event.changes.len()).collect::<Vec<_>>(), [1, 0]);
}

#[tokio::test]
async fn the_caller_is_known_by_token_key_or_endpoint() {
    let bed = Bed::small().await;
    bed.send(bed.gcp(Method::GET, "regions/us-central1/addresses").bearer_auth("leader-1")).await;
    bed.aws("DescribeAddresses", &[]).await;
    let named = format!("{}/as/leader-2/compute/v1/projects/dev-project", bed.sim.gcp_url());
    bed.send(bed.request(Method::GET, &named).header("user-agent", "controller/1.0")).await;
    bed.gcp_get("regions/us-central1/addresses").await;
    let events = bed.sim.events(0);
    let callers: Vec<&str> = events.iter().map(|event| event.caller.as_str()).collect();
    assert_eq!(callers, ["leader-1", "AKIDEXAMPLE", "leader-2", "anonymous"]);
    assert_eq!(events[2].user_agent, "controller/1.0");
}

#[tokio::test]
async fn a_named_callers_links_lead_back_under_its_name() {
    let bed = Bed::small().await;
    let nic = bed.nic_with("node-1", Some("203.0.3.1")).await;
    let path = nic["id"].as_str().unwrap();
    let url = format!("{}/as/leader-1{path}?api-version=2024-05-01", bed.sim.azure_url());
    let answer = bed.send(bed.request(Method::PUT, &url).json(&nic)).await;
    bed.azure_poll(&answer).await;
    let polled = bed.sim.events(0).into_iter().find(|event| event.action == "operations.get").unwrap();
    assert_eq!(polled.caller, "leader-1");
}

#[tokio::test]
async fn the_end_of_an_operation_is_an_event_with_its_caller_and_its_change() {
    let bed = Bed::small().await;
    bed.gcp_attach(GCP_1, "203.0.1.1").await;
    let events = bed.sim.events(0);
    let ended: Vec<_> = events.iter().filter(|event| event.kind == Kind::Operation).collect();
    let actions: Vec<&str> = ended.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["instances.deleteAccessConfig", "instances.addAccessConfig"]);
    let change = &ended[1].changes[0];
    assert_eq!((change.ip, change.before.is_none()), (ip("203.0.1.1"), true));
    assert_eq!(change.after.as_ref().unwrap().holder, GCP_1);
    let accepted = events.iter().find(|event| event.action == "instances.addAccessConfig").unwrap();
    assert_eq!((accepted.kind, accepted.changes.len()), (Kind::Call, 0), "nothing changed hands yet");
}

#[tokio::test]
async fn a_snapshot_says_who_held_what_at_any_event() {
    let mut world = small_world();
    world.addresses[2].held_by = Some(AWS_1.into()); // 203.0.2.1
    let bed = Bed::start(world).await;
    let moved = bed.sim.attach(ip("203.0.2.1"), AWS_2).unwrap();
    let detached = bed.sim.detach(ip("203.0.2.1")).unwrap();
    let added = bed.sim.attach(ip("203.0.3.1"), &azure_node("node-1")).unwrap();
    let held = |seq: u64| {
        let snapshot = bed.sim.snapshot_at(seq);
        let holds = snapshot.holds.values().map(|hold| (hold.ip.to_string(), hold.holder.clone()));
        holds.collect::<Vec<_>>()
    };
    assert_eq!(held(0), [("203.0.2.1".to_owned(), AWS_1.to_owned())]);
    assert_eq!(held(moved), [("203.0.2.1".to_owned(), AWS_2.to_owned())]);
    assert_eq!(held(detached), []);
    assert_eq!(held(added), [("203.0.3.1".to_owned(), azure_node("node-1"))]);
    assert_eq!(bed.sim.snapshot().holds, bed.sim.snapshot_at(added).holds);
}

#[tokio::test]
async fn a_recreated_instance_is_told_from_the_old_one() {
    let bed = Bed::small().await;
    let first = bed.sim.attach(ip("203.0.1.1"), GCP_1).unwrap();
    bed.sim.recreate_instance(GCP_1).unwrap();
    let second = bed.sim.attach(ip("203.0.1.1"), GCP_1).unwrap();
    let uid = |seq| bed.sim.snapshot_at(seq).holds[&ip("203.0.1.1")].instance_uid;
    assert!(uid(first).is_some());
    assert_ne!(uid(first), uid(second));
}

#[tokio::test]
async fn a_test_can_wait_for_the_next_event() {
    let mut world = small_world();
    world.standing_clock = None;
    world.settings.gcp.operation = sim::Pace::Seconds(0.1);
    let bed = Bed::start(world).await;
    bed.send(bed.gcp_delete(GCP_1, "external-nat")).await;
    let asked = bed.sim.events(0)[0].seq;
    let news = tokio::time::timeout(Duration::from_secs(5), bed.sim.next_events(asked)).await.unwrap();
    assert_eq!(news[0].kind, Kind::Operation, "nobody asked, and it was done all the same");
}

#[tokio::test]
async fn recorded_exchanges_are_what_went_over_the_wire() {
    let bed = Bed::small().await;
    bed.gcp_get("zones/us-central1-a/instances/node-1").await;
    bed.sim.record();
    let answer = bed.send(bed.gcp_add(GCP_1, &json!({ "natIP": "203.0.1.1" }))).await;
    let exchanges = bed.sim.exchanges();
    assert_eq!(exchanges.len(), 1, "recording began after the first call");
    assert_eq!((exchanges[0].status, &exchanges[0].reply), (answer.status, &answer.text));
    assert_eq!(exchanges[0].request, r#"{"natIP":"203.0.1.1"}"#);
}

#[tokio::test]
async fn a_call_says_what_it_was_meant_to_do_also_when_it_is_refused() {
    let bed = Bed::small().await;
    bed.gcp_attach(GCP_1, "203.0.1.1").await;
    bed.gcp_done(bed.gcp_delete(GCP_1, "ours")).await;
    bed.gcp_done(bed.gcp_delete(GCP_1, "nothing has this name")).await;
    bed.gcp_done(bed.gcp_add(GCP_1, &json!({}))).await;
    bed.associate("203.0.2.1", I_1, "false").await;
    bed.associate("203.0.2.1", "i-00000000000000002", "false").await;
    let association = bed.aws_address("203.0.2.1").await.one("associationId");
    for _ in 0..2 {
        bed.aws("DisassociateAddress", &[("AssociationId", &association)]).await;
    }
    bed.azure_attach("node-1", "203.0.3.1").await;
    let bare = bed.nic_with("node-1", None).await;
    bed.send(bed.put_nic("node-1", &bare).header("if-match", "W/\"stale\"")).await;
    let events = bed.sim.events(0);
    let calls = events.iter().filter(|event| event.kind == Kind::Call && event.mutating);
    let told: Vec<_> = calls
        .map(|event| {
            let about = event.about.clone().expect("what it is about");
            (about.purpose, about.address.map(|ip| ip.to_string()), about.instance, event.status)
        })
        .collect();
    let azure = azure_node("node-1");
    let of = |purpose, address: &str, instance: &str, status| {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        (purpose, text(address), text(instance), Some(status))
    };
    assert_eq!(
        told,
        [
            of(Purpose::TakeOwn, "", GCP_1, 200),
            of(Purpose::Attach, "203.0.1.1", GCP_1, 200),
            of(Purpose::Detach, "203.0.1.1", GCP_1, 200),
            of(Purpose::Detach, "", GCP_1, 200),
            of(Purpose::GiveOwn, "", GCP_1, 200),
            of(Purpose::Attach, "203.0.2.1", AWS_1, 200),
            of(Purpose::Attach, "203.0.2.1", AWS_2, 400),
            of(Purpose::Detach, "203.0.2.1", AWS_1, 200),
            of(Purpose::Detach, "", "", 400),
            of(Purpose::Attach, "203.0.3.1", &azure, 200),
            of(Purpose::Detach, "203.0.3.1", &azure, 412),
        ]
    );
    let own: Vec<bool> = events.iter().flat_map(|event| &event.own).map(|own| own.after.is_some()).collect();
    assert_eq!(own[..2], [false, true], "GCP's node lost its own address and got another");
}
