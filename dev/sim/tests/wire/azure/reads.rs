//! Azure: what reads show, and when they are refused.

use crate::kit::{API, Bed, GROUP, azure_node, ip, reference, small_world};
use reqwest::Method;
use serde_json::Value;
use sim::{AddressSpec, Bucket, Buckets, Change, Cloud, InstanceSpec, Limits, Roles};
use std::time::Duration;

const FREE: &str = "203.0.3.1";

// 13. Trace of a Terraform module: a NAT gateway's address has no ipConfiguration.
#[tokio::test]
async fn the_address_of_a_nat_gateway_shows_no_ip_configuration() {
    let mut held = AddressSpec::free(Cloud::Azure, ip("203.0.9.9"));
    held.held_by = Some("natGateways/egress".into());
    let bed = Bed::start(small_world().reserved(held)).await;
    let properties = bed.pip("203.0.9.9").await["properties"].clone();
    assert_eq!(properties["ipConfiguration"], Value::Null);
    assert!(properties["natGateway"]["id"].as_str().unwrap().ends_with("/natGateways/egress"));
    let nic = bed.nic_with("node-1", Some("203.0.9.9")).await;
    assert_eq!(bed.send(bed.put_nic("node-1", &nic)).await.error().1, "PublicIPAddressInUse");
}

// 14. Public IP addresses, List reference: nextLink, and no filter.
#[tokio::test]
async fn lists_come_in_pages_and_take_no_filter() {
    let mut world = small_world();
    world.settings.azure.page_size = 2;
    let mut world = world.address(Cloud::Azure, [203, 0, 3, 3]);
    world = world.address(Cloud::Azure, [203, 0, 3, 4]).address(Cloud::Azure, [203, 0, 3, 5]);
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
    let vm = bed.azure_get("Microsoft.Compute/virtualMachines/node-1").await.json();
    let of_compute =
        vm["properties"]["networkProfile"]["networkInterfaces"][0]["id"].as_str().unwrap().to_owned();
    let of_network = bed.nic("node-1").await["id"].as_str().unwrap().to_owned();
    assert_ne!(of_compute, of_network);
    assert!(of_compute.eq_ignore_ascii_case(&of_network));
    let url = format!("{}{}{API}", bed.sim.azure_url(), of_compute.to_uppercase());
    assert_eq!(bed.send(bed.request(Method::GET, &url)).await.json()["name"], "node-1-nic");
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
    assert_eq!(bed.azure_get(standalone).await.error(), (404, "ResourceNotFound".into()));
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
    assert!(missing.message().contains("'Microsoft.Network/networkInterfaces/write'"));
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
        linked.message().contains("'Microsoft.Network/publicIPAddresses/join/action' on the linked scope(s)")
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
    let bucket = Bucket { burst: 1.0, per_second: 0.5 };
    let azure = Some(Buckets { read: bucket, write: bucket });
    bed.sim.set_limits(Limits { azure, ..Limits::default() });
    let get = async || bed.azure_get("Microsoft.Network/networkInterfaces/node-1-nic").await;
    assert_eq!(get().await.status, 200);
    let refused = get().await;
    assert_eq!(refused.error(), (429, "SubscriptionRequestsThrottled".into()));
    assert_eq!(refused.header("retry-after"), Some("2"));
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(get().await.header("retry-after"), Some("2"), "one second too early");
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(get().await.status, 429, "the first wait would be over");
    bed.sim.advance(Duration::from_secs(2));
    assert_eq!(get().await.status, 200);
}

// 22. Azure/karpenter-provider-azure issue 543: the machine is gone, its interface is not.
#[tokio::test]
async fn a_deleted_machine_can_leave_its_interface_behind_with_the_address() {
    let bed = Bed::small().await;
    bed.azure_attach("node-1", FREE).await;
    let instance = azure_node("node-1");
    bed.sim.change(&Change::TerminateInstance { instance, keep_interfaces: true }).unwrap();
    let vm = bed.azure_get("Microsoft.Compute/virtualMachines/node-1").await;
    assert_eq!(vm.error(), (404, "ResourceNotFound".into()));
    let nic = bed.nic("node-1").await;
    assert_eq!(nic["properties"]["virtualMachine"], Value::Null);
    assert!(reference(&nic).is_string());
    assert!(bed.pip(FREE).await["properties"]["ipConfiguration"]["id"].is_string());
}

// 24. openshift/cloud-network-config-controller takes the only interface when none is marked.
#[tokio::test]
async fn the_primary_flag_can_be_absent() {
    let bed = Bed::small().await;
    let flag = async || {
        let vm = bed.azure_get("Microsoft.Compute/virtualMachines/node-1").await.json();
        vm["properties"]["networkProfile"]["networkInterfaces"][0]["properties"]["primary"].clone()
    };
    assert_eq!(flag().await, true);
    bed.sim.set(|settings| settings.azure.primary_flag = false);
    assert_eq!(flag().await, Value::Null);
}

// Instance view: the power state is not in the plain reply.
#[tokio::test]
async fn the_power_state_is_in_the_instance_view() {
    let bed = Bed::small().await;
    bed.sim.stop_instance(&azure_node("node-1")).unwrap();
    let path = format!("{}{GROUP}/Microsoft.Compute/virtualMachines/node-1{API}", bed.sim.azure_url());
    let plain = bed.send(bed.request(Method::GET, &path)).await.json();
    assert_eq!(plain["properties"]["instanceView"], Value::Null);
    let expanded = bed.send(bed.request(Method::GET, &format!("{path}&$expand=instanceView"))).await.json();
    assert_eq!(expanded["properties"]["instanceView"]["statuses"][1]["code"], "PowerState/deallocated");
    let view = bed.azure_get("Microsoft.Compute/virtualMachines/node-1/instanceView").await.json();
    assert_eq!(view["statuses"][1]["code"], "PowerState/deallocated");
}

// azure-mgmt-compute, virtual_machines.list_all(status_only): "enables fetching run time status of all Virtual
// Machines in the subscription"; cloud-provider-azure calls what it gets "only instance view".
#[tokio::test]
async fn a_list_of_states_has_states_only() {
    let bed = Bed::small().await;
    bed.sim.stop_instance(&azure_node("node-1")).unwrap();
    let subscription = "/subscriptions/00000000-0000-0000-0000-000000000001/providers";
    let path = format!("{}{subscription}/Microsoft.Compute/virtualMachines{API}", bed.sim.azure_url());
    let list = bed.send(bed.request(Method::GET, &format!("{path}&statusOnly=true"))).await.json();
    let properties = &list["value"][0]["properties"];
    assert_eq!(properties["instanceView"]["statuses"][1]["code"], "PowerState/deallocated");
    assert_eq!(properties["networkProfile"], Value::Null);
}
