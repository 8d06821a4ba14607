//! Each invariant reports a violation that was planted, and nothing where all is well. A checker that has not
//! been seen to fail proves nothing.

use super::{INVARIANTS, NOT_FROM_EVENTS, check};
use crate::history::{
    Allocation, Call, Event, History, Hold, Lease, Marks, Outcome, Own, Purpose, Scope, Status, What,
};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

pub const A: &str = "gce://p/z/a";
pub const B: &str = "gce://p/z/b";
const FOREIGN: &str = "gce://p/z/foreign";
pub const US: &str = "first";

pub fn ip(last: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, last])
}

pub fn scope() -> Scope {
    let addresses = BTreeSet::from([ip(1), ip(2)]);
    Scope {
        callers: BTreeSet::from([US.to_owned(), "second".to_owned()]),
        allocations: BTreeMap::from([("web".to_owned(), Allocation { addresses, retain: false })]),
        instances: BTreeSet::from([A.to_owned(), B.to_owned()]),
        secrets: vec!["very-secret".to_owned()],
        lag: Duration::from_secs(10),
        calls: (5.0, 1.0),
        ..Scope::default()
    }
}

/// One event a second.
pub fn history(scope: Scope, events: impl IntoIterator<Item = What>) -> History {
    let at = |number: usize| {
        let seconds = i64::try_from(number).expect("few");
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    };
    let events = events.into_iter().enumerate().map(|(number, what)| Event { at: at(number), what });
    History { scope, events: Vec::new() }.joined(events)
}

pub fn call(purpose: Purpose, address: Option<IpAddr>, instance: Option<&str>) -> What {
    What::Call(Call {
        caller: US.to_owned(),
        purpose,
        address,
        instance: instance.map(str::to_owned),
        outcome: Outcome::Accepted,
    })
}

pub fn refused(what: What) -> What {
    let What::Call(call) = what else { panic!("no call") };
    What::Call(Call { outcome: Outcome::Refused("taken".to_owned()), ..call })
}

pub fn read() -> What {
    call(Purpose::Read { lags: false }, None, None)
}

pub fn attach(address: IpAddr, to: &str) -> What {
    call(Purpose::Attach, Some(address), Some(to))
}

pub fn detach(address: IpAddr, from: &str) -> What {
    call(Purpose::Detach, Some(address), Some(from))
}

pub fn moved(address: IpAddr, before: Option<&str>, after: Option<&str>, by: Option<&str>) -> What {
    let text = |text: Option<&str>| text.map(str::to_owned);
    What::Hold(Hold { address, before: text(before), after: text(after), by: text(by) })
}

pub fn own(instance: &str, has: bool) -> What {
    What::Own(Own { instance: instance.to_owned(), has, by: Some(US.to_owned()) })
}

pub fn node(name: &str, provider_id: &str) -> What {
    let (name, provider_id) = (name.to_owned(), provider_id.to_owned());
    What::Node { uid: format!("uid-{name}"), name, provider_id }
}

pub fn mark(node: &str, address: Option<IpAddr>) -> What {
    What::Marks(Marks {
        by: scope().user,
        node: node.to_owned(),
        uid: Some(format!("uid-{node}")),
        address,
        allocation: address.map(|_| "web".to_owned()),
        own: true,
        others: Vec::new(),
    })
}

pub fn status(ready: bool) -> What {
    let reasons = vec!["AllAttached".to_owned()];
    What::Status(Status { by: scope().user, allocation: "web".to_owned(), ready, observed: Some(1), reasons })
}

pub fn lease(holder: &str, transitions: i64) -> What {
    What::Lease(Lease { holder: Some(holder.to_owned()), seconds: 4, transitions })
}

/// A whole life without anything wrong: an address comes, is read back and marked, moves by a drain, and the
/// allocation goes.
fn good() -> Vec<What> {
    vec![
        node("a", A),
        node("b", B),
        lease("first_1", 1),
        read(),
        call(Purpose::TakeOwn, None, Some(A)),
        own(A, false),
        attach(ip(1), A),
        moved(ip(1), None, Some(A), Some(US)),
        read(),
        lease("first_1", 1),
        mark("a", Some(ip(1))),
        What::Cordon { node: "a".to_owned(), cordoned: true },
        What::Pods { node: "a".to_owned(), allocation: "web".to_owned(), running: 0 },
        lease("first_1", 1),
        mark("a", None),
        detach(ip(1), A),
        moved(ip(1), Some(A), None, Some(US)),
        lease("first_1", 1),
        read(),
        call(Purpose::GiveOwn, None, Some(A)),
        own(A, true),
        attach(ip(1), B),
        lease("first_1", 1),
        moved(ip(1), None, Some(B), Some(US)),
        attach(ip(2), A),
        moved(ip(2), None, Some(A), Some(US)),
        read(),
        mark("b", Some(ip(1))),
        mark("a", Some(ip(2))),
        status(true),
    ]
}

