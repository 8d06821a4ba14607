//! The schedule of reads, second by second.

use super::*;

const INTERVAL: Duration = Duration::from_hours(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, last])
}

fn only(last: u8) -> BTreeSet<IpAddr> {
    BTreeSet::from([address(last)])
}

fn wanted(last: u8, written: Instant) -> BTreeMap<IpAddr, Option<Instant>> {
    BTreeMap::from([(address(last), Some(written))])
}

fn complete() -> Outcome {
    Outcome::default()
}

fn unknown(last: u8) -> Outcome {
    Outcome { unknown: only(last), incomplete: true, retry_after: None }
}

/// A schedule whose first audit ended well, at that time.
fn audited() -> (Schedule, Instant) {
    let now = Instant::now();
    let mut schedule = Schedule::new(INTERVAL, now);
    assert_eq!(schedule.begin(now), [Action::Audit]);
    schedule.ended(Purpose::Audit, &complete(), now + seconds(1), 0.5);
    (schedule, now + seconds(1))
}

#[tokio::test]
async fn one_audit_is_under_way_and_the_next_comes_after_the_interval() {
    let now = Instant::now();
    let mut schedule = Schedule::new(INTERVAL, now);
    assert_eq!(schedule.begin(now), [Action::Audit]);
    assert_eq!(schedule.begin(now + INTERVAL * 2), [], "the first has not ended");
    assert_eq!(schedule.wake(), None, "its end wakes");
    schedule.ended(Purpose::Audit, &complete(), now + seconds(1), 0.5);
    assert_eq!(schedule.wake(), Some(now + seconds(1) + INTERVAL));
    assert_eq!(schedule.begin(now + seconds(2)), []);
    assert_eq!(schedule.begin(now + seconds(2) + INTERVAL), [Action::Audit]);
}

#[tokio::test]
async fn what_happens_during_an_audit_is_served_right_after_it() {
    let now = Instant::now();
    let mut schedule = Schedule::new(INTERVAL, now);
    schedule.begin(now);
    schedule.hurry(now + seconds(1));
    assert_eq!(schedule.begin(now + seconds(2)), []);
    schedule.ended(Purpose::Audit, &complete(), now + seconds(3), 0.5);
    assert_eq!(schedule.begin(now + seconds(3)), [Action::Audit]);
    schedule.ended(Purpose::Audit, &complete(), now + seconds(4), 0.5);
    assert_eq!(schedule.begin(now + seconds(5)), [], "once");
}

#[tokio::test]
async fn what_happens_during_an_audit_that_fails_is_served_too() {
    let now = Instant::now();
    let mut schedule = Schedule::new(INTERVAL, now);
    schedule.begin(now);
    schedule.hurry(now + seconds(1));
    schedule.ended(Purpose::Audit, &unknown(1), now + seconds(3), 0.5);
    assert_eq!(schedule.begin(now + seconds(3)), [Action::Audit]);
    // But a cloud that asks for a pause gets it.
    schedule.hurry(now + seconds(4));
    let throttled = Outcome { retry_after: Some(seconds(60)), ..unknown(1) };
    schedule.ended(Purpose::Audit, &throttled, now + seconds(5), 0.5);
    assert_eq!(schedule.begin(now + seconds(64)), []);
    assert_eq!(schedule.begin(now + seconds(65)), [Action::Audit]);
}

#[tokio::test]
async fn a_burst_costs_one_audit() {
    let (mut schedule, now) = audited();
    schedule.hurry(now);
    assert_eq!(schedule.begin(now), [Action::Audit]);
    schedule.ended(Purpose::Audit, &complete(), now, 0.5);
    schedule.hurry(now);
    assert_eq!(schedule.begin(now), [], "half a second apart");
    assert_eq!(schedule.begin(now + SPACING), [Action::Audit]);
}

#[tokio::test]
async fn failed_audits_are_repeated_ever_more_slowly_but_not_after_an_hour() {
    let (mut schedule, mut now) = audited();
    now += INTERVAL;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert_eq!(schedule.begin(now), [Action::Audit]);
        schedule.ended(Purpose::Audit, &unknown(1), now, 0.5);
        let next = schedule.wake().expect("another try");
        pauses.push((next - now).as_secs());
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    let mut schedule = Schedule::new(seconds(5), now);
    for _ in 0..9 {
        schedule.begin(now);
        schedule.ended(Purpose::Audit, &unknown(1), now, 0.5);
        now = schedule.wake().expect("another try");
    }
    schedule.begin(now);
    schedule.ended(Purpose::Audit, &unknown(1), now, 0.5);
    assert_eq!(schedule.wake(), Some(now + seconds(5)), "no later than the next would be");
}

