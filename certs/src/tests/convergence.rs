//! From any state, repeated steps reach Keep.

use super::model::*;
use crate::contents::Data;
use crate::decide::Step;
use k8s_openapi::ByteString;
use proptest::prelude::*;
use std::time::Duration;

/// What can happen to an entry of the Secret.
#[derive(Clone, Debug)]
enum Damage {
    Removed,
    Emptied,
    Garbage,
    /// Another entry's bytes.
    Swapped(usize),
    /// The bytes that another world has there: a good pair, half of it, or a CA of somebody else.
    Foreign,
    Truncated,
}

const ENTRIES: [&str; 8] =
    ["ca.crt", "ca.key", "next-ca.crt", "next-ca.key", "old-ca.crt", "old-leaf.crt", "tls.crt", "tls.key"];

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Removed),
        Just(Damage::Emptied),
        Just(Damage::Garbage),
        (0..ENTRIES.len()).prop_map(Damage::Swapped),
        Just(Damage::Foreign),
        Just(Damage::Truncated),
    ]
}

fn apply(data: &mut Data, entry: &str, damage: &Damage, foreign: &Data) {
    let bytes = match damage {
        Damage::Removed => None,
        Damage::Emptied => Some(Vec::new()),
        Damage::Garbage => Some(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()),
        Damage::Swapped(other) => data.get(ENTRIES[*other]).map(|bytes| bytes.0.clone()),
        Damage::Foreign => foreign.get(entry).map(|bytes| bytes.0.clone()),
        Damage::Truncated => data.get(entry).map(|bytes| bytes.0[..bytes.0.len() / 2].to_vec()),
    };
    match bytes {
        Some(bytes) => data.insert(entry.to_owned(), ByteString(bytes)),
        None => data.remove(entry),
    };
}

/// A world after some months of ordinary life.
fn aged(days: u64) -> (World, Vec<Replica>) {
    let (mut world, mut replicas) = (World::new(), vec![Replica::default(), Replica::default()]);
    settle(&mut world, &mut replicas);
    for _ in 0..days.div_ceil(5) {
        world.pass(5 * 24 * HOUR);
        settle(&mut world, &mut replicas);
    }
    (world, replicas)
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn from_any_damage_at_any_age_repeated_steps_reach_keep(
        days in 0_u64..300,
        damages in prop::collection::vec((0..ENTRIES.len(), damage()), 1..4),
        forget in any::<bool>(),
        away in 0_u64..500,
    ) {
        let (mut world, mut replicas) = aged(days);
        let foreign = aged(3).0.secret.unwrap().0;
        let mut data = world.secret.clone().unwrap().0;
        for (entry, damage) in &damages {
            apply(&mut data, ENTRIES[*entry], damage, &foreign);
        }
        world.version += 1;
        world.secret = Some((data, world.version));
        if forget {
            replicas.iter_mut().for_each(Replica::restart);
        }
        world.pass(Duration::from_hours(away));
        settle(&mut world, &mut replicas);
        // Nothing more is written however often they look.
        let version = world.version;
        prop_assert_eq!(settle(&mut world, &mut replicas), 0);
        prop_assert_eq!(world.version, version);
        // And when the margin has passed, every call gets through.
        world.pass(2 * world.settings.lifetimes.margin);
        settle(&mut world, &mut replicas);
        prop_assert!(replicas.iter().all(|replica| world.trusts(replica)));
    }

    #[test]
    fn a_deleted_secret_comes_back_with_the_same_authorities(days in 0_u64..300) {
        let (mut world, mut replicas) = aged(days);
        let before = world.contents().authorities();
        world.secret = None;
        settle(&mut world, &mut replicas);
        prop_assert_eq!(world.contents().authorities(), before);
        prop_assert!(replicas.iter().all(|replica| world.trusts(replica)));
    }
}

#[test]
fn a_running_replica_heals_what_a_fresh_one_made_of_a_deleted_secret() {
    let (mut world, mut replicas) = aged(10);
    let before = world.contents().current.unwrap().certificate;
    world.secret = None;
    let mut fresh = Replica::default();
    fresh.look(&world);
    assert_eq!(fresh.act(&mut world, usize::MAX), Some(Step::Bootstrap));
    let authorities = world.contents().authorities();
    assert!(authorities.contains(&before), "what is being served stays trusted");
    assert_ne!(world.contents().current.unwrap().certificate, before);
    for _ in 0..10 {
        assert!(replicas.iter().all(|replica| world.trusts(replica)));
        settle(&mut world, &mut replicas);
        world.pass(Duration::from_secs(20));
    }
    replicas.push(fresh);
    settle(&mut world, &mut replicas);
    assert!(replicas.iter().all(|replica| world.trusts(replica)));
}

#[test]
fn a_secret_from_another_clusters_backup_is_taken_over_without_a_failed_call() {
    let (mut world, mut replicas) = aged(10);
    let before = world.contents().current.unwrap().certificate;
    let backup = aged(5).0.secret.unwrap().0;
    world.version += 1;
    world.secret = Some((backup, world.version));
    for _ in 0..20 {
        for replica in &mut replicas {
            replica.look(&world);
            replica.act(&mut world, usize::MAX);
        }
        assert!(replicas.iter().all(|replica| world.trusts(replica)));
        assert!(world.contents().authorities().contains(&before), "leaves of it may still be served");
        world.pass(Duration::from_secs(10));
    }
    let served = |replica: &Replica| replica.resolver.served_at(world.now).unwrap().1.unwrap();
    assert!(replicas.iter().all(|replica| served(replica) != before), "in the end the Secret has its way");
}
