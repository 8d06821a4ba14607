//! GCP: external addresses come to interfaces and leave them.

use super::{FREE, add_action, bare, free};
use crate::kit::{Bed, GCP_1, GCP_2, ip, small_world};
use reqwest::Method;
use serde_json::{Value, json};
use sim::{AddressSpec, Change, Cloud, Fault, Found, InstanceSpec, Pace, Rule};
use std::time::Duration;

const UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

// 1. Trace in doitintl/kubeip issue 59: an interface takes one access config.
#[tokio::test]
async fn a_second_access_config_is_refused() {
    let bed = Bed::small().await;
    let answer = bed.send(bed.gcp_add(GCP_1, &free())).await;
    assert_eq!(answer.error(), (400, "badRequest".into()));
    assert_eq!(answer.message(), "At most one access config currently supported.");
}

// 2. Trace in doitintl/kubeip issue 59: the reply was a success and the config stayed.
#[tokio::test]
async fn deleting_a_name_that_nothing_has_succeeds_and_removes_nothing() {
    let bed = Bed::small().await;
    let done = bed.gcp_done(bed.gcp_delete(GCP_1, "External NAT")).await;
    assert_eq!((&done["status"], &done["error"]), (&json!("DONE"), &Value::Null));
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"][0]["name"], "external-nat");
}

// 3. Discovery document: Operation.status is PENDING, RUNNING or DONE; the POST answers before the work.
#[tokio::test]
async fn an_operation_is_pending_then_running_then_done() {
    let bed = bare().await;
    bed.sim.fault(Rule::once(add_action(), Fault::Pace { pace: Pace::Polls(4) }));
    let accepted = bed.send(bed.gcp_add(GCP_1, &free())).await.json();
    let mut states = vec![accepted["status"].clone()];
    for _ in 0..4 {
        states.push(bed.gcp_poll(&accepted).await["status"].clone());
    }
    assert_eq!(states, ["PENDING", "PENDING", "RUNNING", "RUNNING", "DONE"]);
}

// 4. Discovery document: Operation.error; a POST that answered 200 can still come to nothing.
#[tokio::test]
async fn an_address_in_use_can_be_found_out_late() {
    let bed = bare().await;
    bed.sim.set(|settings| settings.gcp.in_use_found = Found::Late);
    bed.gcp_attach(GCP_2, FREE).await;
    let done = bed.gcp_done(bed.gcp_add(GCP_1, &free())).await;
    assert_eq!(done["status"], "DONE");
    assert_eq!(done["error"]["errors"][0]["code"], "IP_IN_USE_BY_ANOTHER_RESOURCE");
    assert_eq!(done["httpErrorStatusCode"], 400);
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"], Value::Null);
    assert_eq!(bed.holder(FREE).as_deref(), Some(GCP_2));
}

// 4. The same by a race: free when it was accepted, taken when it was done.
#[tokio::test]
async fn an_address_taken_between_accept_and_effect_fails_the_operation() {
    let bed = bare().await;
    let accepted = bed.send(bed.gcp_add(GCP_1, &free())).await.json();
    bed.sim.attach(ip(FREE), GCP_2).unwrap();
    let done = bed.gcp_poll(&accepted).await;
    assert_eq!(done["error"]["errors"][0]["code"], "IP_IN_USE_BY_ANOTHER_RESOURCE");
}

// 5. Discovery document, zoneOperations.wait: best effort, may return before the operation is done.
#[tokio::test]
async fn wait_can_return_before_the_operation_is_done() {
    let bed = bare().await;
    bed.sim.fault(Rule::once(add_action(), Fault::Pace { pace: Pace::Seconds(30.0) }));
    let accepted = bed.send(bed.gcp_add(GCP_1, &free())).await.json();
    let name = accepted["name"].as_str().unwrap();
    let wait = format!("zones/us-central1-a/operations/{name}/wait");
    let waited = bed.send(bed.gcp(Method::POST, &wait)).await.json();
    assert_ne!(waited["status"], "DONE");
    bed.sim.advance(Duration::from_secs(30));
    assert_eq!(bed.send(bed.gcp(Method::POST, &wait)).await.json()["status"], "DONE");
}

