//! Azure: writes of interfaces.

use crate::kit::{Bed, azure_node, ip, reference, small_world};
use reqwest::Method;
use serde_json::{Value, json};
use sim::{AddressSpec, Change, Cloud};
use std::time::Duration;

const FREE: &str = "203.0.3.1";

// 1. Azure/azure-rest-api-specs issue 11948: a PUT replaces the whole resource.
#[tokio::test]
async fn what_a_put_leaves_out_is_reset() {
    let bed = Bed::small().await;
    let mut nic = bed.nic("node-1").await;
    assert_eq!(nic["properties"]["enableAcceleratedNetworking"], true);
    let properties = nic["properties"].as_object_mut().unwrap();
    properties.remove("enableAcceleratedNetworking");
    let config = &mut properties["ipConfigurations"][0]["properties"];
    config.as_object_mut().unwrap().remove("loadBalancerBackendAddressPools");
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    bed.azure_poll(&answer).await;
    let after = bed.nic("node-1").await;
    assert_eq!(after["properties"]["enableAcceleratedNetworking"], false);
    let config = &after["properties"]["ipConfigurations"][0]["properties"];
    assert_eq!(config["loadBalancerBackendAddressPools"], Value::Null);
    assert!(config["subnet"]["id"].is_string());
}

// 2. Network interfaces, Update Tags reference: PATCH changes tags and nothing else.
#[tokio::test]
async fn a_patch_changes_only_tags() {
    let bed = Bed::small().await;
    let path = "Microsoft.Network/networkInterfaces/node-1-nic";
    let body = json!({ "tags": { "owner": "us" }, "properties": { "enableAcceleratedNetworking": false } });
    let answer = bed.send(bed.azure(Method::PATCH, path).json(&body)).await;
    assert_eq!(answer.status, 200);
    let after = bed.nic("node-1").await;
    assert_eq!(after["tags"]["owner"], "us");
    assert_eq!(after["properties"]["enableAcceleratedNetworking"], true);
}

// 5. Traces in public issues: refused at once, naming the owner.
#[tokio::test]
async fn an_address_in_use_is_refused_at_once() {
    let bed = Bed::small().await;
    bed.azure_attach("node-1", FREE).await;
    let nic = bed.nic_with("node-2", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-2", &nic)).await;
    assert_eq!(answer.error(), (400, "PublicIPAddressInUse".into()));
    let message = answer.message();
    assert!(
        message.contains("networkInterfaces/node-2-nic/ipConfigurations/ipconfig1 is referencing public IP")
    );
    let owner = "already allocated to resource";
    assert!(
        message.contains(owner) && message.ends_with("node-1-nic/ipConfigurations/ipconfig1."),
        "{message}"
    );
}

// 10. kubernetes-sigs/cloud-provider-azure pull request 483, azure-rest-api-specs issue 6789. Whether
// interfaces honour it in reality is to be confirmed live.
#[tokio::test]
async fn if_match_refuses_a_stale_etag_and_a_header_called_etag_means_nothing() {
    let bed = Bed::small().await;
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let read = nic["etag"].as_str().unwrap().to_owned();
    bed.sim.change(&Change::TouchInterface { interface: "node-1-nic".into() }).unwrap();
    let stale = bed.put_nic("node-1", &nic).header("If-Match", &read);
    assert_eq!(bed.send(stale).await.error(), (412, "PreconditionFailed".into()));
    let ignored = bed.send(bed.put_nic("node-1", &nic).header("ETag", &read)).await;
    assert_eq!(ignored.status, 200);
    bed.azure_poll(&ignored).await;
    let fresh = bed.nic("node-1").await["etag"].as_str().unwrap().to_owned();
    let fresh = bed.put_nic("node-1", &nic).header("If-Match", fresh);
    assert_eq!(bed.send(fresh).await.status, 200);
}

// 10. Without the header the last write wins.
#[tokio::test]
async fn without_if_match_the_last_write_wins() {
    let bed = Bed::small().await;
    let before = bed.nic("node-1").await;
    bed.azure_attach("node-1", FREE).await;
    let answer = bed.send(bed.put_nic("node-1", &before)).await;
    assert_eq!(bed.azure_poll(&answer).await.json()["status"], "Succeeded");
    assert_eq!(bed.holder(FREE), None);
}

// 11. Resource Manager on optimistic concurrency: each write makes another ETag.
#[tokio::test]
async fn the_etag_changes_with_every_write_whoever_wrote() {
    let bed = Bed::small().await;
    let mut tags = vec![bed.nic("node-1").await["etag"].clone()];
    bed.azure_attach("node-1", FREE).await;
    tags.push(bed.nic("node-1").await["etag"].clone());
    bed.sim.change(&Change::TouchInterface { interface: "node-1-nic".into() }).unwrap();
    tags.push(bed.nic("node-1").await["etag"].clone());
    let path = "Microsoft.Network/networkInterfaces/node-1-nic";
    bed.send(bed.azure(Method::PATCH, path).json(&json!({ "tags": {} }))).await;
    tags.push(bed.nic("node-1").await["etag"].clone());
    tags.dedup();
    assert_eq!(tags.len(), 4);
    assert_eq!(bed.nic("node-1").await["etag"], tags[3], "reading changes nothing");
}

// 12. kubernetes-sigs/cloud-provider-azure writes interfaces without If-Match: what it read before is
// what it writes.
#[tokio::test]
async fn another_writer_can_erase_the_reference_with_what_it_read_before() {
    let bed = Bed::small().await;
    bed.sim.advance(Duration::from_mins(1));
    bed.azure_attach("node-1", FREE).await;
    bed.sim.advance(Duration::from_secs(5));
    let change = Change::OverwriteInterface { interface: "node-1-nic".into(), seconds_ago: 10.0 };
    bed.sim.change(&change).unwrap();
    assert_eq!(reference(&bed.nic("node-1").await), &Value::Null);
    assert_eq!(bed.holder(FREE), None);
}

// 19. pivotal-cf issue 41: SKUs on one interface must be the same.
#[tokio::test]
async fn an_address_of_another_sku_than_the_load_balancers_is_refused() {
    let mut basic = AddressSpec::free(Cloud::Azure, ip("203.0.9.9"));
    basic.tier = Some("Basic".into());
    let bed = Bed::start(small_world().reserved(basic)).await;
    let nic = bed.nic_with("node-1", Some("203.0.9.9")).await;
    let expected = "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed";
    assert_eq!(bed.send(bed.put_nic("node-1", &nic)).await.error(), (400, expected.into()));
}

// 20. Traces in MicrosoftDocs/azure-docs pull request 114616 and microsoft/CromwellOnAzure issue 231.
#[tokio::test]
async fn an_address_of_another_region_or_subscription_is_refused() {
    let mut abroad = AddressSpec::free(Cloud::Azure, ip("203.0.9.8"));
    abroad.region = Some("northeurope".into());
    let mut foreign = AddressSpec::free(Cloud::Azure, ip("203.0.9.9"));
    foreign.owner = Some("00000000-0000-0000-0000-000000000002/other".into());
    let bed = Bed::start(small_world().reserved(abroad).reserved(foreign)).await;
    let mut nic = bed.nic_with("node-1", Some("203.0.9.8")).await;
    assert_eq!(bed.send(bed.put_nic("node-1", &nic)).await.error(), (400, "InvalidResourceReference".into()));
    let foreign = "/subscriptions/00000000-0000-0000-0000-000000000002/resourceGroups/other/providers\
                   /Microsoft.Network/publicIPAddresses/pip-203-0-9-9";
    nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] = json!({ "id": foreign });
    assert_eq!(bed.send(bed.put_nic("node-1", &nic)).await.error(), (400, "InvalidResourceReference".into()));
}

