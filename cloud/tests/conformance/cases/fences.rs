//! Writers that are late, double, deposed or reborn.

use crate::bed::{Bed, call, ip, within};
use cloud::{AddressState, Call, Class, Cloud};
use sim::{Change, Fault};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

pub async fn a_stale_token_is_refused(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach(1, 1, "k1").await.unwrap();
    let stale = bed.attached_token(1).await;
    bed.detach(1, 1, &stale, "k2").await.unwrap();
    bed.attach(1, 1, "k3").await.unwrap();
    let fresh = bed.attached_token(1).await;
    assert_ne!(stale, fresh, "every attachment has a token of its own");
    let error = bed.detach(1, 1, &stale, "k2").await.unwrap_err();
    assert_eq!(error.class, Class::Conflict, "{error}");
    bed.assert_on(1, 1).await;
    bed.detach(1, 1, &fresh, "k4").await.unwrap();
    assert_eq!(bed.holder(1).await, None);
}

pub async fn a_stale_detach_does_not_hit_another_node(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach(1, 1, "k1").await.unwrap();
    let stale = bed.attached_token(1).await;
    bed.attach_by_hand(1, 2).await;
    // Gone from there, or looked at again: both are well; that it stays where it is is not up for debate.
    let _ = bed.detach(1, 1, &stale, "k2").await;
    bed.assert_on(1, 2).await;
}

pub async fn two_writers_of_one_address(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let token = bed.free_token(1).await;
    let other = bed.restarted();
    let (node_1, node_2) = (bed.node(1), bed.node(2));
    let (call_1, call_2) = (call("one"), call("two"));
    let (one, two) = tokio::join!(
        bed.provider.attach(ip(1), &node_1, &token, &call_1),
        other.attach(ip(1), &node_2, &token, &call_2),
    );
    let won = [one.is_ok(), two.is_ok()];
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{one:?} {two:?}");
    bed.assert_on(1, if won[0] { 1 } else { 2 }).await;
    let loser = one.err().or(two.err()).unwrap();
    assert_eq!(loser.class, Class::Conflict, "{loser}");
}

pub async fn two_writers_of_one_node(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let (token_1, token_2) = (bed.free_token(1).await, bed.free_token(2).await);
    let other = bed.restarted();
    let node = bed.node(1);
    let (call_1, call_2) = (call("one"), call("two"));
    let (one, two) = tokio::join!(
        bed.provider.attach(ip(1), &node, &token_1, &call_1),
        other.attach(ip(2), &node, &token_2, &call_2),
    );
    assert_ne!(one.is_ok(), two.is_ok(), "{one:?} {two:?}");
    let held = [bed.holder(1).await, bed.holder(2).await];
    assert_eq!(held.iter().flatten().count(), 1, "{held:?}");
    let loser = one.err().or(two.err()).unwrap();
    assert_eq!(loser.class, Class::Conflict, "{loser}");
}

pub async fn who_lost_the_lease_sends_nothing(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach(2, 2, "k").await.unwrap();
    let (free, held) = (bed.free_token(1).await, bed.attached_token(2).await);
    let since = bed.last_event();
    let no = || false;
    let deposed = Call { deadline: within(20), key: "k", may_write: &no };
    let attach = bed.provider.attach(ip(1), &bed.node(1), &free, &deposed).await;
    let detach = bed.provider.detach(ip(2), &bed.node(2), &held, &deposed).await;
    for refused in [attach.unwrap_err(), detach.unwrap_err()] {
        assert_eq!(refused.class, Class::Fenced, "{refused}");
    }
    assert_eq!(bed.writes(since), 0);
}

pub async fn leadership_is_asked_right_before_every_write(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let free = bed.free_token(1).await;
    let since = bed.last_event();
    let asked = AtomicUsize::new(0);
    let may_write = || asked.fetch_add(1, Ordering::SeqCst) < 100;
    let counted = Call { deadline: within(20), key: "k", may_write: &may_write };
    bed.provider.attach(ip(1), &bed.node(1), &free, &counted).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), bed.writes(since), "once for each");
}

/// Operations end although nobody asks for them.
fn ends_by_itself(bed: &Bed) {
    bed.sim.set(|settings| {
        settings.gcp.operation = sim::Pace::Seconds(0.2);
        settings.azure.operation = sim::Pace::Seconds(0.2);
    });
}

