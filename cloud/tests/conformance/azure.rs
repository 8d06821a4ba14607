//! What only Azure does.

use crate::bed::{Bed, SUBSCRIPTION, call, error, in_sim, ip, small_world, within};
use cloud::{AddressState, Ask, Class, Cloud, InstanceState, Refusal};
use serde_json::Value;
use sim::{AddressSpec, Busy, Change, Fault, WhileUpdating};
use std::collections::BTreeSet;

const AZURE: Cloud = Cloud::Azure;

async fn nic(bed: &Bed, n: usize) -> Value {
    let group = format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/dev-nodes/providers");
    let url = format!(
        "{}{group}/Microsoft.Network/networkInterfaces/node-{n}-nic?api-version=2024-05-01",
        bed.sim.azure_url()
    );
    serde_json::from_str(&reqwest::get(url).await.unwrap().text().await.unwrap()).unwrap()
}

/// Without what changes with every write.
fn lasting(mut nic: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("etag");
                map.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut nic);
    nic
}

pub async fn an_interface_keeps_everything_through_attach_and_detach() {
    let bed = Bed::new(AZURE).await;
    let before = lasting(nic(&bed, 1).await);
    assert_eq!(before["properties"]["enableAcceleratedNetworking"], true);
    bed.attach(1, 1, "k").await.unwrap();
    let mut with = lasting(nic(&bed, 1).await);
    let config = &mut with["properties"]["ipConfigurations"][0]["properties"];
    assert!(config.as_object_mut().unwrap().remove("publicIPAddress").is_some());
    assert_eq!(with, before);
    let token = bed.attached_token(1).await;
    bed.detach(1, 1, &token, "d").await.unwrap();
    assert_eq!(lasting(nic(&bed, 1).await), before);
}

pub async fn what_was_read_is_what_is_written_but_for_one_reference() {
    let bed = Bed::new(AZURE).await;
    bed.sim.record();
    bed.attach(1, 1, "k").await.unwrap();
    let exchanges = bed.sim.exchanges();
    let read = exchanges.iter().find(|exchange| exchange.action == "networkInterfaces.get").unwrap();
    let written = exchanges.iter().find(|exchange| exchange.method == "PUT").unwrap();
    let reference = written.request.split("\"publicIPAddress\":").nth(1).unwrap().split_once('}').unwrap().0;
    let inserted = format!("\"publicIPAddress\":{reference}}},");
    assert_eq!(written.request.replace(&inserted, ""), read.reply, "byte for byte");
}

pub async fn an_interface_that_somebody_wrote_is_read_again() {
    let bed = Bed::new(AZURE).await;
    let free = bed.free_token(1).await;
    let touch = || Change::TouchInterface { interface: "node-1-nic".to_owned() };
    bed.once("networkInterfaces.createOrUpdate", Fault::Outside { change: touch(), after: false });
    let refused = bed.provider.attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
    assert_eq!(refused.class, Class::Conflict, "{refused}");
    assert_eq!(bed.holder(1).await, None);
    bed.attach(1, 1, "k").await.unwrap();
    let token = bed.attached_token(1).await;
    bed.sim.change(&touch()).unwrap();
    let stale = bed.detach(1, 1, &token, "d").await.unwrap_err();
    assert_eq!(stale.class, Class::Conflict, "{stale}");
    bed.assert_on(1, 1).await;
}

