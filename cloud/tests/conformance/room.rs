//! GCP: nodes keep their own addresses where ours may not take their place.

use crate::bed::{Bed, call, ip, node, role, small_world, within};
use crate::gcp::access_config;
use crate::permissions::documented;
use cloud::{Call, Class, Cloud, Error};
use serde_json::Value;
use sim::{Fault, On, Rule};

const GCP: Cloud = Cloud::Gcp;
const ADD: &str = "compute.instances.addAccessConfig";
const USE: &str = "compute.addresses.use";
const EXTERNAL: &str = "compute.subnetworks.useExternalIp";
const ADD_CALL: &str = "instances.addAccessConfig";
const NOTHING: &str = "nothing was sent";

/// The addresses that the three nodes show.
async fn shown(bed: &Bed) -> [Value; 3] {
    [
        access_config(bed, 1).await["natIP"].clone(),
        access_config(bed, 2).await["natIP"].clone(),
        access_config(bed, 3).await["natIP"].clone(),
    ]
}

fn bare(shown: &[Value; 3]) -> usize {
    shown.iter().filter(|address| address.is_null()).count()
}

/// The planner's way: one node after the other.
async fn on_each_node(bed: &Bed, round: &str) -> Vec<Error> {
    let mut refused = Vec::new();
    for n in 1..=3 {
        refused.extend(bed.attach(1, n, &format!("{round} {n}")).await.err());
    }
    refused
}

fn without(permission: &str) -> Vec<String> {
    documented(GCP).into_iter().filter(|one| one != permission).collect()
}

pub async fn a_missing_permission_takes_no_nodes_address() {
    for permission in [ADD, USE, EXTERNAL] {
        let mut world = small_world(GCP);
        world.roles = role(GCP, &without(permission));
        let bed = Bed::of(GCP, world).await;
        let before = shown(&bed).await;
        for round in ["first", "second"] {
            for error in on_each_node(&bed, round).await {
                assert_eq!(error.class, Class::Denied, "{error}");
                assert!(error.message.contains(permission) && error.message.contains(NOTHING), "{error}");
            }
        }
        assert_eq!(shown(&bed).await, before, "{permission}");
        assert_eq!(bed.writes(0), 0, "{permission}");
        bed.sim.set_roles(role(GCP, &documented(GCP)));
        bed.attach(1, 2, "granted").await.unwrap();
        bed.assert_on(1, 2).await;
    }
}

pub async fn a_policy_leaves_one_node_bare_at_most_and_says_which() {
    let bed = Bed::new(GCP).await;
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = true);
    let before = shown(&bed).await;
    let said = on_each_node(&bed, "first").await;
    assert!(
        said.iter().all(|error| error.class == Class::Denied && error.message.contains("vmExternalIpAccess"))
    );
    let lost = format!("{} has no address of its own now", node(GCP, 1));
    assert!(said[0].message.contains(&lost), "{}", said[0]);
    assert!(said[1].message.contains(NOTHING) && said[2].message.contains(NOTHING), "{said:?}");
    let after = shown(&bed).await;
    assert_eq!((bare(&after), &after[1..]), (1, &before[1..]));
    for round in ["second", "third"] {
        on_each_node(&bed, round).await;
        assert_eq!(shown(&bed).await, after, "nothing else was taken");
    }
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = false);
    bed.attach(1, 1, "the bare one needs no room").await.unwrap();
    bed.attach(2, 2, "and then it works").await.unwrap();
    let token = bed.attached_token(1).await;
    assert!(token.contains("-ephemeral-"), "it is not forgotten that it had one: {token}");
}

pub async fn a_policy_leaves_one_node_bare_however_many_are_tried_at_once() {
    let bed = Bed::new(GCP).await;
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = true);
    let token = bed.free_token(1).await;
    let nodes = [bed.node(1), bed.node(2), bed.node(3)];
    let attach = |n: u8| {
        let call = Call { deadline: within(20), ..call("k") };
        let (provider, node, token) = (&bed.provider, &nodes[usize::from(n) - 1], &token);
        async move { provider.attach(ip(n), node, token, &call).await }
    };
    let (first, second, third) = tokio::join!(attach(1), attach(2), attach(3));
    assert!(first.is_err() && second.is_err() && third.is_err());
    assert_eq!(bare(&shown(&bed).await), 1);
}

pub async fn a_refusal_that_was_not_foreseen_is_the_last_for_a_while() {
    for (withheld, bare_after) in [(USE, 0), (EXTERNAL, 1)] {
        let bed = Bed::new(GCP).await;
        bed.always(ADD_CALL, Fault::Withhold { permission: withheld.to_owned() });
        let before = shown(&bed).await;
        let said = on_each_node(&bed, "first").await;
        assert!(said.iter().all(|error| error.class == Class::Denied && error.message.contains(withheld)));
        let after = shown(&bed).await;
        assert_eq!((bare(&after), &after[1..]), (bare_after, &before[1..]), "{withheld}");
        assert_ne!(after[0], before[0], "it was tried on one");
        let since = bed.last_event();
        let again = bed.attach(1, 2, "again").await.unwrap_err();
        assert!(again.message.contains(NOTHING), "{again}");
        assert_eq!(bed.writes(since), 0);
        // A new process knows nothing, asks, and tries one.
        let token = bed.free_token(1).await;
        let new = bed.restarted();
        new.attach(ip(1), &bed.node(2), &token, &call("restarted")).await.unwrap_err();
        let asked =
            bed.calls(since).iter().filter(|call| call.action == "instances.testIamPermissions").count();
        assert_eq!(asked, 1, "{withheld}");
        let last = new.attach(ip(1), &bed.node(3), &token, &call("restarted")).await.unwrap_err();
        assert!(last.message.contains(NOTHING), "{last}");
        assert_eq!(shown(&bed).await[2], before[2]);
    }
}

