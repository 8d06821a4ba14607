//! The roles in docs/clouds: the whole suite runs with exactly them, and nothing in them is too much.

use crate::bed::{Bed, call, ip, node, role, small_world, within};
use cloud::{AddressState, Class, Cloud, Error, InstanceState, Reading};
use std::path::Path;

/// A page of the documentation.
pub fn page(cloud: Cloud) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/clouds/{}.md", cloud.as_str()));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The permissions of the role that the page has ready to paste.
pub fn documented(cloud: Cloud) -> Vec<String> {
    let page = page(cloud);
    let (_, rest) = page.split_once("<!-- role -->").expect("a role");
    let (block, _) = rest.split_once("<!-- end of role -->").expect("the end of the role");
    let prefix = match cloud {
        Cloud::Gcp => "compute.",
        Cloud::Aws => "ec2:",
        Cloud::Azure => "Microsoft.",
    };
    let words = block.split(|c: char| c.is_whitespace() || "\",'".contains(c));
    words.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

/// All refusals of everything that a provider does.
async fn tour(bed: &Bed) -> Vec<Error> {
    let mut said = refusals(bed.read().await);
    let first = bed.provider.read(&bed.ask(), within(20)).await.addresses;
    let token = |n: u8| match &first[&ip(n)] {
        AddressState::Free { token } => token.clone(),
        _ => "us-central1/PREMIUM".to_owned(),
    };
    said.extend(bed.provider.preflight(ip(1), &bed.node(1), within(20)).await.err());
    for (n, to) in [(1, 1), (2, 3)] {
        let key = format!("attach {n}");
        said.extend(bed.provider.attach(ip(n), &bed.node(to), &token(n), &call(&key)).await.err());
        let reading = bed.read().await;
        let held = match &reading.addresses[&ip(n)] {
            AddressState::Attached { token, .. } => token.clone(),
            _ => "eipassoc-00000000000000000".to_owned(),
        };
        said.extend(refusals(reading));
        let key = format!("detach {n}");
        said.extend(bed.provider.detach(ip(n), &bed.node(to), &held, &call(&key)).await.err());
        said.extend(bed.provider.restore(&bed.node(to), Some(&held), &call(&key)).await.err());
    }
    said.retain(|error| error.class == Class::Denied);
    said
}

fn refusals(reading: Reading) -> Vec<Error> {
    let addresses = reading.addresses.into_values().filter_map(|state| match state {
        AddressState::Unknown(error) => Some(error),
        _ => None,
    });
    let instances = reading.instances.into_values().filter_map(|state| match state {
        InstanceState::Unknown(error) => Some(error),
        _ => None,
    });
    addresses.chain(instances).collect()
}

async fn toured(cloud: Cloud, permissions: &[String]) -> Vec<Error> {
    let mut world = small_world(cloud);
    world.roles = role(cloud, permissions);
    world.instances[2].ephemeral = false;
    assert_eq!(world.instances[2].provider_id, node(cloud, 3));
    tour(&Bed::of(cloud, world).await).await
}

pub async fn the_documented_role_is_enough_and_nothing_in_it_too_much(cloud: Cloud) {
    let all = documented(cloud);
    assert!(all.len() >= 4, "{all:?}");
    assert_eq!(toured(cloud, &all).await, [], "it is enough");
    for withheld in &all {
        let rest: Vec<String> = all.iter().filter(|one| *one != withheld).cloned().collect();
        let denied = toured(cloud, &rest).await;
        assert!(!denied.is_empty(), "{withheld} is not needed");
        let named = denied.iter().any(|error| error.message.contains(withheld.as_str()));
        assert!(named, "{withheld} is not named: {denied:?}");
    }
}
