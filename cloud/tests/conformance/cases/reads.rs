//! What is read is what is so, and what cannot be read is Unknown.

use crate::bed::{Bed, SUBSCRIPTION, error, in_sim, ip, node, settings, small_world, within};
use cloud::{AddressState, Ask, Class, Cloud, Clouds, Connect as _, InstanceState, Refusal, merge};
use sim::{AddressSpec, Change, Fault, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub async fn free_attached_and_unknown_addresses(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach_by_hand(1, 1).await;
    let mut ask = bed.ask();
    ask.addresses.insert(ip(99));
    let reading = bed.provider.read(&ask, within(20)).await;
    assert!(
        matches!(&reading.addresses[&ip(1)], AddressState::Attached { provider_id, .. } if *provider_id == bed.node(1))
    );
    assert!(matches!(reading.addresses[&ip(2)], AddressState::Free { .. }));
    assert_eq!(reading.addresses[&ip(99)], AddressState::NotFound);
    assert_eq!(reading.instances[&bed.node(1)], InstanceState::Running { refuses: None });
}

pub async fn a_holder_that_was_not_asked_for_is_named_all_the_same(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach_by_hand(1, 3).await;
    let ask = Ask { addresses: BTreeSet::from([ip(1)]), instances: BTreeSet::new() };
    let reading = bed.provider.read(&ask, within(20)).await;
    let AddressState::Attached { provider_id, .. } = &reading.addresses[&ip(1)] else {
        panic!("{reading:?}")
    };
    let key = |id: &str| cloud::ProviderId::parse(id).map(|id| id.key());
    assert_eq!(key(provider_id), key(&bed.node(3)));
}

pub async fn a_holder_is_named_as_the_node_is(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.attach_by_hand(1, 1).await;
    let form = match cloud {
        Cloud::Gcp => bed.node(1), // there is only one
        Cloud::Aws => bed.node(1).rsplit('/').next().unwrap().to_owned(),
        Cloud::Azure => bed.node(1).replace("dev-nodes", "DEV-Nodes"),
    };
    let node = Ask { addresses: BTreeSet::from([ip(1)]), instances: BTreeSet::from([form.clone()]) };
    let address = Ask { addresses: BTreeSet::from([ip(1)]), instances: BTreeSet::new() };
    // With the node, and later without it, as after a write.
    for ask in [node, address] {
        let reading = bed.provider.read(&ask, within(20)).await;
        let AddressState::Attached { provider_id, .. } = &reading.addresses[&ip(1)] else {
            panic!("{reading:?}")
        };
        assert_eq!(*provider_id, form);
    }
}

pub async fn everything_that_was_asked_for_has_an_answer(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let odd = ["", "k3s://node", "gce://a/b", "i-", "azure:///x", "aws:///eu-west-1a/fargate-ip-10-0-0-1"];
    let addresses = BTreeSet::from([ip(1), "2001:db8::1".parse().unwrap()]);
    let ask = Ask { addresses, instances: odd.iter().map(|&id| id.to_owned()).collect() };
    let reading = bed.provider.read(&ask, within(20)).await;
    assert_eq!(reading.addresses.keys().collect::<Vec<_>>(), ask.addresses.iter().collect::<Vec<_>>());
    assert_eq!(reading.instances.keys().collect::<Vec<_>>(), ask.instances.iter().collect::<Vec<_>>());
    let nothing = bed.provider.read(&Ask::default(), within(20)).await;
    assert_eq!((nothing.addresses.len(), nothing.instances.len()), (0, 0));
}

pub async fn one_that_something_else_has_is_held_by_other(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let resource = bed.words().other_holder.to_owned();
    bed.sim.change(&Change::Hold { address: ip(1), resource: resource.clone() }).unwrap();
    let AddressState::HeldByOther { holder } = bed.state(1).await else { panic!("not held by other") };
    if cloud != Cloud::Aws {
        assert!(holder.contains(&resource), "{holder}");
    }
}

pub async fn instances_stop_end_and_are_never_there(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.sim.stop_instance(&bed.node(1)).unwrap();
    bed.sim.terminate_instance(&bed.node(2)).unwrap();
    let mut ask = bed.ask();
    let never = node(cloud, 9);
    ask.instances.insert(never.clone());
    let instances = bed.provider.read(&ask, within(20)).await.instances;
    assert_eq!(instances[&bed.node(1)], InstanceState::Stopped);
    // EC2 goes on describing what was terminated.
    let gone = if cloud == Cloud::Aws { InstanceState::Stopped } else { InstanceState::NotFound };
    assert_eq!(instances[&bed.node(2)], gone);
    assert_eq!(instances[&bed.node(3)], InstanceState::Running { refuses: None });
    assert_eq!(instances[&never], InstanceState::NotFound);
}

pub async fn an_instance_with_a_static_address_of_somebody_elses_refuses(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.sim.add_address(in_sim(cloud), ip(50)).unwrap();
    bed.sim.attach(ip(50), &bed.node(1)).unwrap();
    let since = bed.last_event();
    let foreign = Some(Refusal::HoldsForeignAddress(ip(50)));
    assert_eq!(bed.instance(1).await, InstanceState::Running { refuses: foreign });
    assert_eq!(bed.instance(2).await, InstanceState::Running { refuses: None });
    let refused = bed.provider.preflight(ip(1), &bed.node(1), within(20)).await.unwrap_err();
    assert_eq!(refused.class, Class::Permanent, "{refused}");
    assert!(refused.message.contains("another"), "{refused}");
    let conflict = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(conflict.class, Class::Conflict, "{conflict}");
    assert_eq!(bed.writes(since), 0, "nobody is robbed, nothing was sent");
}

pub async fn an_error_is_unknown_and_never_free(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.sim.attach(ip(1), &bed.node(1)).unwrap();
    let code = match cloud {
        Cloud::Gcp => "backendError",
        Cloud::Aws => "InternalError",
        Cloud::Azure => "InternalServerError",
    };
    bed.always(bed.words().list, error(code));
    let reading = bed.read().await;
    for (ip, state) in &reading.addresses {
        let AddressState::Unknown(error) = state else { panic!("{ip}: {state:?}") };
        assert_eq!(error.class, Class::Transient, "{error}");
    }
    bed.sim.clear_faults();
    assert!(matches!(bed.state(1).await, AddressState::Attached { .. }), "and it recovers");
}

/// So many addresses that every cloud needs several pages or calls, in two regions.
fn many(cloud: Cloud) -> (sim::World, BTreeMap<IpAddr, usize>) {
    let mut world = small_world(cloud);
    world.addresses.clear();
    let mut expected = BTreeMap::new();
    let other = match cloud {
        Cloud::Gcp => "europe-west4",
        Cloud::Aws => "us-east-1",
        Cloud::Azure => "northeurope",
    };
    for n in 0_u16..620 {
        let [high, low] = n.to_be_bytes();
        let address = IpAddr::from([198, 18, high, low]);
        let mut spec = AddressSpec::free(in_sim(cloud), address);
        spec.region = (n % 2 == 1).then(|| other.to_owned());
        if n < 6 && n % 2 == 0 {
            let node = usize::from(n / 2) + 1;
            spec.held_by = Some(crate::bed::node(cloud, node));
            expected.insert(address, node);
        }
        world = world.reserved(spec);
    }
    (world, expected)
}

pub async fn more_than_a_page_in_two_regions(cloud: Cloud) {
    let (world, attached) = many(cloud);
    let all: BTreeSet<IpAddr> = world.addresses.iter().map(|address| address.address).collect();
    let bed = Bed::of(cloud, world).await;
    let nodes: Vec<String> = (1..=3).map(|n| bed.node(n)).collect();
    let ids: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let region = (cloud == Cloud::Aws).then_some("us-east-1");
    let accounts = bed.clouds.accounts(cloud, &ids, region);
    assert_eq!(accounts.len(), if cloud == Cloud::Aws { 2 } else { 1 }, "regions of AWS are accounts");
    let ask = Ask { addresses: all.clone(), instances: nodes.iter().cloned().collect() };
    let mut states: BTreeMap<IpAddr, AddressState> = BTreeMap::new();
    for account in accounts {
        let read = bed.clouds.open(&account).unwrap().read(&ask, within(30)).await;
        for (ip, state) in read.addresses {
            let merged = match states.remove(&ip) {
                Some(known) => merge(known, state),
                None => state,
            };
            states.insert(ip, merged);
        }
    }
    for ip in &all {
        match (attached.get(ip), &states[ip]) {
            (Some(n), AddressState::Attached { provider_id, .. }) => assert_eq!(*provider_id, bed.node(*n)),
            (None, AddressState::Free { .. }) => {}
            (expected, found) => panic!("{ip}: {expected:?} and {found:?}"),
        }
    }
    let calls = bed.calls(0).len();
    let fewest = match cloud {
        Cloud::Gcp => 3,   // two pages of addresses, one list of instances
        Cloud::Aws => 11,  // two regions with 620 in fours, and instances; holders that only one region knows
        Cloud::Azure => 9, // seven pages of addresses, one of interfaces, one of machines
    };
    println!("{} audit of 620 addresses and 3 instances: {calls} calls", cloud.as_str());
    assert!(calls <= fewest, "{calls} calls: {:?}", bed.meter.get());
}

pub async fn a_list_that_breaks_off_is_unknown(cloud: Cloud) {
    let (world, _) = many(cloud);
    let all: BTreeSet<IpAddr> = world.addresses.iter().map(|address| address.address).collect();
    let bed = Bed::of(cloud, world).await;
    bed.sim.fault(Rule::always(bed.on(bed.words().list), Fault::Reset).after(1));
    let ask = Ask { addresses: all, instances: BTreeSet::new() };
    let reading = bed.provider.read(&ask, within(20)).await;
    assert!(reading.addresses.values().all(|state| matches!(state, AddressState::Unknown(_))));
}

pub async fn a_list_that_leaves_things_out_takes_nothing_away(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    bed.sim.attach(ip(1), &bed.node(1)).unwrap();
    // What each cloud can leave out: GCP says so, and Azure's references show it.
    let (action, missing) = match cloud {
        Cloud::Gcp => ("addresses.aggregatedList", "us-central1"),
        Cloud::Aws => ("DescribeInstances", "i-00000000000000001"),
        Cloud::Azure => ("networkInterfaces.list", "node-1-nic"),
    };
    bed.once(action, Fault::PartialList { missing: vec![missing.to_owned()] });
    let state = bed.state(1).await;
    match cloud {
        Cloud::Gcp => assert!(matches!(state, AddressState::Unknown(_)), "{state:?}"),
        _ => assert!(matches!(state, AddressState::Attached { .. }), "{state:?}"),
    }
    let list = match cloud {
        Cloud::Gcp => "instances.aggregatedList",
        Cloud::Aws => return,
        Cloud::Azure => "virtualMachines.list",
    };
    bed.always(list, Fault::PartialList { missing: vec!["node-1".to_owned()] });
    assert_eq!(bed.instance(1).await, InstanceState::Running { refuses: None }, "asked for by name");
}

pub async fn an_endpoint_that_is_down_is_unknown(cloud: Cloud) {
    let bed = Bed::new(cloud).await;
    let mut settings = settings(&bed.sim);
    let nobody = Some("http://127.0.0.1:9".to_owned());
    settings.gcp.endpoint.clone_from(&nobody);
    settings.aws.endpoint.clone_from(&nobody);
    settings.azure.endpoint = nobody;
    let clouds = Clouds::new(settings, Arc::new(())).unwrap();
    let provider = clouds.open(&clouds.account_of(&bed.node(1)).unwrap()).unwrap();
    let reading = provider.read(&bed.ask(), within(20)).await;
    for state in reading.addresses.values() {
        let AddressState::Unknown(error) = state else { panic!("{state:?}") };
        assert_eq!(error.class, Class::Transient, "{error}");
    }
    for state in reading.instances.values() {
        assert!(matches!(state, InstanceState::Unknown(_)), "{state:?}");
    }
    let error = provider
        .attach(ip(1), &bed.node(1), "us-central1/PREMIUM", &crate::bed::call("k"))
        .await
        .unwrap_err();
    assert_eq!(error.class, Class::Transient, "{error}");
}

pub async fn no_credentials_are_told_with_what_to_do(cloud: Cloud) {
    // Nobody is logged in on this machine, and the places where clouds would answer do not.
    let bed = Bed::new(cloud).await;
    let mut settings = settings(&bed.sim);
    settings.gcp.anonymous = false;
    settings.azure.anonymous = false;
    settings.aws.keys = None;
    let clouds = Clouds::new(settings, Arc::new(())).unwrap();
    let provider = clouds.open(&clouds.account_of(&bed.node(1)).unwrap()).unwrap();
    let reading = provider.read(&bed.ask(), within(5)).await;
    for state in reading.addresses.values() {
        let AddressState::Unknown(error) = state else { panic!("{state:?}") };
        assert!(matches!(error.class, Class::Denied | Class::Transient), "{error}");
        assert!(!error.message.contains(SUBSCRIPTION), "{error}");
    }
    assert_eq!(bed.calls(0).len(), 0, "nothing was sent without credentials");
}