pub async fn a_lost_reply_and_a_new_process_with_the_same_key(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    ends_by_itself(&bed);
    let free = bed.free_token(1).await;
    bed.once(bed.words().attach, Fault::LostReply);
    let lost = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
    assert_eq!(lost.class, Class::Transient, "nobody knows: {lost}");
    bed.sim.advance(Duration::from_secs(1));
    let reborn = bed.restarted();
    let mut done = false;
    for _ in 0..50 {
        match reborn.attach(ip(1), &bed.node(1), &free, &call("k")).await {
            Ok(()) => done = true,
            Err(error) => assert!(matches!(error.class, Class::Conflict | Class::Transient), "{error}"),
        }
        if done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(done, "the same step is done or was done");
    bed.assert_on(1, 1).await;
    let taken = bed.sim.events(0).iter().flat_map(|event| event.changes.clone()).count();
    assert_eq!(taken, 1, "it changed hands once");
}

pub async fn a_reset_before_the_effect_is_tried_again(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let free = bed.free_token(1).await;
    bed.once(bed.words().attach, Fault::Reset);
    let lost = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
    assert_eq!(lost.class, Class::Transient, "{lost}");
    assert_eq!(bed.holder(1).await, None);
    bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn a_detach_whose_reply_was_lost_is_done(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    ends_by_itself(&bed);
    bed.attach(1, 1, "k").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.once(bed.words().detach, Fault::LostReply);
    let lost = bed.detach(1, 1, &token, "d").await.unwrap_err();
    assert_eq!(lost.class, Class::Transient, "{lost}");
    let mut done = false;
    for _ in 0..20 {
        done = bed.detach(1, 1, &token, "d").await.is_ok();
        if done {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(done);
    assert_eq!(bed.holder(1).await, None);
}

pub async fn a_connection_that_is_closed_without_a_reply_says_nothing(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    ends_by_itself(&bed);
    let free = bed.free_token(1).await;
    bed.once(bed.words().attach, Fault::HangUp);
    let since = bed.last_event();
    let closed = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
    let hung_up = bed.calls(since).iter().filter(|event| event.faults == ["hang_up"]).count();
    assert_eq!(hung_up, 1, "the fault happened");
    assert_eq!(closed.class, Class::Transient, "{closed}");
    assert!(!closed.message.contains("credentials") && !closed.message.contains("not sent"), "{closed}");
    let mut attached = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await;
    for _ in 0..20 {
        if attached.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        attached = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await;
    }
    attached.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn reads_that_lag_steal_nothing(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let free = bed.free_token(1).await;
    bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
    bed.sim.advance(Duration::from_mins(1));
    bed.sim.fault(sim::Rule::always(
        sim::On { mutating: Some(false), ..sim::On::default() },
        Fault::Lag { seconds: 120.0, jitter: false },
    ));
    assert!(!matches!(bed.state(1).await, AddressState::Attached { .. }), "the world as it was");
    // Decided on an old view: somewhere else, and the same again.
    let elsewhere = bed.provider.attach(ip(1), &bed.node(2), &free, &call("k2")).await.unwrap_err();
    assert_eq!(elsewhere.class, Class::Conflict, "{elsewhere}");
    let _ = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await;
    bed.assert_on(1, 1).await;
    bed.sim.clear_faults();
    assert!(matches!(bed.state(1).await, AddressState::Attached { .. }));
}

pub async fn a_hung_call_ends_with_its_deadline(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let free = bed.free_token(1).await;
    bed.once(bed.words().attach, Fault::Delay { seconds: 600.0 });
    let start = Instant::now();
    let may_write = || true;
    let short = Call { deadline: start + Duration::from_secs(2), key: "k", may_write: &may_write };
    let late = bed.provider.attach(ip(1), &bed.node(1), &free, &short).await.unwrap_err();
    assert_eq!(late.class, Class::Transient, "{late}");
    assert!(start.elapsed() < Duration::from_mins(5), "not the whole of it");
    bed.always(bed.words().list, Fault::Delay { seconds: 600.0 });
    let reading = bed.provider.read(&bed.ask(), Instant::now() + Duration::from_secs(1)).await;
    assert!(reading.addresses.values().all(|state| matches!(state, AddressState::Unknown(_))));
}

pub async fn somebody_writes_between_our_read_and_our_write(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let free = bed.free_token(1).await;
    let change = Change::Attach { address: ip(1), instance: bed.node(2), name: None };
    bed.once(bed.words().attach, Fault::Outside { change, after: false });
    let error = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
    assert_eq!(error.class, Class::Conflict, "{error}");
    bed.assert_on(1, 2).await;
}