// 6. Discovery document, requestId: a repeated request with the same id is not carried out again.
#[tokio::test]
async fn the_same_request_id_gives_the_same_operation_and_no_second_effect() {
    let bed = bare().await;
    let request = || bed.gcp_add(GCP_1, &free()).query(&[("requestId", UUID)]);
    let first = bed.gcp_done(request()).await;
    bed.gcp_done(bed.gcp_delete(GCP_1, "ours")).await;
    let again = bed.send(request()).await.json();
    assert_eq!((&first["name"], &first["clientOperationId"]), (&again["name"], &json!(UUID)));
    assert_eq!(again["status"], "DONE");
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"], Value::Null);
}

// 6. Discovery document, requestId: a valid UUID, the one of zeros is not supported.
#[tokio::test]
async fn a_zero_or_malformed_request_id_is_refused() {
    let bed = bare().await;
    for id in ["00000000-0000-0000-0000-000000000000", "1234", "zzzzzzzz-9dad-11d1-80b4-00c04fd430c8"] {
        let answer = bed.send(bed.gcp_add(GCP_1, &free()).query(&[("requestId", id)])).await;
        assert_eq!(answer.error(), (400, "invalid".into()), "{id}");
    }
    assert_eq!(bed.holder(FREE), None);
}

// 7. Discovery document, Address.status: IN_USE says that something uses it, not that something will.
#[tokio::test]
async fn an_address_is_in_use_only_when_the_operation_is_done() {
    let bed = bare().await;
    let accepted = bed.send(bed.gcp_add(GCP_1, &free())).await.json();
    let before = bed.gcp_address(FREE).await;
    assert_eq!((&before["status"], &before["users"]), (&json!("RESERVED"), &Value::Null));
    bed.gcp_poll(&accepted).await;
    let after = bed.gcp_address(FREE).await;
    assert_eq!(after["status"], "IN_USE");
    let user = after["users"][0].as_str().unwrap();
    assert!(user.ends_with("/projects/dev-project/zones/us-central1-a/instances/node-1"), "{user}");
}

// 8. Trace in hashicorp/terraform issue 16095.
#[tokio::test]
async fn an_address_of_another_region_is_not_found() {
    let mut abroad = AddressSpec::free(Cloud::Gcp, ip("203.0.9.9"));
    abroad.region = Some("us-east1".into());
    let mut world = small_world().reserved(abroad);
    world.instances[0].ephemeral = false;
    let bed = Bed::start(world).await;
    let answer = bed.send(bed.gcp_add(GCP_1, &json!({ "natIP": "203.0.9.9" }))).await;
    assert_eq!(answer.error(), (400, "invalid".into()));
    let expected = "The specified external IP address '203.0.9.9' was not found in region 'us-central1'.";
    assert!(answer.message().contains(expected), "{}", answer.message());
}

// 9. Trace in doitintl/kubeip issue 155.
#[tokio::test]
async fn a_network_tier_other_than_the_addresss_is_refused() {
    let bed = bare().await;
    let config = json!({ "natIP": FREE, "networkTier": "STANDARD" });
    let answer = bed.send(bed.gcp_add(GCP_1, &config)).await;
    assert_eq!(answer.error(), (400, "invalid".into()));
    let expected =
        "has a different network tier PREMIUM from the network tier in instance access config STANDARD.";
    assert!(answer.message().contains(expected), "{}", answer.message());
}

// 12. Trace in gardener/gardener-extension-provider-gcp issue 415.
#[tokio::test]
async fn an_organisation_policy_refuses_with_412() {
    let bed = bare().await;
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = true);
    let answer = bed.send(bed.gcp_add(GCP_1, &free())).await;
    assert_eq!(answer.error(), (412, "conditionNotMet".into()));
    assert!(answer.message().starts_with("Constraint constraints/compute.vmExternalIpAccess violated"));
}

