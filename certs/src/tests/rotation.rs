//! Years of ordinary life with crashes, late watches and clocks that disagree: no call ever fails.

use super::model::*;
use proptest::prelude::*;
use std::time::Duration;

/// What one of the replicas does.
#[derive(Clone, Debug)]
enum Event {
    Look(usize),
    Act(usize),
    /// Acts, and dies after so many writes.
    Crash(usize, usize),
    Seconds(u64),
    Hours(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_usize..3).prop_map(Event::Look),
        3 => (0_usize..3).prop_map(Event::Act),
        1 => ((0_usize..3), (0_usize..4)).prop_map(|(replica, writes)| Event::Crash(replica, writes)),
        2 => (1_u64..100).prop_map(Event::Seconds),
        3 => (1_u64..48).prop_map(Event::Hours),
    ]
}

fn play(world: &mut World, replicas: &mut [Replica], event: &Event) {
    match event {
        Event::Look(replica) => replicas[*replica].look(world),
        Event::Act(replica) => drop(replicas[*replica].act(world, usize::MAX)),
        Event::Crash(replica, writes) => {
            replicas[*replica].act(world, *writes);
            // A replica that starts looks before it serves; readiness keeps calls away until then.
            replicas[*replica].restart();
            replicas[*replica].look(world);
            replicas[*replica].act(world, usize::MAX);
        }
        Event::Seconds(seconds) => world.pass(Duration::from_secs(*seconds)),
        Event::Hours(hours) => {
            world.pass(Duration::from_hours(*hours));
            // Within days, watches do catch up, and everybody has had a turn.
            for replica in replicas {
                replica.look(world);
                replica.act(world, usize::MAX);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn no_leaf_is_served_whose_authority_is_not_in_every_bundle_in_use(
        skews in prop::array::uniform3(-29_i64..30),
        events in prop::collection::vec(event(), 200..400),
    ) {
        let mut world = World::new();
        // Short enough for two or three CAs in one history.
        world.settings.lifetimes.authority = 40 * 24 * HOUR;
        world.settings.lifetimes.leaf = 12 * 24 * HOUR;
        let mut replicas: Vec<Replica> =
            skews.iter().map(|skew| Replica { skew: *skew, ..Replica::default() }).collect();
        // The first start: until the bundle is there, nobody can be trusted.
        settle(&mut world, &mut replicas);
        world.pass(2 * world.settings.lifetimes.margin);
        settle(&mut world, &mut replicas);
        let first = world.contents().current.unwrap().certificate;
        for (number, event) in events.iter().enumerate() {
            play(&mut world, &mut replicas, event);
            for (index, replica) in replicas.iter().enumerate() {
                prop_assert!(
                    world.trusts(replica),
                    "replica {index} after event {number}, {event:?}: {:?}\n{:#?}",
                    replica.resolver, world.contents()
                );
            }
        }
        // The history was long enough to mean something.
        let hours: u64 = events.iter().map(|event| if let Event::Hours(hours) = event { *hours } else { 0 }).sum();
        if hours > 30 * 24 {
            prop_assert_ne!(world.contents().current.unwrap().certificate, first);
        }
        prop_assert!(world.contents().authorities().len() <= 3);
    }
}