/// The numbers of the invariants that a history violates.
pub fn violated(history: &History) -> BTreeSet<&'static str> {
    check(history).into_iter().map(|violation| violation.invariant).collect()
}

/// A scope whose end is looked at.
fn with_end() -> Scope {
    Scope {
        eligible: Some(BTreeSet::from([A.to_owned(), B.to_owned()])),
        moves: Some(BTreeMap::from([(ip(1), 1)])),
        quiet: Duration::from_secs(3),
        ended: true,
        ..scope()
    }
}

#[test]
fn a_good_life_violates_nothing() {
    let history = history(with_end(), good());
    assert_eq!(check(&history), []);
}

#[test]
fn every_number_is_checked_or_has_a_reason() {
    for number in 1..=20 {
        let name = format!("I{number}");
        let checked = INVARIANTS.iter().any(|invariant| invariant.name == name);
        let told = NOT_FROM_EVENTS.iter().any(|(other, why)| *other == name && !why.is_empty());
        assert!(checked != told, "{name}");
    }
}

/// The invariant reports what is planted, as the only one, and nothing without it.
pub fn planted(name: &str, scope: Scope, clean: Vec<What>, bad: Vec<What>) {
    let fine = check(&history(scope.clone(), clean));
    assert_eq!(fine, [], "{name} without the plant");
    let found = check(&history(scope, bad));
    assert!(found.iter().any(|violation| violation.invariant == name), "{name} is not reported: {found:?}");
    assert!(found.iter().all(|violation| violation.invariant == name), "not only {name}: {found:?}");
}

#[test]
fn i1_an_address_taken_from_somebody() {
    let from_nobody = vec![moved(ip(1), Some(A), None, Some(US)), moved(ip(1), None, Some(B), Some(US))];
    let stolen = vec![moved(ip(1), Some(A), Some(B), Some(US))];
    let held = || moved(ip(1), None, Some(A), None);
    planted("I1", scope(), [vec![held()], from_nobody].concat(), [vec![held()], stolen].concat());
}

#[test]
fn i1_in_two_places_at_once() {
    let clean = vec![moved(ip(1), None, Some(A), None), moved(ip(1), Some(A), Some(B), None)];
    let bad = vec![moved(ip(1), None, Some(A), None), moved(ip(1), None, Some(B), None)];
    planted("I1", scope(), clean, bad);
}

#[test]
fn i1_an_attach_of_what_was_read_as_held() {
    let taken = || moved(ip(1), None, Some(FOREIGN), None);
    let attempt = || refused(attach(ip(1), A));
    planted("I1", scope(), vec![read(), taken(), attempt()], vec![taken(), read(), attempt()]);
    let lagged = call(Purpose::Read { lags: true }, None, None);
    let excused = history(scope(), vec![taken(), lagged, attempt()]);
    assert_eq!(check(&excused), [], "what it read was old");
}

#[test]
fn i2_two_addresses_on_one_instance() {
    let first = || moved(ip(1), None, Some(A), Some(US));
    let clean = vec![first(), moved(ip(1), Some(A), None, Some(US)), moved(ip(2), None, Some(A), Some(US))];
    planted("I2", scope(), clean, vec![first(), moved(ip(2), None, Some(A), Some(US))]);
}

#[test]
fn i3_a_foreign_address_and_a_foreign_instance() {
    planted("I3", scope(), vec![refused(attach(ip(1), A))], vec![refused(attach(ip(9), A))]);
    planted("I3", scope(), vec![refused(detach(ip(1), A))], vec![refused(detach(ip(1), FOREIGN))]);
    let somebody = What::Call(Call {
        caller: "a person".to_owned(),
        purpose: Purpose::Attach,
        address: Some(ip(9)),
        instance: Some(FOREIGN.to_owned()),
        outcome: Outcome::Accepted,
    });
    assert_eq!(check(&history(scope(), [somebody])), [], "others may do as they like");
}

#[test]
fn i4_a_node_marked_for_what_it_does_not_have() {
    let on =
        |to| vec![node("a", A), node("b", B), moved(ip(1), None, Some(to), None), mark("a", Some(ip(1)))];
    planted("I4", scope(), on(A), on(B));
}