// Fingerprints. Discovery document, NetworkInterface.fingerprint: 400 when missing, 412 when stale.
#[tokio::test]
async fn a_stale_fingerprint_refuses_with_412() {
    let bed = Bed::small().await;
    let update = |fingerprint: &Value| {
        let path = format!("{}/updateNetworkInterface?networkInterface=nic0", Bed::gcp_path(GCP_1));
        let body = json!({ "fingerprint": fingerprint, "stackType": "IPV4_IPV6" });
        bed.gcp(Method::PATCH, &path).json(&body)
    };
    let read = bed.gcp_interface(GCP_1).await["fingerprint"].clone();
    assert_eq!(bed.send(update(&Value::Null)).await.status, 400);
    bed.sim.change(&Change::TouchInterface { interface: "nic0".into() }).unwrap();
    assert_eq!(bed.send(update(&read)).await.error(), (412, "conditionNotMet".into()));
    let fresh = bed.gcp_interface(GCP_1).await["fingerprint"].clone();
    bed.gcp_done(update(&fresh)).await;
    assert_eq!(bed.gcp_interface(GCP_1).await["stackType"], "IPV4_IPV6");
}

// 13. terraform-provider-google's predicates and opstrace issue 976.
#[tokio::test]
async fn an_instance_with_an_operation_under_way_is_not_ready() {
    let bed = bare().await;
    let accepted = bed.send(bed.gcp_add(GCP_1, &free())).await.json();
    let second = bed.send(bed.gcp_delete(GCP_1, "ours")).await;
    assert_eq!(second.error(), (400, "resourceNotReady".into()));
    bed.gcp_poll(&accepted).await;
    assert_eq!(bed.send(bed.gcp_delete(GCP_1, "ours")).await.status, 200);
}

// 14. External IP documentation: an ephemeral address that is given up cannot be had again.
#[tokio::test]
async fn an_ephemeral_address_is_gone_for_good() {
    let bed = Bed::small().await;
    let before = bed.gcp_interface(GCP_1).await["accessConfigs"][0]["natIP"].clone();
    bed.gcp_done(bed.gcp_delete(GCP_1, "external-nat")).await;
    bed.gcp_done(bed.gcp_add(GCP_1, &json!({ "name": "external-nat" }))).await;
    let after = bed.gcp_interface(GCP_1).await["accessConfigs"][0]["natIP"].clone();
    assert!(after.is_string());
    assert_ne!(before, after);
}

// 15. External IP documentation: without one, and without Cloud NAT, an instance reaches nothing outside.
#[tokio::test]
async fn a_caller_on_a_node_without_an_address_gets_no_answer() {
    let bed = Bed::small().await;
    bed.sim.place_caller("controller", GCP_1);
    let url = format!("{}/as/controller/compute/v1/projects/dev-project", bed.sim.gcp_url());
    assert_eq!(bed.send(bed.request(Method::GET, &url)).await.status, 200);
    bed.gcp_done(bed.gcp_delete(GCP_1, "external-nat")).await;
    let late = bed.request(Method::GET, &url).timeout(Duration::from_millis(300));
    assert!(bed.try_send(late).await.expect_err("an answer").is_timeout());
}

// 24. Discovery document, AccessConfig.name: any text; the console writes "External NAT".
#[tokio::test]
async fn an_access_config_can_have_any_name() {
    let mut held = AddressSpec::free(Cloud::Gcp, ip("203.0.9.9"));
    held.held_by = Some(GCP_1.into());
    held.access_config = Some("What a person wrote".into());
    let bed = Bed::start(small_world().reserved(held)).await;
    let config = bed.gcp_interface(GCP_1).await["accessConfigs"][0].clone();
    assert_eq!((&config["name"], &config["natIP"]), (&json!("What a person wrote"), &json!("203.0.9.9")));
    bed.gcp_done(bed.gcp_delete(GCP_1, "What a person wrote")).await;
    assert_eq!(bed.holder("203.0.9.9"), None);
}

