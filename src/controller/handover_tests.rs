//! When the lease is given up, and who waits for that.

use super::*;
use cloud::Cloud;

const LEASE: Duration = Duration::from_secs(15);

fn account(name: &str) -> Account {
    Account { cloud: Cloud::Gcp, scope: name.to_owned() }
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, number])
}

/// What may go on so long after the beginning, with no writes under way.
fn conduct(handover: &mut Handover, at: Instant) -> Conduct {
    handover.conduct(true, false, LEASE, at)
}

#[tokio::test]
async fn others_go_on_while_the_lease_is_to_be_given_up() {
    let (mut handover, now) = (Handover::default(), Instant::now());
    handover.begun(address(1), account("a"), now);
    assert_eq!(handover.conduct(false, true, LEASE, now), Conduct::Work);
    assert_eq!(handover.conduct(true, true, LEASE, now), Conduct::Work);
    assert_eq!(handover.conduct(true, true, LEASE, now + LEASE / 2), Conduct::Work);
    handover.ended(address(1));
    handover.begun(address(1), account("a"), now + LEASE / 2);
    assert_eq!(handover.conduct(true, true, LEASE, now + LEASE), Conduct::NoSteps, "now it has to end");
    handover.ended(address(1));
    assert_eq!(handover.conduct(true, true, LEASE, now + LEASE), Conduct::Nothing);
    assert_eq!(handover.conduct(true, false, LEASE, now + LEASE), Conduct::GiveUp);
}

#[tokio::test]
async fn a_node_that_need_not_be_left_any_more_ends_it() {
    let (mut handover, now) = (Handover::default(), Instant::now());
    handover.begun(address(1), account("a"), now);
    conduct(&mut handover, now);
    assert!(handover.is_due());
    assert_eq!(conduct(&mut handover, now + LEASE), Conduct::Others);
    assert_eq!(handover.conduct(false, false, LEASE, now + LEASE), Conduct::Work);
    assert!(!handover.is_due());
    assert_eq!(conduct(&mut handover, now + LEASE), Conduct::Work, "it begins anew");
    assert!(handover.lets(&account("a"), Conduct::Others), "and nobody is held");
}

/// A call that hangs is waited for; that costs its own account, and not the others.
#[tokio::test]
async fn an_account_that_is_slow_holds_up_no_other() {
    let (mut handover, now) = (Handover::default(), Instant::now());
    handover.begun(address(1), account("slow"), now);
    conduct(&mut handover, now);
    let later = now + LEASE;
    let held = conduct(&mut handover, later);
    assert_eq!(held, Conduct::Others);
    assert!(!handover.lets(&account("slow"), held) && handover.lets(&account("quick"), held));
    handover.begun(address(2), account("quick"), later);
    assert_eq!(conduct(&mut handover, later + LEASE / 2), Conduct::Others, "they go on and on");
    handover.ended(address(1));
    let last = conduct(&mut handover, later + LEASE / 2);
    assert_eq!(last, Conduct::NoSteps, "what is left is quick");
    assert!(!handover.lets(&account("quick"), last));
    handover.ended(address(2));
    assert_eq!(conduct(&mut handover, later + LEASE / 2), Conduct::GiveUp);
}

/// Two accounts that hang in turns: each of them is waited for once.
#[tokio::test]
async fn accounts_that_are_slow_in_turns_do_not_keep_the_lease_here_for_ever() {
    let (mut handover, mut now) = (Handover::default(), Instant::now());
    let accounts = [account("one"), account("two")];
    handover.begun(address(0), accounts[0].clone(), now);
    conduct(&mut handover, now);
    let mut turns = 0_u8;
    loop {
        now += LEASE;
        let held = conduct(&mut handover, now);
        if held == Conduct::GiveUp {
            break;
        }
        turns += 1;
        assert!(turns < 10, "it comes to an end");
        // Whoever may begin something begins it, and what was begun before ends.
        let mut begins = accounts.iter().filter(|account| handover.lets(account, held)).cloned();
        let next = begins.next();
        handover.ended(address(turns - 1));
        if let Some(account) = next {
            handover.begun(address(turns), account, now);
        }
    }
    assert_eq!(turns, 2, "each had its turn");
}

#[tokio::test]
async fn nothing_begins_where_nothing_may() {
    let handover = Handover::default();
    for (conduct, lets) in [
        (Conduct::Work, true),
        (Conduct::Others, true),
        (Conduct::NoSteps, false),
        (Conduct::Nothing, false),
        (Conduct::GiveUp, false),
    ] {
        assert_eq!(handover.lets(&account("a"), conduct), lets, "{conduct:?}");
    }
}

#[tokio::test]
async fn that_nobody_took_the_lease_counts_for_one_lease_or_one_move() {
    let (mut handover, now) = (Handover::default(), Instant::now());
    assert!(!handover.is_alone(now), "nobody was asked");
    handover.leading(false, LEASE, now);
    assert!(!handover.is_alone(now), "another replica gave it to us");
    handover.leading(true, LEASE, now);
    assert!(handover.is_alone(now) && handover.is_alone(now + LEASE - Duration::from_millis(1)));
    assert!(!handover.is_alone(now + LEASE), "by then somebody else may be there");
    assert!(!handover.is_alone(now), "it does not come back");
    handover.leading(true, LEASE, now);
    handover.left();
    assert!(!handover.is_alone(now), "once");
}

/// A cloud that refuses: the lease is not offered again for every attempt.
#[tokio::test]
async fn between_two_attempts_the_lease_is_not_offered_again() {
    let (mut handover, now) = (Handover::default(), Instant::now());
    let minute = Duration::from_mins(1);
    handover.leading(true, LEASE, now);
    for attempt in 1..10 {
        let at = now + minute * attempt;
        handover.failed(at, LEASE);
        assert!(handover.is_alone(at), "attempt {attempt} is made by our own hand");
    }
    handover.failed(now + minute * 10, LEASE);
    assert!(!handover.is_alone(now + minute * 10), "after ten minutes it is");
    handover.failed(now + minute * 11, LEASE);
    assert!(!handover.is_alone(now + minute * 11), "a failure alone allows nothing");
    handover.leading(true, LEASE, now);
    handover.failed(now + minute * 30, LEASE);
    assert!(!handover.is_alone(now + minute * 30), "nor after a long pause");
}