// Moving takes two writes: the second interface cannot take what the first still has.
#[tokio::test]
async fn a_move_is_two_writes() {
    let bed = Bed::small().await;
    bed.azure_attach("node-1", FREE).await;
    let without = bed.nic_with("node-1", None).await;
    let answer = bed.send(bed.put_nic("node-1", &without)).await;
    assert_eq!(bed.azure_poll(&answer).await.json()["status"], "Succeeded");
    bed.azure_attach("node-2", FREE).await;
    assert_eq!(bed.holder(FREE), Some(azure_node("node-2")));
}

// cloud-provider-azure issue 4243: one address in two configurations of an interface.
#[tokio::test]
async fn one_address_in_two_configurations_is_refused() {
    let mut world = small_world();
    world.instances[4].private_addresses = 2;
    let bed = Bed::start(world).await;
    let mut nic = bed.nic_with("node-1", Some(FREE)).await;
    let id = nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"].clone();
    nic["properties"]["ipConfigurations"][1]["properties"]["publicIPAddress"] = id;
    let expected = (400, "PublicIPReferencedByMultipleIPConfigs".into());
    assert_eq!(bed.send(bed.put_nic("node-1", &nic)).await.error(), expected);
}

// Resource Manager: PUT makes what is not there, here an interface that belongs to no machine.
#[tokio::test]
async fn a_put_on_an_interface_that_is_gone_makes_a_new_one() {
    let bed = Bed::small().await;
    let nic = bed.nic("node-1").await;
    bed.sim.terminate_instance(&azure_node("node-1")).unwrap();
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(answer.status, 201);
    bed.azure_poll(&answer).await;
    assert_eq!(bed.nic("node-1").await["properties"]["virtualMachine"], Value::Null);
    let conditional = bed.put_nic("node-9", &nic).header("If-Match", nic["etag"].as_str().unwrap());
    assert_eq!(bed.send(conditional).await.error(), (412, "PreconditionFailed".into()));
}

// 12. The old copy cannot take back what another interface has by now: that would be a conflict.
#[tokio::test]
async fn another_writer_with_an_old_copy_cannot_take_an_address_back() {
    let bed = Bed::small().await;
    bed.azure_attach("node-1", FREE).await;
    bed.sim.advance(Duration::from_mins(1));
    bed.sim.attach(ip(FREE), &azure_node("node-2")).unwrap();
    let change = Change::OverwriteInterface { interface: "node-1-nic".into(), seconds_ago: 10.0 };
    bed.sim.change(&change).unwrap();
    assert_eq!(bed.holder(FREE), Some(azure_node("node-2")));
    assert_eq!(reference(&bed.nic("node-1").await), &Value::Null);
}