pub async fn a_429_that_is_a_lock_closes_nothing() {
    let bed = Bed::new(AZURE).await;
    bed.once("networkInterfaces.createOrUpdate", error("RetryableErrorDueToAnotherOperation"));
    let busy = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(busy.class, Class::Conflict, "{busy}");
    assert!(busy.retry_after.is_some(), "{busy:?}");
    assert!(bed.clouds.levels().iter().all(|(_, level)| *level > 0.9), "{:?}", bed.clouds.levels());
    bed.attach(1, 1, "k").await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn busy_late_and_superseded_writes_are_conflicts() {
    for busy in [Busy::FailLate, Busy::Refuse] {
        let bed = Bed::new(AZURE).await;
        bed.sim.set(|settings| {
            settings.azure.busy = busy;
            settings.azure.operation = sim::Pace::Seconds(1.0);
        });
        let (one, two) = (bed.free_token(1).await, bed.free_token(2).await);
        let (node, other) = (bed.node(1), bed.restarted());
        let (call_1, call_2) = (call("one"), call("two"));
        let (first, second) = tokio::join!(
            bed.provider.attach(ip(1), &node, &one, &call_1),
            other.attach(ip(2), &node, &two, &call_2),
        );
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        let loser = first.err().or(second.err()).unwrap();
        assert_eq!(loser.class, Class::Conflict, "{loser}");
    }
}

pub async fn while_it_is_written_nothing_is_certain() {
    for shown in [WhileUpdating::Old, WhileUpdating::New] {
        let bed = Bed::new(AZURE).await;
        bed.sim.set(|settings| {
            settings.azure.while_updating = shown;
            settings.azure.operation = sim::Pace::Seconds(3600.0);
        });
        let free = bed.free_token(1).await;
        let may_write = || true;
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
        let short = cloud::Call { deadline, key: "k", may_write: &may_write };
        let first = bed.provider.attach(ip(1), &bed.node(1), &free, &short).await.unwrap_err();
        assert_eq!(first.class, Class::Transient, "{first}");
        let again = bed.restarted().attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap_err();
        assert_eq!(again.class, Class::Conflict, "not done and not refused yet: {again}");
        bed.sim.advance(std::time::Duration::from_hours(2));
        bed.restarted().attach(ip(1), &bed.node(1), &free, &call("k")).await.unwrap();
        bed.assert_on(1, 1).await;
    }
}

pub async fn an_operation_that_is_forgotten_is_looked_up_in_the_interface() {
    let bed = Bed::new(AZURE).await;
    bed.sim.set(|settings| settings.azure.operation = sim::Pace::Seconds(0.0));
    bed.once("operations.get", error("NotFound"));
    bed.attach(1, 1, "k").await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn an_interface_whose_write_failed_is_repaired() {
    let bed = Bed::new(AZURE).await;
    let failure = Fault::LateFailure { code: "InternalServerError".to_owned(), message: String::new() };
    bed.once("networkInterfaces.createOrUpdate", failure);
    let failed = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(failed.class, Class::Transient, "{failed}");
    bed.attach(1, 1, "k").await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn uniform_scale_sets_are_unsupported_without_a_call() {
    let bed = Bed::new(AZURE).await;
    let id = format!(
        "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/dev-nodes/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
    );
    let ask = Ask { addresses: BTreeSet::new(), instances: BTreeSet::from([id.clone()]) };
    let reading = bed.provider.read(&ask, within(20)).await;
    let InstanceState::Running { refuses: Some(Refusal::Unsupported(why)) } = &reading.instances[&id] else {
        panic!("{reading:?}")
    };
    assert!(why.contains("Flexible"), "{why}");
    let refused = bed.provider.preflight(ip(1), &id, within(20)).await.unwrap_err();
    assert_eq!(refused.class, Class::Unsupported, "{refused}");
    let refused = bed.provider.attach(ip(1), &id, "x", &call("k")).await.unwrap_err();
    assert_eq!(refused.class, Class::Unsupported, "{refused}");
    assert_eq!(bed.calls(0).len(), 0);
}

pub async fn an_interface_left_behind_holds_its_address() {
    let bed = Bed::new(AZURE).await;
    bed.attach(1, 1, "k").await.unwrap();
    let instance = bed.node(1);
    bed.sim.change(&Change::TerminateInstance { instance, keep_interfaces: true }).unwrap();
    let AddressState::HeldByOther { holder } = bed.state(1).await else { panic!("not held") };
    assert!(holder.contains("node-1-nic"), "{holder}");
}

pub async fn basic_addresses_are_refused_behind_a_load_balancer() {
    let mut world = small_world(AZURE);
    world.addresses.clear();
    let basic = AddressSpec { tier: Some("Basic".to_owned()), ..AddressSpec::free(in_sim(AZURE), ip(1)) };
    let bed = Bed::of(AZURE, world.reserved(basic)).await;
    let refused = bed.provider.preflight(ip(1), &bed.node(1), within(20)).await.unwrap_err();
    assert_eq!(refused.class, Class::Permanent, "{refused}");
    let refused = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(refused.class, Class::Permanent, "{refused}");
}

pub async fn machines_that_do_not_name_their_primary_interface() {
    let mut world = small_world(AZURE);
    world.instances[0].interfaces = 2;
    world.settings.azure.primary_flag = false;
    let bed = Bed::of(AZURE, world).await;
    bed.attach(1, 1, "k").await.unwrap();
    bed.assert_on(1, 1).await;
}

pub async fn locked_node_groups_are_told_apart() {
    let bed = Bed::new(AZURE).await;
    bed.sim.set(|settings| settings.azure.deny_writes = true);
    let denied = bed.attach(1, 1, "k").await.unwrap_err();
    assert_eq!(denied.class, Class::Denied, "{denied}");
    assert!(denied.message.contains("lockdown"), "{denied}");
}

pub async fn ipv6_goes_to_the_ipv6_configuration() {
    let bed = Bed::new(AZURE).await;
    bed.sim.set(|settings| settings.azure.operation = sim::Pace::Seconds(0.0));
    let v6 = "2001:db8::1".parse().unwrap();
    bed.sim.add_address(in_sim(AZURE), v6).unwrap();
    let refused = bed.provider.preflight(v6, &bed.node(1), within(20)).await.unwrap_err();
    assert_eq!(refused.class, Class::Unsupported, "no configuration for it yet: {refused}");
    // A person makes the interface dual-stack.
    let mut both = nic(&bed, 1).await;
    let configs = both["properties"]["ipConfigurations"].as_array_mut().unwrap();
    let mut second = configs[0].clone();
    second["name"] = "ipv6".into();
    second["properties"]["primary"] = false.into();
    second["properties"]["privateIPAddressVersion"] = "IPv6".into();
    configs.push(second);
    let url = format!("{}{}?api-version=2024-05-01", bed.sim.azure_url(), both["id"].as_str().unwrap());
    reqwest::Client::new().put(url).json(&both).send().await.unwrap().error_for_status().unwrap();
    bed.provider.preflight(v6, &bed.node(1), within(20)).await.unwrap();
    let ask = Ask { addresses: BTreeSet::from([v6]), instances: BTreeSet::from([bed.node(1)]) };
    let free = bed.provider.read(&ask, within(20)).await;
    let AddressState::Free { token } = &free.addresses[&v6] else { panic!("{free:?}") };
    bed.provider.attach(v6, &bed.node(1), token, &call("k")).await.unwrap();
    let configs = nic(&bed, 1).await["properties"]["ipConfigurations"].clone();
    assert!(configs[0]["properties"]["publicIPAddress"].is_null(), "{configs}");
    assert!(configs[1]["properties"]["publicIPAddress"]["id"].is_string(), "{configs}");
    let held = bed.provider.read(&ask, within(20)).await;
    let AddressState::Attached { token, .. } = &held.addresses[&v6] else { panic!("{held:?}") };
    bed.provider.detach(v6, &bed.node(1), token, &call("d")).await.unwrap();
    assert!(bed.sim.snapshot().holds.is_empty());
}