/// A deny policy on one instance, which nothing that can be asked for shows.
pub async fn a_permission_that_is_denied_on_one_node_costs_the_others_nothing() {
    let bed = Bed::new(GCP).await;
    let on = On { target: Some(bed.node(1).rsplit('/').next().unwrap().to_owned()), ..bed.on(ADD_CALL) };
    bed.sim.fault(Rule::always(on, Fault::Withhold { permission: ADD.to_owned() }));
    let refused = bed.attach(1, 1, "denied").await.unwrap_err();
    assert!(refused.class == Class::Denied && refused.message.contains(ADD), "{refused}");
    assert!(!refused.message.contains(NOTHING), "it was tried: {refused}");
    bed.attach(1, 2, "the next").await.unwrap();
    bed.attach(2, 3, "and the next").await.unwrap();
    bed.assert_on(1, 2).await;
    bed.assert_on(2, 3).await;
}

pub async fn a_permission_that_is_denied_on_two_nodes_costs_no_third_its_address() {
    let bed = Bed::new(GCP).await;
    bed.always(ADD_CALL, Fault::Withhold { permission: ADD.to_owned() });
    let before = shown(&bed).await;
    let said = on_each_node(&bed, "first").await;
    assert!(said.iter().all(|error| error.class == Class::Denied && error.message.contains(ADD)), "{said:?}");
    let sent: Vec<bool> = said.iter().map(|error| !error.message.contains(NOTHING)).collect();
    assert_eq!(sent, [true, true, false], "{said:?}");
    assert_eq!(shown(&bed).await[2], before[2]);
}

pub async fn rights_that_are_withdrawn_cost_one_node_its_address_at_most() {
    let bed = Bed::new(GCP).await;
    bed.attach(1, 1, "granted").await.unwrap();
    bed.sim.set_roles(role(GCP, &without(USE)));
    let before = shown(&bed).await;
    let said = [bed.attach(2, 2, "k").await.unwrap_err(), bed.attach(2, 3, "k").await.unwrap_err()];
    assert!(said.iter().all(|error| error.class == Class::Denied && error.message.contains(USE)), "{said:?}");
    assert!(!said[0].message.contains(NOTHING) && said[1].message.contains(NOTHING), "{said:?}");
    let after = shown(&bed).await;
    assert_eq!((bare(&after), &after[2]), (0, &before[2]), "the first got another of its own back");
}

pub async fn a_node_without_an_address_needs_no_room_and_is_always_tried() {
    let mut world = small_world(GCP);
    world.instances[2].ephemeral = false;
    let bed = Bed::of(GCP, world).await;
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = true);
    bed.attach(1, 1, "k").await.unwrap_err();
    for key in ["k2", "k3"] {
        let since = bed.last_event();
        let refused = bed.attach(1, 3, key).await.unwrap_err();
        assert_eq!(refused.class, Class::Denied, "{refused}");
        assert_eq!(bed.writes(since), 1, "{key}");
    }
}

pub async fn an_address_that_is_not_there_any_more_costs_no_node_its_own() {
    let bed = Bed::new(GCP).await;
    let token = bed.free_token(1).await;
    bed.sim.change(&sim::Change::ReleaseAddress { address: ip(1) }).unwrap();
    let gone = bed.provider.attach(ip(1), &bed.node(1), &token, &call("k")).await.unwrap_err();
    assert_eq!(gone.class, Class::Conflict, "{gone}");
    assert_eq!(bed.writes(0), 0);
}

/// An attach whose reply got lost has landed on another node meanwhile.
pub async fn an_address_that_is_elsewhere_by_now_costs_no_node_its_own() {
    let bed = Bed::new(GCP).await;
    let (token, before) = (bed.free_token(1).await, shown(&bed).await);
    bed.attach_by_hand(1, 2).await;
    let refused = bed.provider.attach(ip(1), &bed.node(1), &token, &call("k")).await.unwrap_err();
    assert_eq!(refused.class, Class::Conflict, "{refused}");
    assert_eq!(bed.writes(0), 0, "{refused}");
    assert_eq!(shown(&bed).await[0], before[0]);
}

pub async fn a_reply_that_is_lost_while_room_is_made_leaves_no_node_bare() {
    for fault in [Fault::LostReply, Fault::Reset] {
        let bed = Bed::new(GCP).await;
        bed.once("instances.deleteAccessConfig", fault.clone());
        bed.attach(1, 1, "k").await.unwrap();
        let struck = bed.calls(0).iter().filter(|event| event.faults == [fault.name()]).count();
        assert_eq!(struck, 1, "the fault happened");
        bed.assert_on(1, 1).await;
        assert!(bed.attached_token(1).await.contains("-ephemeral-"));
    }
}