#[tokio::test]
async fn a_write_is_read_back_at_once_and_once() {
    let (mut schedule, now) = audited();
    schedule.want(wanted(1, now));
    assert_eq!(schedule.begin(now), [Action::ReadBack(only(1))]);
    for second in 0..20 {
        schedule.want(wanted(1, now));
        assert_eq!(schedule.begin(now + seconds(second)), [], "unanswered: not sent again");
    }
    schedule.want(BTreeMap::new());
    schedule.ended(Purpose::ReadBack, &complete(), now + seconds(20), 0.5);
    assert_eq!(schedule.begin(now + seconds(100)), []);
}

#[tokio::test]
async fn a_write_that_ends_during_a_read_back_has_one_of_its_own() {
    let (mut schedule, now) = audited();
    schedule.want(wanted(1, now));
    schedule.begin(now);
    // Another address, and the same one again.
    let mut both = wanted(2, now + seconds(1));
    both.extend(wanted(1, now + seconds(2)));
    schedule.want(both);
    assert_eq!(schedule.begin(now + seconds(3)), []);
    schedule.ended(Purpose::ReadBack, &complete(), now + seconds(4), 0.5);
    assert_eq!(
        schedule.begin(now + seconds(4)),
        [Action::ReadBack(BTreeSet::from([address(1), address(2)]))]
    );
}

#[tokio::test]
async fn a_reading_that_contradicts_the_write_is_repeated_after_a_second() {
    let (mut schedule, now) = audited();
    schedule.want(wanted(1, now));
    schedule.begin(now);
    schedule.ended(Purpose::ReadBack, &complete(), now, 0.5);
    schedule.want(wanted(1, now));
    assert_eq!(schedule.begin(now + Duration::from_millis(900)), []);
    assert_eq!(schedule.wake(), Some(now + SETTLING));
    assert_eq!(schedule.begin(now + SETTLING), [Action::ReadBack(only(1))]);
}

#[tokio::test]
async fn a_failed_read_back_is_repeated_in_seconds_though_nobody_asks_again() {
    let (mut schedule, mut now) = audited();
    schedule.want(wanted(1, now));
    let mut pauses = Vec::new();
    for _ in 0..7 {
        assert_eq!(schedule.begin(now), [Action::ReadBack(only(1))]);
        schedule.want(BTreeMap::new());
        schedule.ended(Purpose::ReadBack, &unknown(1), now, 0.5);
        let next = schedule.wake().expect("another try");
        pauses.push((next - now).as_secs());
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    schedule.begin(now);
    schedule.ended(Purpose::ReadBack, &complete(), now, 0.5);
    assert_eq!(schedule.begin(now + seconds(60)), [], "it is known by now");
}

#[tokio::test]
async fn an_audit_answers_for_a_read_back_and_a_gone_address_is_not_asked_for() {
    let (mut schedule, now) = audited();
    schedule.want(wanted(1, now));
    schedule.begin(now);
    schedule.want(BTreeMap::new());
    schedule.ended(Purpose::ReadBack, &unknown(1), now, 0.5);
    schedule.hurry(now + SPACING);
    assert_eq!(schedule.begin(now + SPACING), [Action::Audit]);
    schedule.ended(Purpose::Audit, &complete(), now + SPACING, 0.5);
    assert_eq!(schedule.begin(now + seconds(30)), [], "the audit told");

    schedule.want(wanted(2, now + seconds(30)));
    schedule.begin(now + seconds(30));
    schedule.ended(Purpose::ReadBack, &unknown(2), now + seconds(30), 0.5);
    schedule.retain(|_| false);
    assert_eq!(schedule.begin(now + seconds(60)), []);
}

#[tokio::test]
async fn a_pause_that_the_cloud_asks_for_counts_for_both() {
    let (mut schedule, now) = audited();
    schedule.want(wanted(1, now));
    schedule.begin(now);
    schedule.ended(Purpose::ReadBack, &Outcome { retry_after: Some(seconds(20)), ..unknown(1) }, now, 0.5);
    schedule.hurry(now + seconds(1));
    assert_eq!(schedule.begin(now + seconds(19)), []);
    assert_eq!(schedule.begin(now + seconds(20)), [Action::Audit, Action::ReadBack(only(1))]);
}

#[tokio::test]
async fn a_shorter_interval_counts_from_now() {
    let (mut schedule, now) = audited();
    schedule.set_interval(seconds(5), now);
    assert_eq!(schedule.begin(now + seconds(5)), [Action::Audit]);
    assert_eq!(schedule.max_age(), seconds(35), "three audits and an answer");
}