#[test]
fn i4_a_mark_that_stays_when_the_address_is_gone() {
    let lost = || {
        let attached = moved(ip(1), None, Some(A), None);
        vec![node("a", A), attached, mark("a", Some(ip(1))), moved(ip(1), Some(A), None, None)]
    };
    let until = |seconds| {
        let end = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        Scope { until: Some(end), ..scope() }
    };
    assert_eq!(check(&history(until(12), lost())), [], "for a while");
    assert_eq!(violated(&history(until(60), lost())), BTreeSet::from(["I4"]));
    planted("I4", until(60), [lost(), vec![mark("a", None)]].concat(), lost());
}

#[test]
fn i4_a_node_without_its_marks_in_the_end() {
    let mut bad = good();
    bad.insert(29, mark("b", None));
    let scope = Scope { quiet: Duration::ZERO, ..with_end() };
    planted("I4", scope, good(), bad);
}

#[test]
fn i5_a_detach_before_the_marks_are_gone() {
    let begin = || vec![node("a", A), moved(ip(1), None, Some(A), None), mark("a", Some(ip(1)))];
    let end = || vec![detach(ip(1), A), moved(ip(1), Some(A), None, Some(US)), mark("a", None)];
    planted("I5", scope(), [begin(), vec![mark("a", None)], end()].concat(), [begin(), end()].concat());
}

#[test]
fn i5_marks_before_any_read_showed_the_attachment() {
    let attached = || moved(ip(1), None, Some(A), Some(US));
    let clean = vec![node("a", A), read(), attached(), read(), mark("a", Some(ip(1)))];
    planted("I5", scope(), clean, vec![node("a", A), read(), attached(), mark("a", Some(ip(1)))]);
}

#[test]
fn i5_labels_of_others() {
    let What::Marks(ours) = mark("a", None) else { panic!("no marks") };
    let theirs = Marks { others: vec!["topology.kubernetes.io/zone".to_owned()], ..ours.clone() };
    planted("I5", scope(), vec![What::Marks(ours)], vec![What::Marks(theirs)]);
}

#[test]
fn i6_a_drain_that_is_not_waited_for() {
    let with = |running, over: bool| {
        let mut events = vec![
            node("a", A),
            moved(ip(1), None, Some(A), None),
            What::Cordon { node: "a".to_owned(), cordoned: true },
            What::Pods { node: "a".to_owned(), allocation: "web".to_owned(), running },
        ];
        if over {
            events.push(What::DrainOver { node: "a".to_owned() });
        }
        events.push(detach(ip(1), A));
        events
    };
    planted("I6", scope(), with(0, false), with(2, false));
    assert_eq!(check(&history(scope(), with(2, true))), [], "its time is over");
}

#[test]
fn i7_calls_that_never_end() {
    let scope = || Scope { quiet: Duration::from_secs(3), ..scope() };
    let early = vec![refused(attach(ip(1), A)), read(), read(), read()];
    planted("I7", scope(), early, vec![read(), read(), read(), refused(attach(ip(1), A))]);
}

#[test]
fn i8_an_address_without_a_node() {
    let scope = || Scope { moves: None, quiet: Duration::ZERO, ..with_end() };
    let both = vec![moved(ip(1), None, Some(A), None), moved(ip(2), None, Some(B), None)];
    planted("I8", scope(), both, vec![moved(ip(1), None, Some(A), None)]);
    let few = Scope { eligible: Some(BTreeSet::from([A.to_owned()])), ..scope() };
    assert_eq!(check(&history(few, [moved(ip(1), None, Some(A), None)])), [], "there is no other node");
}

#[test]
fn i9_a_move_without_cause() {
    let moves = |allowed| Scope { moves: Some(BTreeMap::from([(ip(1), allowed)])), ..scope() };
    let events = || vec![moved(ip(1), None, Some(A), Some(US)), moved(ip(1), Some(A), None, Some(US))];
    assert_eq!(check(&history(moves(1), events())), []);
    assert_eq!(violated(&history(moves(0), events())), BTreeSet::from(["I9"]));
}

#[test]
fn i10_a_finalizer_that_goes_first_and_an_address_given_back() {
    let gone = || What::FinalizerGone { by: scope().user, allocation: "web".to_owned() };
    let attached = || moved(ip(1), None, Some(A), None);
    let clean = vec![attached(), moved(ip(1), Some(A), None, Some(US)), gone()];
    planted("I10", scope(), clean, vec![attached(), gone()]);
    let mut retained = scope();
    retained.allocations.entry("web".to_owned()).or_default().retain = true;
    assert_eq!(check(&history(retained, [attached(), gone()])), [], "it is to stay");
    planted("I10", scope(), vec![], vec![call(Purpose::Release, Some(ip(1)), None)]);
}

