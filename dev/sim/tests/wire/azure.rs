//! Azure's Resource Manager.

use crate::kit::{API, Bed, GROUP, azure_node, ip, reference, small_world};
use reqwest::Method;
use serde_json::{Value, json};
use sim::{
    AddressSpec, Bucket, Buckets, Busy, Change, Cloud, Fault, Found, InstanceSpec, Limits, On, Pace, Roles,
};
use sim::{Rule, WhileUpdating};
use std::time::Duration;

const FREE: &str = "203.0.3.1";
const OTHER: &str = "203.0.3.2";
const PUT: &str = "networkInterfaces.createOrUpdate";

fn put_action() -> On {
    On::action(Cloud::Azure, PUT)
}

fn slow(bed: &Bed) {
    bed.sim
        .set(|settings| settings.azure.operation = Pace::Seconds(10.0));
}

// 1. Azure/azure-rest-api-specs issue 11948: a PUT replaces the whole resource.
#[tokio::test]
async fn what_a_put_leaves_out_is_reset() {
    let bed = Bed::small().await;
    let mut nic = bed.nic("node-1").await;
    assert_eq!(nic["properties"]["enableAcceleratedNetworking"], true);
    let properties = nic["properties"].as_object_mut().unwrap();
    properties.remove("enableAcceleratedNetworking");
    let config = &mut properties["ipConfigurations"][0]["properties"];
    config
        .as_object_mut()
        .unwrap()
        .remove("loadBalancerBackendAddressPools");
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

// 3. Azure/azure-rest-api-specs issue 1220: 200 with Azure-AsyncOperation, never 202.
#[tokio::test]
async fn a_put_answers_200_and_names_an_operation_to_ask_for() {
    let bed = Bed::small().await;
    bed.sim.set(|settings| settings.azure.operation = Pace::Polls(3));
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!((answer.status, answer.header("retry-after")), (200, Some("1")));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let polled = bed.azure_poll(&answer).await;
        let status = polled.json()["status"].as_str().unwrap().to_owned();
        assert_eq!(polled.header("retry-after").is_some(), status == "InProgress");
        seen.push(status);
    }
    assert_eq!(seen, ["InProgress", "InProgress", "Succeeded"]);
    assert_eq!(bed.holder(FREE), Some(azure_node("node-1")));
}

