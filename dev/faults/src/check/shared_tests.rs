//! What a history knows of specs, pods and neighbours: each invariant that asks for it reports a planted violation,
//! and excuses exactly what is to be excused.

use super::check;
use super::tests::{
    A, B, US, attach, call, detach, history, ip, mark, moved, node, planted, read, refused, scope, status,
    violated,
};
use crate::history::{
    Allocation, Call, History, Marks, Outcome, Purpose, Scope, Spec, Status, What, Workload,
};
use crate::past::Others;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

fn web() -> Workload {
    Workload { kind: "Deployment".to_owned(), namespace: "prod".to_owned(), name: "web".to_owned() }
}

fn spec(generation: i64, addresses: &[IpAddr]) -> Spec {
    Spec {
        allocation: "web".to_owned(),
        generation: Some(generation),
        addresses: addresses.iter().copied().collect(),
        retain: false,
        drain: None,
        workload: Some(web()),
    }
}

fn lists(generation: i64, addresses: &[IpAddr]) -> What {
    What::Spec(spec(generation, addresses))
}

fn going() -> What {
    What::Going { allocation: "web".to_owned() }
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

/// A read that shows one address.
fn read_of(address: IpAddr) -> What {
    call(Purpose::Read { lags: false }, Some(address), None)
}

#[test]
fn i2_an_attach_to_an_instance_that_was_read_to_have_another() {
    let has = || moved(ip(2), None, Some(A), None);
    let attempt = || refused(attach(ip(1), A));
    planted("I2", scope(), vec![read(), has(), attempt()], vec![has(), read(), attempt()]);
    let clean = vec![has(), read_of(ip(1)), attempt()];
    planted("I2", scope(), clean, vec![has(), read_of(ip(2)), attempt()]);
    let left = vec![has(), read(), moved(ip(2), Some(A), None, None), attempt()];
    assert_eq!(check(&history(scope(), left)), [], "it has left");
}

#[test]
fn i3_an_address_that_nobody_lists_yet() {
    let attempt = || refused(attach(ip(2), A));
    let both = [ip(1), ip(2)];
    planted("I3", scope(), vec![lists(1, &both), attempt()], vec![lists(1, &[ip(1)]), attempt()]);
    let removed = vec![lists(1, &both), lists(2, &[ip(1)]), refused(detach(ip(2), A))];
    assert_eq!(check(&history(scope(), removed)), [], "what was listed is ours to take off");
}

#[test]
fn i4_a_mark_that_the_last_read_justifies() {
    let read = read_of(ip(1));
    let lost = || moved(ip(1), Some(A), None, None);
    let begin = || vec![node("a", A), moved(ip(1), None, Some(A), None)];
    let clean = [begin(), vec![read.clone(), lost(), mark("a", Some(ip(1))), mark("a", None)]].concat();
    let bad = [begin(), vec![lost(), read, mark("a", Some(ip(1))), mark("a", None)]].concat();
    let found = check(&history(scope(), clean));
    assert_eq!(found, [], "nobody could know");
    assert!(violated(&history(scope(), bad)).contains("I4"));
}

#[test]
fn i4_labels_of_others_say_nothing_of_marks() {
    let tier = What::Marks(Marks {
        by: "a person".to_owned(),
        node: "a".to_owned(),
        others: vec!["tier".to_owned()],
        ..Marks::default()
    });
    let ended = || Scope { ended: true, ..scope() };
    let begin = || vec![node("a", A), moved(ip(1), None, Some(A), None), mark("a", Some(ip(1)))];
    planted("I4", ended(), [begin(), vec![tier]].concat(), [begin(), vec![mark("a", None)]].concat());
}

#[test]
fn i4_who_keeps_an_address_of_an_allocation_that_is_gone_has_no_marks() {
    let ended = || Scope { ended: true, ..scope() };
    let kept = |then: Vec<What>| {
        let begin = vec![node("a", A), lists(1, &[ip(1)]), moved(ip(1), None, Some(A), None)];
        [begin, then].concat()
    };
    planted("I4", ended(), kept(vec![going()]), kept(vec![]));
}

/// A node with a pod of the workload, which is cordoned, and an address that leaves.
fn drain(before: Vec<What>) -> Vec<What> {
    let pod = || "prod/web-1".to_owned();
    let begin = vec![
        node("a", A),
        moved(ip(1), None, Some(A), None),
        lists(1, &[ip(1)]),
        What::Pod { pod: pod(), workload: Some(web()), grace: 0 },
        What::Bound { pod: pod(), node: "a".to_owned() },
        What::Cordon { node: "a".to_owned(), cordoned: true },
    ];
    [begin, before, vec![detach(ip(1), A)]].concat()
}

#[test]
fn i6_pods_are_followed_one_by_one() {
    let ends = |pod: &str, gone| vec![What::PodEnds { pod: pod.to_owned(), gone }];
    planted("I6", scope(), drain(ends("prod/web-1", true)), drain(vec![]));
    planted("I6", scope(), drain(ends("prod/web-1", false)), drain(ends("prod/web-2", true)));
    let patient = drain(vec![What::Spec(Spec { drain: Some(Duration::from_secs(2)), ..spec(2, &[ip(1)]) })]);
    assert_eq!(check(&history(scope(), patient)), [], "its time is over");
    for (why, what) in [
        ("the allocation goes", going()),
        ("it is not wanted any more", lists(2, &[ip(2)])),
        ("the node is gone", What::NodeGone { name: "a".to_owned() }),
        ("it takes pods again", What::Cordon { node: "a".to_owned(), cordoned: false }),
    ] {
        assert_eq!(check(&history(scope(), drain(vec![what]))), [], "{why}");
    }
    let mut lookalike = drain(vec![]);
    lookalike[3] = What::Pod {
        pod: "prod/web-1".to_owned(),
        workload: Some(Workload { name: "web-canary".to_owned(), ..web() }),
        grace: 0,
    };
    assert_eq!(check(&history(scope(), lookalike)), [], "not of this workload");
}

#[test]
fn i6_a_pod_that_takes_its_time_still_runs_when_it_is_evicted() {
    let mut slow = drain(vec![What::PodEnds { pod: "prod/web-1".to_owned(), gone: false }]);
    slow[3] = What::Pod { pod: "prod/web-1".to_owned(), workload: Some(web()), grace: 20 };
    assert_eq!(violated(&history(scope(), slow)), BTreeSet::from(["I6"]));
}

#[test]
fn i7_a_call_while_nothing_is_to_happen() {
    let still = |from, to| Scope { still: vec![(after(from), after(to))], ..scope() };
    let events = || vec![read(), read(), refused(attach(ip(1), A)), read()];
    assert_eq!(check(&history(still(0, 2), events())), []);
    assert_eq!(violated(&history(still(1, 3), events())), BTreeSet::from(["I7"]));
    let back = vec![read(), call(Purpose::GiveOwn, None, Some(A))];
    assert_eq!(check(&history(still(0, 9), back)), [], "an address of its own comes back beside all else");
}

#[test]
fn i10_by_what_it_asked_for_last() {
    let gone = || What::FinalizerGone { by: scope().user, allocation: "web".to_owned() };
    let attached = || moved(ip(1), None, Some(A), None);
    let retain = || What::Spec(Spec { retain: true, ..spec(2, &[ip(1)]) });
    let first = || lists(1, &[ip(1)]);
    planted("I10", scope(), vec![first(), attached(), retain(), gone()], vec![first(), attached(), gone()]);
    let mut two = scope();
    let addresses = BTreeSet::from([ip(1)]);
    two.allocations.insert("other".to_owned(), Allocation { addresses, retain: false });
    assert_eq!(check(&history(two, [first(), attached(), gone()])), [], "another one has it from now on");
}

#[test]
fn i12_what_is_done_twice_with_its_effect_in_between() {
    let first = || vec![attach(ip(1), A), moved(ip(1), None, Some(A), Some(US))];
    let away = || vec![detach(ip(1), A), moved(ip(1), Some(A), None, Some(US))];
    let again = || vec![attach(ip(1), A)];
    planted("I12", scope(), [first(), away(), again()].concat(), [first(), again()].concat());
    let twice = [first(), away(), vec![detach(ip(1), A)]].concat();
    assert_eq!(violated(&history(scope(), twice)), BTreeSet::from(["I12"]));
}

#[test]
fn i18_by_the_generation_that_it_speaks_of() {
    let of = |generation| match status(true) {
        What::Status(status) => What::Status(Status { observed: Some(generation), ..status }),
        other => other,
    };
    let begin = || vec![lists(1, &[ip(1)]), moved(ip(1), None, Some(A), None), lists(2, &[ip(1), ip(2)])];
    planted("I18", scope(), [begin(), vec![of(1)]].concat(), [begin(), vec![of(2)]].concat());
}

#[test]
fn what_neighbours_do_is_left_out_and_what_is_nobodys_is_not() {
    let others = Others {
        addresses: BTreeSet::from([ip(7)]),
        instances: BTreeSet::from(["gce://p/z/theirs".to_owned()]),
    };
    let by_us = |address, instance: &str| {
        What::Call(Call {
            caller: US.to_owned(),
            purpose: Purpose::Attach,
            address: Some(address),
            instance: Some(instance.to_owned()),
            outcome: Outcome::Refused("x".to_owned()),
        })
    };
    let found = |events: Vec<What>| -> Vec<&str> {
        let history: History = history(scope(), events).apart_from(&others);
        check(&history).into_iter().map(|violation| violation.invariant).collect()
    };
    assert_eq!(found(vec![by_us(ip(7), "gce://p/z/theirs")]), [""; 0], "the neighbour's own affair");
    assert_eq!(found(vec![by_us(ip(9), "gce://p/z/nobodys")]), ["I3", "I3"]);
    assert_eq!(found(vec![by_us(ip(1), "gce://p/z/theirs")]), ["I3"], "ours on theirs");
    assert_eq!(found(vec![by_us(ip(7), B)]), ["I3"], "theirs on ours");
}
