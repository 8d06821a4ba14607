//! Single decisions.

use super::model::*;
use crate::consumer::Consumer;
use crate::contents::Contents;
use crate::decide::{Step, decide};
use crate::issue::carry_out;
use crate::resolve::{Resolver, choose};
use crate::settings::{Lifetimes, Settings, after, before};
use jiff::Timestamp;
use std::time::Duration;

fn fresh(now: Timestamp) -> Contents {
    carry_out(Step::Bootstrap, &Contents::default(), &[], now, &settings()).unwrap()
}

fn trusting(contents: &Contents, since: Timestamp) -> Vec<Consumer> {
    vec![Consumer::new("c".to_owned(), vec![crate::bundle(contents, since)], Some(since))]
}

fn step(contents: &Contents, consumers: &[Consumer], now: Timestamp) -> Step {
    decide(contents, consumers, now, &settings()).step
}

#[test]
fn a_year_goes_bootstrap_renewals_stage_promote_retire() {
    let mut now = start_of_time();
    let mut contents = Contents::default();
    let mut steps = Vec::new();
    while now < after(start_of_time(), 365 * 24 * HOUR) {
        let decision = decide(&contents, &trusting(&contents, before(now, HOUR)), now, &settings());
        if decision.step == Step::Keep {
            assert!(decision.ask_again > now);
            now = decision.ask_again;
        } else {
            steps.push(decision.step);
            contents = carry_out(decision.step, &contents, &[], now, &settings()).unwrap();
        }
    }
    let count = |wanted: Step| steps.iter().filter(|step| **step == wanted).count();
    assert_eq!(steps[0], Step::Bootstrap);
    assert_eq!((count(Step::StageCa), count(Step::Promote), count(Step::Retire)), (1, 1, 1), "{steps:?}");
    assert!((15..=18).contains(&count(Step::RenewLeaf)), "every 20 days: {steps:?}");
    let order: Vec<Step> = steps.into_iter().filter(|step| *step != Step::RenewLeaf).collect();
    assert_eq!(order, [Step::Bootstrap, Step::StageCa, Step::Promote, Step::Retire]);
}

#[test]
fn promotion_waits_for_every_consumer_and_the_margin() {
    let now = start_of_time();
    let staged = carry_out(Step::StageCa, &fresh(now), &[], now, &settings()).unwrap();
    let margin = settings().lifetimes.margin;
    let mut consumers = trusting(&staged, now);
    assert_eq!(step(&staged, &consumers, before(after(now, margin), Duration::from_secs(1))), Step::Keep);
    assert_eq!(step(&staged, &consumers, after(now, margin)), Step::Promote);
    consumers.extend(trusting(&fresh(now), now));
    assert_eq!(step(&staged, &consumers, after(now, 10 * margin)), Step::Keep, "one does not carry it");
    consumers[1] = Consumer::new("c".to_owned(), vec![crate::bundle(&staged, now)], None);
    assert_eq!(step(&staged, &consumers, after(now, 10 * margin)), Step::Keep, "nobody knows since when");
}

#[test]
fn a_clock_set_back_an_hour_changes_nothing_and_set_forward_for_years_heals() {
    let now = start_of_time();
    let contents = fresh(now);
    let an_hour_ago = before(now, HOUR);
    assert_eq!(step(&contents, &trusting(&contents, now), an_hour_ago), Step::Keep);
    let years_ago = before(now, 3 * 365 * 24 * HOUR);
    assert_eq!(step(&contents, &trusting(&contents, now), years_ago), Step::Bootstrap);
    let healed = carry_out(Step::Bootstrap, &contents, &[], years_ago, &settings()).unwrap();
    assert_eq!(step(&healed, &trusting(&healed, years_ago), years_ago), Step::Keep);
}

#[test]
fn replicas_that_want_different_names_come_to_rest() {
    let now = start_of_time();
    let wants = |names: &[&str]| Settings {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        lifetimes: Lifetimes::default(),
    };
    let (old, new) = (wants(&["old.svc", "10.0.0.1"]), wants(&["new.svc", "FD00:0::1"]));
    let mut contents = carry_out(Step::Bootstrap, &Contents::default(), &[], now, &old).unwrap();
    let consumers = trusting(&contents, now);
    assert_eq!(decide(&contents, &consumers, now, &old).step, Step::Keep);
    assert_eq!(decide(&contents, &consumers, now, &new).step, Step::RenewLeaf);
    contents = carry_out(Step::RenewLeaf, &contents, &[], now, &new).unwrap();
    assert_eq!(decide(&contents, &consumers, now, &old).step, Step::Keep);
    assert_eq!(decide(&contents, &consumers, now, &new).step, Step::Keep);
}

#[test]
fn certificates_are_as_the_checklist_wants_them() {
    let now = start_of_time();
    let contents = fresh(now);
    let (ca, leaf) = (contents.current.unwrap(), contents.leaf.unwrap());
    assert_eq!(leaf.certificate.not_before, before(now, HOUR), "back-dated");
    assert_eq!(leaf.certificate.not_after, after(now, 30 * 24 * HOUR));
    assert_eq!(ca.certificate.not_after, after(now, 365 * 24 * HOUR));
    assert!(leaf.certificate.names.contains("webhook.test.svc"));
    assert!(leaf.certificate.signed_by(&ca.certificate));
    assert!(Lifetimes::default().fault().is_none());
    let short = Lifetimes { leaf: Duration::from_hours(24 * 300), ..Lifetimes::default() };
    assert!(short.fault().is_some());
}

#[test]
fn a_valid_leaf_is_never_passed_over_for_an_expired_one() {
    let now = start_of_time();
    let (first, second) = (fresh(now), fresh(now));
    let consumers = trusting(&first, before(now, HOUR));
    let resolver = Resolver::default();
    let margin = settings().lifetimes.margin;
    resolver.offer(&first, &consumers, now, margin);
    resolver.offer(&second, &consumers, now, margin);
    let serial = |contents: &Contents| contents.leaf.as_ref().unwrap().certificate.serial.clone();
    let served = |at| resolver.served_at(at).unwrap().0.certificate.serial;
    assert_eq!(served(now), serial(&first), "the second one's CA is not published");
    // Nobody touches the resolver any more. The first leaf expires; a longer one takes over by itself.
    let long = Settings {
        lifetimes: Lifetimes { leaf: Duration::from_hours(60 * 24), ..Lifetimes::default() },
        ..settings()
    };
    let third = carry_out(Step::Bootstrap, &Contents::default(), &[], now, &long).unwrap();
    resolver.offer(&third, &consumers, now, margin);
    assert_eq!(served(now), serial(&first));
    assert_eq!(served(after(now, 31 * 24 * HOUR)), serial(&third));
    let candidates = |contents: &Contents| {
        (contents.leaf.clone().unwrap(), contents.issuer_of(contents.leaf.as_ref().unwrap()))
    };
    let best = choose(vec![candidates(&second), candidates(&first)], None, &consumers, now, margin);
    assert_eq!(best[0].0.certificate.serial, serial(&first));
}