#[test]
fn i11_an_address_that_is_reserved() {
    planted("I11", scope(), vec![read()], vec![call(Purpose::Reserve, None, None)]);
}

#[test]
fn i12_what_is_done_twice() {
    let twice = || vec![attach(ip(1), A), attach(ip(1), A)];
    let lost = vec![
        What::Call(Call {
            caller: US.to_owned(),
            purpose: Purpose::Attach,
            address: Some(ip(1)),
            instance: Some(A.to_owned()),
            outcome: Outcome::Unanswered,
        }),
        attach(ip(1), A),
    ];
    planted("I12", scope(), lost, twice());
    let changed = vec![attach(ip(1), A), moved(ip(1), Some(A), None, None), attach(ip(1), A)];
    assert_eq!(check(&history(scope(), changed)), [], "somebody took it in between");
    let failed = vec![attach(ip(1), A), What::OperationFailed { code: "x".to_owned() }, attach(ip(1), A)];
    assert_eq!(check(&history(scope(), failed)), [], "it came to nothing");
}

#[test]
fn i13_who_does_not_lead() {
    let clean = vec![lease("first_1", 1), attach(ip(1), A)];
    planted("I13", scope(), clean.clone(), vec![lease("second_1", 1), attach(ip(1), A)]);
    let late = vec![lease("first_1", 1), read(), read(), read(), read(), attach(ip(1), A)];
    planted("I13", scope(), clean.clone(), late);
    planted("I13", scope(), clean, vec![lease("first_1", 2), lease("second_1", 1)]);
}

#[test]
fn i14_a_storm_of_calls() {
    let storm = |seconds_between: i64| {
        let events = (0..20).map(move |number| Event {
            at: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(number * seconds_between),
            what: refused(attach(ip(1), A)),
        });
        History { scope: scope(), events: Vec::new() }.joined(events)
    };
    assert_eq!(check(&storm(2)), []);
    assert_eq!(violated(&storm(0)), BTreeSet::from(["I14"]));
}

#[test]
fn i15_a_node_that_has_the_name_of_another() {
    let What::Marks(ours) = mark("a", None) else { panic!("no marks") };
    let with = |uid: Option<&str>| {
        let marks = Marks { uid: uid.map(str::to_owned), ..ours.clone() };
        vec![node("a", A), What::Marks(marks)]
    };
    planted("I15", scope(), with(Some("uid-a")), with(Some("uid-of-an-earlier-one")));
    planted("I15", scope(), with(Some("uid-a")), with(None));
}

#[test]
fn i18_ready_when_it_is_not() {
    let both = || vec![moved(ip(1), None, Some(A), None), moved(ip(2), None, Some(B), None)];
    planted("I18", scope(), [both(), vec![status(true)]].concat(), vec![both().remove(0), status(true)]);
    let just_lost = [both(), vec![moved(ip(2), Some(B), None, None), status(true)]].concat();
    assert_eq!(check(&history(scope(), just_lost)), [], "nobody can know that so soon");
    let lost =
        [both(), vec![moved(ip(2), Some(B), None, None)], vec![read(); 12], vec![status(true)]].concat();
    assert_eq!(violated(&history(scope(), lost)), BTreeSet::from(["I18"]));
    planted("I18", scope(), vec![status(false)], vec![with_reason("no word")]);
    let back = |of| match status(false) {
        What::Status(status) => What::Status(Status { observed: Some(of), ..status }),
        other => other,
    };
    planted("I18", scope(), vec![back(1), back(2)], vec![back(2), back(1)]);
}

fn with_reason(reason: &str) -> What {
    let What::Status(of) = status(false) else { panic!("no status") };
    What::Status(Status { reasons: vec![reason.to_owned()], ..of })
}

#[test]
fn i19_a_secret_in_what_is_written() {
    let write =
        |text: &str| vec![What::Write { by: scope().user, object: "a".to_owned(), text: text.to_owned() }];
    planted("I19", scope(), write("{\"a\":1}"), write("{\"a\":\"very-secret\"}"));
    let found = check(&history(scope(), write("very-secret")));
    assert!(!found[0].what.contains("very-secret"), "nor is it told: {}", found[0]);
}

#[test]
fn l2_an_instance_that_is_left_bare() {
    let scope = || Scope { allocations: BTreeMap::new(), moves: None, quiet: Duration::ZERO, ..with_end() };
    planted("L2", scope(), vec![own(A, false), own(A, true)], vec![own(A, false)]);
    let ours = vec![own(A, false), moved(ip(1), None, Some(A), Some(US))];
    assert_eq!(check(&history(scope(), ours)), [], "it has one of ours");
}