// 4. Resource Manager on asynchronous operations: provisioningState is Updating meanwhile.
#[tokio::test]
async fn during_an_operation_the_interface_is_updating_and_shows_old_or_new() {
    let bed = Bed::small().await;
    slow(&bed);
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    bed.send(bed.put_nic("node-1", &nic)).await;
    for (setting, shown) in [(WhileUpdating::Old, false), (WhileUpdating::New, true)] {
        bed.sim.set(|settings| settings.azure.while_updating = setting);
        let seen = bed.nic("node-1").await;
        assert_eq!(seen["properties"]["provisioningState"], "Updating");
        assert_eq!(reference(&seen).is_string(), shown);
        assert_eq!(bed.pip(FREE).await["properties"]["ipConfiguration"], Value::Null);
    }
    bed.sim.advance(Duration::from_secs(10));
    assert_eq!(
        bed.nic("node-1").await["properties"]["provisioningState"],
        "Succeeded"
    );
    let holder = bed.pip(FREE).await["properties"]["ipConfiguration"]["id"].clone();
    assert!(
        holder
            .as_str()
            .unwrap()
            .ends_with("/networkInterfaces/node-1-nic/ipConfigurations/ipconfig1")
    );
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

// 6. The same code was seen as the end of an operation.
#[tokio::test]
async fn an_address_in_use_can_be_found_out_late() {
    let bed = Bed::small().await;
    bed.sim.set(|settings| settings.azure.in_use_found = Found::Late);
    bed.azure_attach("node-1", FREE).await;
    let nic = bed.nic_with("node-2", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-2", &nic)).await;
    assert_eq!(answer.status, 200);
    let ended = bed.azure_poll(&answer).await.json();
    assert_eq!(ended["status"], "Failed");
    assert_eq!(ended["error"]["code"], "PublicIPAddressInUse");
    assert_eq!(bed.holder(FREE), Some(azure_node("node-1")));
}

// 6. The same by a race: free when it was accepted, taken when it was done.
#[tokio::test]
async fn an_address_taken_between_accept_and_effect_fails_the_operation() {
    let bed = Bed::small().await;
    let nic = bed.nic_with("node-2", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-2", &nic)).await;
    bed.sim.attach(ip(FREE), &azure_node("node-1")).unwrap();
    assert_eq!(
        bed.azure_poll(&answer).await.json()["error"]["code"],
        "PublicIPAddressInUse"
    );
    assert_eq!(bed.holder(FREE), Some(azure_node("node-1")));
}

// 7. Network error codes page: 429 that is a lock, not throttling.
#[tokio::test]
async fn a_write_of_a_busy_interface_or_address_is_refused_with_429() {
    let bed = Bed::small().await;
    slow(&bed);
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    bed.send(bed.put_nic("node-1", &nic)).await;
    let expected = (429, "RetryableErrorDueToAnotherOperation".to_owned());
    assert_eq!(
        bed.send(bed.put_nic("node-1", &nic)).await.error(),
        expected,
        "the interface is busy"
    );
    let other = bed.nic_with("node-2", Some(FREE)).await;
    assert_eq!(
        bed.send(bed.put_nic("node-2", &other)).await.error(),
        expected,
        "the address is busy"
    );
    let unrelated = bed.nic_with("node-2", Some(OTHER)).await;
    assert_eq!(bed.send(bed.put_nic("node-2", &unrelated)).await.status, 200);
}

// 8. Many public traces: the second write is accepted and its operation fails.
#[tokio::test]
async fn a_write_of_a_busy_interface_can_fail_late() {
    let bed = Bed::small().await;
    slow(&bed);
    bed.sim.set(|settings| settings.azure.busy = Busy::FailLate);
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let first = bed.send(bed.put_nic("node-1", &nic)).await;
    let second = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(second.status, 200);
    bed.sim.advance(Duration::from_secs(10));
    assert_eq!(
        bed.azure_poll(&second).await.json()["error"]["code"],
        "AnotherOperationInProgress"
    );
    assert_eq!(bed.azure_poll(&first).await.json()["status"], "Succeeded");
    assert_eq!(
        bed.nic("node-1").await["properties"]["provisioningState"],
        "Succeeded"
    );
}

// 9. kubernetes-sigs/cloud-provider-azure knows the code: the earlier write is given up.
#[tokio::test]
async fn a_later_write_can_supersede_an_earlier_one() {
    let bed = Bed::small().await;
    slow(&bed);
    bed.sim.set(|settings| settings.azure.busy = Busy::Supersede);
    let first = bed
        .send(bed.put_nic("node-1", &bed.nic_with("node-1", Some(FREE)).await))
        .await;
    let second = bed
        .send(bed.put_nic("node-1", &bed.nic_with("node-1", Some(OTHER)).await))
        .await;
    let superseded = bed.azure_poll(&first).await.json();
    assert_eq!(superseded["status"], "Canceled");
    assert_eq!(
        superseded["error"]["code"],
        "CanceledAndSupersededDueToAnotherOperation"
    );
    bed.sim.advance(Duration::from_secs(10));
    assert_eq!(bed.azure_poll(&second).await.json()["status"], "Succeeded");
    assert_eq!(
        (bed.holder(FREE), bed.holder(OTHER)),
        (None, Some(azure_node("node-1")))
    );
}

// 10. kubernetes-sigs/cloud-provider-azure pull request 483, azure-rest-api-specs issue 6789. Whether
// interfaces honour it in reality is to be confirmed live.
#[tokio::test]
async fn if_match_refuses_a_stale_etag_and_a_header_called_etag_means_nothing() {
    let bed = Bed::small().await;
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let read = nic["etag"].as_str().unwrap().to_owned();
    bed.sim
        .change(&Change::TouchInterface {
            interface: "node-1-nic".into(),
        })
        .unwrap();
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
    bed.sim
        .change(&Change::TouchInterface {
            interface: "node-1-nic".into(),
        })
        .unwrap();
    tags.push(bed.nic("node-1").await["etag"].clone());
    let path = "Microsoft.Network/networkInterfaces/node-1-nic";
    bed.send(bed.azure(Method::PATCH, path).json(&json!({ "tags": {} })))
        .await;
    tags.push(bed.nic("node-1").await["etag"].clone());
    tags.dedup();
    assert_eq!(tags.len(), 4);
    assert_eq!(
        bed.nic("node-1").await["etag"],
        tags[3],
        "reading changes nothing"
    );
}

// 12. kubernetes-sigs/cloud-provider-azure writes interfaces without If-Match: what it read before is
// what it writes.
#[tokio::test]
async fn another_writer_can_erase_the_reference_with_what_it_read_before() {
    let bed = Bed::small().await;
    bed.sim.advance(Duration::from_mins(1));
    bed.azure_attach("node-1", FREE).await;
    bed.sim.advance(Duration::from_secs(5));
    let change = Change::OverwriteInterface {
        interface: "node-1-nic".into(),
        seconds_ago: 10.0,
    };
    bed.sim.change(&change).unwrap();
    assert_eq!(reference(&bed.nic("node-1").await), &Value::Null);
    assert_eq!(bed.holder(FREE), None);
}

// 13. Trace of a Terraform module: a NAT gateway's address has no ipConfiguration.
#[tokio::test]
async fn the_address_of_a_nat_gateway_shows_no_ip_configuration() {
    let mut held = AddressSpec::free(Cloud::Azure, ip("203.0.9.9"));
    held.held_by = Some("natGateways/egress".into());
    let bed = Bed::start(small_world().reserved(held)).await;
    let properties = bed.pip("203.0.9.9").await["properties"].clone();
    assert_eq!(properties["ipConfiguration"], Value::Null);
    assert!(
        properties["natGateway"]["id"]
            .as_str()
            .unwrap()
            .ends_with("/natGateways/egress")
    );
    let nic = bed.nic_with("node-1", Some("203.0.9.9")).await;
    assert_eq!(
        bed.send(bed.put_nic("node-1", &nic)).await.error().1,
        "PublicIPAddressInUse"
    );
}

// 14. Public IP addresses, List reference: nextLink, and no filter.
#[tokio::test]
async fn lists_come_in_pages_and_take_no_filter() {
    let mut world = small_world();
    world.settings.azure.page_size = 2;
    let mut world = world.address(Cloud::Azure, [203, 0, 3, 3]);
    world = world
        .address(Cloud::Azure, [203, 0, 3, 4])
        .address(Cloud::Azure, [203, 0, 3, 5]);
    let bed = Bed::start(world).await;
    let subscription = GROUP.split("/resourceGroups").next().unwrap();
    let path = format!("{subscription}/providers/Microsoft.Network/publicIPAddresses{API}");
    let mut url = format!("{}{path}&$filter=name eq 'x'", bed.sim.azure_url());
    let mut sizes = Vec::new();
    loop {
        let page = bed.send(bed.request(Method::GET, &url)).await.json();
        sizes.push(page["value"].as_array().unwrap().len());
        match page["nextLink"].as_str() {
            Some(next) => url = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
}

// 15. cloud-provider-azure compares ids without regard to case, for good reason.
#[tokio::test]
async fn ids_differ_in_case_between_the_apis() {
    let bed = Bed::small().await;
    let vm = bed
        .azure_get("Microsoft.Compute/virtualMachines/node-1")
        .await
        .json();
    let of_compute = vm["properties"]["networkProfile"]["networkInterfaces"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let of_network = bed.nic("node-1").await["id"].as_str().unwrap().to_owned();
    assert_ne!(of_compute, of_network);
    assert!(of_compute.eq_ignore_ascii_case(&of_network));
    let url = format!("{}{}{API}", bed.sim.azure_url(), of_compute.to_uppercase());
    assert_eq!(
        bed.send(bed.request(Method::GET, &url)).await.json()["name"],
        "node-1-nic"
    );
}

// 16. Network API: interfaces of uniform scale sets can only be read.
#[tokio::test]
async fn the_interface_of_a_uniform_scale_set_cannot_be_written() {
    let set = format!("azure://{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0");
    let bed = Bed::start(small_world().instance(InstanceSpec::of(&set))).await;
    let path = "Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/0/networkInterfaces/0-nic";
    let nic = bed.azure_get(path).await;
    assert_eq!(nic.status, 200);
    let put = bed.azure(Method::PUT, path).json(&nic.json());
    assert_eq!(bed.send(put).await.error(), (405, "MethodNotAllowed".into()));
    let standalone = "Microsoft.Network/networkInterfaces/0-nic";
    assert_eq!(
        bed.azure_get(standalone).await.error(),
        (404, "ResourceNotFound".into())
    );
}

// 17. Azure RBAC troubleshooting page: three codes of 403.
#[tokio::test]
async fn missing_linked_and_denied_permissions_are_three_codes() {
    let bed = Bed::small().await;
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let role = |actions: &[&str]| Roles {
        azure: Some(actions.iter().map(|&action| action.to_owned()).collect()),
        ..Roles::default()
    };
    bed.sim.set_roles(role(&["*/read"]));
    let missing = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(missing.error(), (403, "AuthorizationFailed".into()));
    assert!(
        missing
            .message()
            .contains("'Microsoft.Network/networkInterfaces/write'")
    );
    let all_but_address = [
        "Microsoft.Network/networkInterfaces/write",
        "Microsoft.Network/networkSecurityGroups/join/action",
        "Microsoft.Network/virtualNetworks/subnets/join/action",
        "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    ];
    bed.sim.set_roles(role(&all_but_address));
    let linked = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(linked.error(), (403, "LinkedAuthorizationFailed".into()));
    assert!(
        linked
            .message()
            .contains("'Microsoft.Network/publicIPAddresses/join/action' on the linked scope(s)")
    );
    bed.sim.set_roles(Roles::default());
    bed.sim.set(|settings| settings.azure.deny_writes = true);
    let denied = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(denied.error(), (403, "DenyAssignmentAuthorizationFailed".into()));
}

// 18. Resource Manager throttling page: 429 with Retry-After; calling too early starts the wait anew.
#[tokio::test]
async fn throttling_says_when_to_return_and_an_early_return_prolongs_it() {
    let bed = Bed::small().await;
    let bucket = Bucket {
        burst: 1.0,
        per_second: 0.5,
    };
    let azure = Some(Buckets {
        read: bucket,
        write: bucket,
    });
    bed.sim.set_limits(Limits {
        azure,
        ..Limits::default()
    });
    let get = async || {
        bed.azure_get("Microsoft.Network/networkInterfaces/node-1-nic")
            .await
    };
    assert_eq!(get().await.status, 200);
    let refused = get().await;
    assert_eq!(refused.error(), (429, "SubscriptionRequestsThrottled".into()));
    assert_eq!(refused.header("retry-after"), Some("2"));
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(
        get().await.header("retry-after"),
        Some("2"),
        "one second too early"
    );
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(get().await.status, 429, "the first wait would be over");
    bed.sim.advance(Duration::from_secs(2));
    assert_eq!(get().await.status, 200);
}

// 19. pivotal-cf issue 41: SKUs on one interface must be the same.
#[tokio::test]
async fn an_address_of_another_sku_than_the_load_balancers_is_refused() {
    let mut basic = AddressSpec::free(Cloud::Azure, ip("203.0.9.9"));
    basic.tier = Some("Basic".into());
    let bed = Bed::start(small_world().reserved(basic)).await;
    let nic = bed.nic_with("node-1", Some("203.0.9.9")).await;
    let expected = "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed";
    assert_eq!(
        bed.send(bed.put_nic("node-1", &nic)).await.error(),
        (400, expected.into())
    );
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
    assert_eq!(
        bed.send(bed.put_nic("node-1", &nic)).await.error(),
        (400, "InvalidResourceReference".into())
    );
    let foreign = "/subscriptions/00000000-0000-0000-0000-000000000002/resourceGroups/other/providers\
                   /Microsoft.Network/publicIPAddresses/pip-203-0-9-9";
    nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] = json!({ "id": foreign });
    assert_eq!(
        bed.send(bed.put_nic("node-1", &nic)).await.error(),
        (400, "InvalidResourceReference".into())
    );
}

// 21. Network troubleshooting page: a resource in state Failed is repaired by writing it again.
#[tokio::test]
async fn a_failed_interface_is_repaired_by_the_next_put() {
    let bed = Bed::small().await;
    let fault = Fault::LateFailure {
        code: "InternalServerError".into(),
        message: "An error occurred.".into(),
    };
    bed.sim.fault(Rule::once(put_action(), fault));
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(bed.azure_poll(&answer).await.json()["status"], "Failed");
    let failed = bed.nic("node-1").await;
    assert_eq!(failed["properties"]["provisioningState"], "Failed");
    assert_eq!(reference(&failed), &Value::Null);
    bed.azure_attach("node-1", FREE).await;
    assert_eq!(
        bed.nic("node-1").await["properties"]["provisioningState"],
        "Succeeded"
    );
}

// 22. Azure/karpenter-provider-azure issue 543: the machine is gone, its interface is not.
#[tokio::test]
async fn a_deleted_machine_can_leave_its_interface_behind_with_the_address() {
    let bed = Bed::small().await;
    bed.azure_attach("node-1", FREE).await;
    let instance = azure_node("node-1");
    bed.sim
        .change(&Change::TerminateInstance {
            instance,
            keep_interfaces: true,
        })
        .unwrap();
    let vm = bed.azure_get("Microsoft.Compute/virtualMachines/node-1").await;
    assert_eq!(vm.error(), (404, "ResourceNotFound".into()));
    let nic = bed.nic("node-1").await;
    assert_eq!(nic["properties"]["virtualMachine"], Value::Null);
    assert!(reference(&nic).is_string());
    assert!(bed.pip(FREE).await["properties"]["ipConfiguration"]["id"].is_string());
}

// 23. Seen by clients: the operation is not found although the write is done.
#[tokio::test]
async fn the_operation_can_be_not_found() {
    let bed = Bed::small().await;
    let fault = Fault::Error {
        code: "NotFound".into(),
        message: None,
        status: None,
    };
    bed.sim
        .fault(Rule::always(On::action(Cloud::Azure, "operations.get"), fault));
    slow(&bed);
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    bed.sim.advance(Duration::from_secs(10));
    assert_eq!(bed.azure_poll(&answer).await.error(), (404, "NotFound".into()));
    assert_eq!(
        bed.nic("node-1").await["properties"]["provisioningState"],
        "Succeeded"
    );
    assert_eq!(bed.holder(FREE), Some(azure_node("node-1")));
}

// 24. openshift/cloud-network-config-controller takes the only interface when none is marked.
#[tokio::test]
async fn the_primary_flag_can_be_absent() {
    let bed = Bed::small().await;
    let flag = async || {
        let vm = bed
            .azure_get("Microsoft.Compute/virtualMachines/node-1")
            .await
            .json();
        vm["properties"]["networkProfile"]["networkInterfaces"][0]["properties"]["primary"].clone()
    };
    assert_eq!(flag().await, true);
    bed.sim.set(|settings| settings.azure.primary_flag = false);
    assert_eq!(flag().await, Value::Null);
}

// 25. Resource Manager: a token can run out while an operation is asked for.
#[tokio::test]
async fn a_token_can_expire_while_an_operation_is_polled() {
    let bed = Bed::small().await;
    bed.sim.set(|settings| settings.azure.operation = Pace::Polls(2));
    let on = On {
        caller: Some("old-token".into()),
        ..On::action(Cloud::Azure, "operations.get")
    };
    let fault = Fault::Error {
        code: "ExpiredAuthenticationToken".into(),
        message: None,
        status: None,
    };
    bed.sim.fault(Rule::always(on, fault).after(1));
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    let url = answer.header("azure-asyncoperation").unwrap();
    let poll = async |token: &str| bed.send(bed.request(Method::GET, url).bearer_auth(token)).await;
    assert_eq!(poll("old-token").await.json()["status"], "InProgress");
    assert_eq!(
        poll("old-token").await.error(),
        (401, "ExpiredAuthenticationToken".into())
    );
    assert_eq!(poll("new-token").await.json()["status"], "Succeeded");
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
    assert_eq!(
        bed.nic("node-1").await["properties"]["virtualMachine"],
        Value::Null
    );
    let conditional = bed
        .put_nic("node-9", &nic)
        .header("If-Match", nic["etag"].as_str().unwrap());
    assert_eq!(
        bed.send(conditional).await.error(),
        (412, "PreconditionFailed".into())
    );
}

// Instance view: the power state is not in the plain reply.
#[tokio::test]
async fn the_power_state_is_in_the_instance_view() {
    let bed = Bed::small().await;
    bed.sim.stop_instance(&azure_node("node-1")).unwrap();
    let path = format!(
        "{}{GROUP}/Microsoft.Compute/virtualMachines/node-1{API}",
        bed.sim.azure_url()
    );
    let plain = bed.send(bed.request(Method::GET, &path)).await.json();
    assert_eq!(plain["properties"]["instanceView"], Value::Null);
    let expanded = bed
        .send(bed.request(Method::GET, &format!("{path}&$expand=instanceView")))
        .await
        .json();
    assert_eq!(
        expanded["properties"]["instanceView"]["statuses"][1]["code"],
        "PowerState/deallocated"
    );
    let view = bed
        .azure_get("Microsoft.Compute/virtualMachines/node-1/instanceView")
        .await
        .json();
    assert_eq!(view["statuses"][1]["code"], "PowerState/deallocated");
}
