//! What only AWS does.

use crate::bed::{Bed, call, ip, small_world, within};
use cloud::{AddressState, Class, Cloud, InstanceState};
use sim::{Change, Repeated, Unassociated};
use std::time::Duration;

const AWS: Cloud = Cloud::Aws;

pub async fn no_call_of_ours_ever_takes_an_address_by_force() {
    let bed = Bed::new(AWS).await;
    bed.sim.record();
    let free = bed.free_token(1).await;
    bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
    let _ = bed.provider.attach(ip(1), &bed.node(2), &free, &call("k2")).await;
    let sent: Vec<String> = bed.sim.exchanges().into_iter().map(|exchange| exchange.request).collect();
    let associations: Vec<&String> =
        sent.iter().filter(|body| body.contains("Action=AssociateAddress")).collect();
    assert_eq!(associations.len(), 2);
    for body in associations {
        assert!(body.contains("AllowReassociation=false"), "{body}");
        assert!(body.contains("NetworkInterfaceId=eni-") && body.contains("PrivateIpAddress="), "{body}");
        assert!(!body.contains("&InstanceId="), "{body}");
    }
}

pub async fn nodes_with_several_interfaces_take_it_on_the_first() {
    let mut world = small_world(AWS);
    world.instances[0].interfaces = 3;
    world.instances[0].private_addresses = 4;
    let bed = Bed::of(AWS, world).await;
    // The order of interfaces is another one with every call.
    for round in 0..4 {
        bed.attach(1, 1, &format!("k{round}")).await.unwrap();
        let hold = bed.sim.snapshot().holds[&ip(1)].clone();
        assert_eq!(hold.holder, bed.node(1));
        let token = bed.attached_token(1).await;
        bed.detach(1, 1, &token, &format!("d{round}")).await.unwrap();
    }
    let interfaces: std::collections::BTreeSet<_> = bed
        .sim
        .events(0)
        .iter()
        .flat_map(|event| event.changes.clone())
        .filter_map(|change| change.after?.interface)
        .collect();
    assert_eq!(interfaces.len(), 1, "always the same one: {interfaces:?}");
}

pub async fn its_own_address_is_no_address_of_somebody_elses() {
    let bed = Bed::new(AWS).await;
    assert_eq!(bed.instance(1).await, InstanceState::Running { refuses: None });
    bed.attach(1, 1, "k").await.unwrap();
    assert_eq!(bed.instance(1).await, InstanceState::Running { refuses: None }, "one of the list neither");
}

pub async fn either_answer_to_a_repeated_association_will_do() {
    for answer in [Repeated::Refused, Repeated::SameAssociation] {
        let bed = Bed::new(AWS).await;
        bed.sim.set(|settings| settings.aws.repeated_associate = answer);
        let free = bed.free_token(1).await;
        bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
        bed.sim.advance(Duration::from_secs(30));
        // The instance is read as it was before.
        bed.once("DescribeInstances", sim::Fault::Lag { seconds: 40.0, jitter: false });
        bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
        bed.assert_on(1, 1).await;
    }
}

pub async fn empty_fields_are_absent_fields() {
    let bed = Bed::new(AWS).await;
    bed.sim.set(|settings| settings.aws.unassociated = Unassociated::Empty);
    assert!(matches!(bed.state(1).await, AddressState::Free { .. }));
    bed.attach(1, 1, "k").await.unwrap();
    assert!(matches!(bed.state(1).await, AddressState::Attached { .. }));
}

pub async fn a_pending_instance_is_tried_again_later() {
    let bed = Bed::new(AWS).await;
    let state = sim::InstanceState::Pending;
    bed.sim.change(&Change::SetState { instance: bed.node(1), state }).unwrap();
    assert_eq!(bed.instance(1).await, InstanceState::Running { refuses: None });
    let early = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(early.class, Class::Conflict, "{early}");
}

pub async fn a_network_without_a_gateway_is_for_a_person_to_mend() {
    let mut world = small_world(AWS);
    world.instances[0].no_gateway = true;
    let bed = Bed::of(AWS, world).await;
    let error = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(error.class, Class::Permanent, "{error}");
    assert!(error.message.contains("internet gateway"), "{error}");
}

pub async fn refusals_do_not_drag_their_blob_along() {
    let bed = Bed::new(AWS).await;
    bed.sim.set_roles(crate::bed::role(AWS, &["ec2:Describe*".to_owned()]));
    let denied = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(denied.class, Class::Denied);
    assert!(denied.message.contains("ec2:AssociateAddress") && denied.message.len() < 600, "{denied}");
}

pub async fn provider_ids_without_a_zone_are_answered_as_they_were_asked() {
    let bed = Bed::new(AWS).await;
    bed.sim.attach(ip(1), &bed.node(1)).unwrap();
    let mut ask = bed.ask();
    ask.instances = ["i-00000000000000001".to_owned()].into();
    let reading = bed.provider.read(&ask, within(20)).await;
    assert_eq!(reading.instances["i-00000000000000001"], InstanceState::Running { refuses: None });
    let AddressState::Attached { provider_id, .. } = &reading.addresses[&ip(1)] else {
        panic!("{reading:?}")
    };
    assert_eq!(provider_id, "i-00000000000000001");
}

pub async fn reads_that_lag_and_disagree_settle() {
    let bed = Bed::new(AWS).await;
    let free = bed.free_token(1).await;
    bed.sim.set(|settings| settings.aws.read_lag = 10.0);
    bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
    for _ in 0..5 {
        let _ = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await;
        let _ = bed.provider.attach(ip(1), &bed.node(2), &free, &call("k2")).await;
        bed.assert_on(1, 1).await;
    }
    bed.sim.advance(Duration::from_mins(1));
    assert!(matches!(bed.state(1).await, AddressState::Attached { .. }));
}
