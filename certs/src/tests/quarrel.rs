//! Two replicas whose clocks are further apart than a leaf lives: each finds the other's leaf useless.

use super::model::{settings, start_of_time};
use crate::contents::Contents;
use crate::pace::Pace;
use crate::settings::after;
use crate::turn::turn;
use std::time::Duration;
use tokio::time::Instant;

const DAYS: u64 = 5;
/// Minutes between two looks.
const LOOK: u64 = 20;

/// How often the Secret is written in so many days, and how often somebody wanted to; the replicas look every 20
/// minutes and whenever the other one has written.
fn play(skew: Duration) -> (u32, u32) {
    let settings = settings();
    let began = Instant::now();
    let mut secret = Contents::default();
    let mut replicas = [Duration::ZERO, skew].map(|skew| (skew, None, Pace::new(settings.lifetimes.leaf)));
    let (mut writes, mut wanted) = (0, 0);
    for look in 0..DAYS * 24 * 60 / LOOK {
        let passed = Duration::from_mins(look * LOOK);
        let mut quiet = false;
        while !quiet && writes < 5_000 {
            quiet = true;
            for (skew, memory, pace) in &mut replicas {
                let now = after(start_of_time(), passed + *skew);
                let turned = turn(&secret, false, memory, &[], now, &settings).unwrap();
                let Some(contents) = turned.write else { continue };
                wanted += 1;
                if pace.wait(began + passed).is_zero() {
                    pace.wrote(began + passed);
                    secret = contents;
                    writes += 1;
                    quiet = false;
                }
            }
        }
    }
    (writes, wanted)
}

#[test]
fn replicas_whose_clocks_are_far_apart_do_not_write_for_ever() {
    let (writes, wanted) = play(Duration::from_hours(40 * 24));
    assert!(wanted > 300, "they do not quarrel: {wanted}");
    assert!(writes < 2 * (20 + 10 + 24 / 3 * u32::try_from(DAYS).unwrap()), "{writes} writes");
}

#[test]
fn replicas_that_agree_write_once() {
    assert_eq!(play(Duration::from_mins(1)).0, 1);
}

/// Whoever damages the Secret again and again is answered at once at first, and never left alone for long.
#[test]
fn a_pause_is_never_longer_than_three_hours() {
    let (mut pace, mut now) = (Pace::new(Duration::from_hours(30 * 24)), Instant::now());
    for write in 0..100 {
        let wait = pace.wait(now);
        assert!(write >= 20 || wait.is_zero(), "write {write} waits {wait:?}");
        assert!(wait <= Duration::from_hours(3), "write {write} waits {wait:?}");
        now += wait;
        pace.wrote(now);
    }
    now += Duration::from_hours(6);
    assert!(pace.wait(now).is_zero());
    pace.wrote(now);
    assert!(pace.wait(now).is_zero(), "forgotten");
}