// 25. Any network: the change was made, the caller never hears of it.
#[tokio::test]
async fn a_reply_can_be_lost_after_the_change_was_made() {
    let bed = bare().await;
    bed.sim.fault(Rule::once(add_action(), Fault::LostReply));
    let request = bed.gcp_add(GCP_1, &free()).query(&[("requestId", UUID)]);
    bed.try_send(request).await.expect_err("an answer");
    let again = bed.gcp_add(GCP_1, &free()).query(&[("requestId", UUID)]);
    bed.gcp_done(again).await;
    assert_eq!(bed.holder(FREE).as_deref(), Some(GCP_1));
}

// GKE private nodes have no access config at all: attaching is one call.
#[tokio::test]
async fn a_private_node_takes_an_address_in_one_call() {
    let node =
        InstanceSpec { ephemeral: false, ..InstanceSpec::of("gce://dev-project/us-central1-c/private") };
    let bed = Bed::start(small_world().instance(node)).await;
    let done = bed.gcp_done(bed.gcp_add("gce://dev-project/us-central1-c/private", &free())).await;
    assert_eq!((&done["status"], &done["error"]), (&json!("DONE"), &Value::Null));
}

/// The permissions that are granted of those asked for.
async fn granted(bed: &Bed, path: &str, permissions: &[&str]) -> Value {
    let body = json!({ "permissions": permissions });
    let answer = bed.send(bed.gcp(Method::POST, &format!("{path}/testIamPermissions")).json(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["permissions"].clone()
}

// Discovery document, testIamPermissions: the subset of the permissions that the caller has. Organisation
// policies are no permissions.
#[tokio::test]
async fn permissions_can_be_asked_for_and_policies_cannot() {
    let bed = Bed::small().await;
    let withheld = ["compute.addresses.use", "compute.subnetworks.useExternalIp"].map(str::to_owned);
    bed.sim.set_roles(sim::Roles { withheld: withheld.into_iter().collect(), ..sim::Roles::default() });
    bed.sim.set(|settings| settings.gcp.external_ip_forbidden = true);
    let (add, delete) = ("compute.instances.addAccessConfig", "compute.instances.deleteAccessConfig");
    assert_eq!(granted(&bed, &Bed::gcp_path(GCP_1), &[add, delete]).await, json!([add, delete]));
    let address = "regions/us-central1/addresses/ip-203-0-1-1";
    let (get, used) = ("compute.addresses.get", "compute.addresses.use");
    assert_eq!(granted(&bed, address, &[get, used]).await, json!([get]));
    let subnet = "regions/us-central1/subnetworks/default";
    assert_eq!(granted(&bed, subnet, &["compute.subnetworks.useExternalIp"]).await, Value::Null);
    bed.sim.set_roles(sim::Roles::default());
    let denied = bed.send(bed.gcp_delete(GCP_1, "external-nat")).await;
    assert_eq!(denied.status, 200, "the policy lets addresses go");
    bed.gcp_poll(&denied.json()).await;
    for config in [free(), json!({ "name": "external-nat" })] {
        let refused = bed.send(bed.gcp_add(GCP_1, &config)).await;
        assert_eq!(refused.error(), (412, "conditionNotMet".into()), "and lets none come, of either kind");
    }
}

#[tokio::test]
async fn permissions_of_what_is_not_there_or_of_another_kind_are_not_answered() {
    let bed = Bed::small().await;
    for (path, permission, error) in [
        ("zones/us-central1-a/instances/none", "compute.instances.get", (404, "notFound")),
        ("regions/us-central1/addresses/none", "compute.addresses.use", (404, "notFound")),
        ("regions/us-central1/subnetworks/none", "compute.subnetworks.use", (404, "notFound")),
        ("zones/us-central1-a/instances/node-1", "compute.addresses.use", (400, "badRequest")),
    ] {
        let body = json!({ "permissions": [permission] });
        let answer = bed.send(bed.gcp(Method::POST, &format!("{path}/testIamPermissions")).json(&body)).await;
        assert_eq!(answer.error(), (error.0, error.1.to_owned()), "{path}");
    }
}
