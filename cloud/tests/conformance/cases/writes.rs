//! Attach and detach do what they say, once, and to nobody else's disadvantage.

use crate::bed::{Bed, call, in_sim, ip, within};
use cloud::{AddressState, Class, Cloud};
use sim::{AddressSpec, Change, Fault};

pub async fn attach_attaches(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.provider.preflight(ip(1), &bed.node(1), within(20)).await.unwrap();
    bed.attach(1, 1, "k").await.unwrap();
    bed.assert_on(1, 1).await;
    let state = bed.state(1).await;
    assert!(
        matches!(&state, AddressState::Attached { provider_id, .. } if *provider_id == bed.node(1)),
        "{state:?}"
    );
    assert_eq!(bed.holder(2).await, None);
}

pub async fn what_is_attached_already_is_attached(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let token = bed.free_token(1).await;
    bed.provider.attach(ip(1), &bed.node(1), &token, &call("k")).await.unwrap();
    let since = bed.last_event();
    for key in ["k", "next"] {
        bed.provider.attach(ip(1), &bed.node(1), &token, &call(key)).await.unwrap();
    }
    assert_eq!(bed.writes(since), 0, "already so: nothing to write");
    bed.assert_on(1, 1).await;
}

pub async fn what_somebody_has_by_now_is_not_taken(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let token = bed.free_token(1).await;
    bed.attach_by_hand(1, 2).await;
    let error = bed.provider.attach(ip(1), &bed.node(1), &token, &call("k")).await.unwrap_err();
    assert_eq!(error.class, Class::Conflict, "{error}");
    bed.assert_on(1, 2).await;
}

pub async fn what_something_else_has_by_now_is_not_taken(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let token = bed.free_token(1).await;
    let resource = bed.words().other_holder.to_owned();
    bed.sim.change(&Change::Hold { address: ip(1), resource: resource.clone() }).unwrap();
    let error = bed.provider.attach(ip(1), &bed.node(1), &token, &call("k")).await.unwrap_err();
    assert!(matches!(error.class, Class::Conflict | Class::Denied), "{error}");
    assert_eq!(bed.holder(1).await, Some(resource));
}

pub async fn detach_frees_and_again_is_success(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach(1, 1, "k").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.detach(1, 1, &token, "d").await.unwrap();
    assert_eq!(bed.holder(1).await, None);
    assert!(matches!(bed.state(1).await, AddressState::Free { .. }));
    for key in ["d", "next"] {
        bed.detach(1, 1, &token, key).await.unwrap();
    }
}

pub async fn what_somebody_else_attached_is_adopted_and_detached(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach_by_hand(1, 1).await;
    let token = bed.attached_token(1).await;
    bed.detach(1, 1, &token, "d").await.unwrap();
    assert_eq!(bed.holder(1).await, None);
}

pub async fn a_move_is_a_detach_and_an_attach(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach(1, 1, "k1").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.detach(1, 1, &token, "k2").await.unwrap();
    bed.attach(1, 2, "k3").await.unwrap();
    bed.provider.restore(&bed.node(1), Some(&token), &call("k4")).await.unwrap();
    bed.assert_on(1, 2).await;
    // Every address was on one instance at a time.
    for event in bed.sim.events(0) {
        assert!(bed.sim.snapshot_at(event.seq).holds.len() <= 1);
    }
}

pub async fn another_region_is_refused_before_anything_is_sent(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let mut spec = AddressSpec::free(in_sim(cloud), ip(60));
    match cloud {
        Cloud::Gcp => spec.region = Some("europe-west4".to_owned()),
        Cloud::Azure => spec.region = Some("northeurope".to_owned()),
        Cloud::Aws => spec.border_group = Some("eu-west-1-xyz-1".to_owned()),
    }
    bed.sim.change(&Change::AddAddress { address: spec }).unwrap();
    let error = bed.provider.preflight(ip(60), &bed.node(1), within(20)).await.unwrap_err();
    assert_eq!(error.class, Class::Permanent, "{error}");
    let unknown = bed.provider.preflight(ip(99), &bed.node(1), within(20)).await.unwrap_err();
    assert_eq!(unknown.class, Class::Permanent, "{unknown}");
    assert_eq!(bed.writes(0), 0);
}

pub async fn ipv6_is_unsupported_with_a_reason(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let v6 = "2001:db8::1".parse().unwrap();
    for error in [
        bed.provider.preflight(v6, &bed.node(1), within(20)).await.unwrap_err(),
        bed.provider.attach(v6, &bed.node(1), "us-central1/PREMIUM", &call("k")).await.unwrap_err(),
    ] {
        assert!(matches!(error.class, Class::Unsupported), "{error}");
        assert!(error.message.len() > 20, "{error}");
    }
    assert_eq!(bed.writes(0), 0);
}

pub async fn an_instance_that_is_gone_is_a_conflict(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let token = bed.free_token(1).await;
    bed.attach(2, 2, "k").await.unwrap();
    let held = bed.attached_token(2).await;
    bed.sim.terminate_instance(&bed.node(1)).unwrap();
    bed.sim.terminate_instance(&bed.node(2)).unwrap();
    let error = bed.provider.attach(ip(1), &bed.node(1), &token, &call("k1")).await.unwrap_err();
    assert_eq!(error.class, Class::Conflict, "{error}");
    crate::bed::eventually("the address is free", || bed.sim.snapshot().holds.is_empty()).await;
    bed.detach(2, 2, &held, "d").await.unwrap();
    bed.provider.restore(&bed.node(2), Some(&held), &call("r")).await.unwrap();
}

pub async fn a_stopped_instance_keeps_its_address_until_it_is_detached(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach(1, 1, "k").await.unwrap();
    bed.sim.stop_instance(&bed.node(1)).unwrap();
    let token = bed.attached_token(1).await;
    bed.detach(1, 1, &token, "d").await.unwrap();
    assert_eq!(bed.holder(1).await, None);
}

pub async fn an_accepted_write_that_fails_has_failed(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let code = match cloud {
        Cloud::Gcp => "IP_IN_USE_BY_ANOTHER_RESOURCE",
        _ => "PublicIPAddressInUse",
    };
    let message = "somebody was faster".to_owned();
    bed.once(bed.words().attach, Fault::LateFailure { code: code.to_owned(), message });
    let error = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(error.class, Class::Conflict, "{error}");
    assert!(error.message.contains("somebody was faster"), "{error}");
    assert!(error.request_id.is_some(), "{error:?}");
    assert_eq!(bed.holder(1).await, None);
    bed.attach(1, 1, "next").await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn found_out_late_that_it_is_in_use(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.sim.set(|settings| {
        settings.gcp.in_use_found = sim::Found::Late;
        settings.azure.in_use_found = sim::Found::Late;
    });
    what_somebody_has_by_now(&bed).await;
}

async fn what_somebody_has_by_now(bed: &Bed) {
    let token = bed.free_token(1).await;
    bed.attach_by_hand(1, 2).await;
    let error = bed.provider.attach(ip(1), &bed.node(1), &token, &call("k")).await.unwrap_err();
    assert_eq!(error.class, Class::Conflict, "{error}");
    bed.assert_on(1, 2).await;
}
