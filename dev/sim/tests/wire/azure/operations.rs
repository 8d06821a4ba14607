//! Azure: writes take time, can fail late, and get in each other's way.

use crate::kit::{Bed, azure_node, ip, reference};
use reqwest::Method;
use serde_json::Value;
use sim::{Busy, Cloud, Fault, Found, On, Pace};
use sim::{Rule, WhileUpdating};
use std::time::Duration;

const FREE: &str = "203.0.3.1";
const OTHER: &str = "203.0.3.2";
const PUT: &str = "networkInterfaces.createOrUpdate";

fn put_action() -> On {
    On::action(Cloud::Azure, PUT)
}

fn slow(bed: &Bed) {
    bed.sim.set(|settings| settings.azure.operation = Pace::Seconds(10.0));
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
    assert_eq!(bed.nic("node-1").await["properties"]["provisioningState"], "Succeeded");
    let holder = bed.pip(FREE).await["properties"]["ipConfiguration"]["id"].clone();
    assert!(holder.as_str().unwrap().ends_with("/networkInterfaces/node-1-nic/ipConfigurations/ipconfig1"));
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
    assert_eq!(bed.azure_poll(&answer).await.json()["error"]["code"], "PublicIPAddressInUse");
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
    assert_eq!(bed.send(bed.put_nic("node-1", &nic)).await.error(), expected, "the interface is busy");
    let other = bed.nic_with("node-2", Some(FREE)).await;
    assert_eq!(bed.send(bed.put_nic("node-2", &other)).await.error(), expected, "the address is busy");
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
    assert_eq!(bed.azure_poll(&second).await.json()["error"]["code"], "AnotherOperationInProgress");
    assert_eq!(bed.azure_poll(&first).await.json()["status"], "Succeeded");
    assert_eq!(bed.nic("node-1").await["properties"]["provisioningState"], "Succeeded");
}

// 9. kubernetes-sigs/cloud-provider-azure knows the code: the earlier write is given up.
#[tokio::test]
async fn a_later_write_can_supersede_an_earlier_one() {
    let bed = Bed::small().await;
    slow(&bed);
    bed.sim.set(|settings| settings.azure.busy = Busy::Supersede);
    let first = bed.send(bed.put_nic("node-1", &bed.nic_with("node-1", Some(FREE)).await)).await;
    let second = bed.send(bed.put_nic("node-1", &bed.nic_with("node-1", Some(OTHER)).await)).await;
    let superseded = bed.azure_poll(&first).await.json();
    assert_eq!(superseded["status"], "Canceled");
    assert_eq!(superseded["error"]["code"], "CanceledAndSupersededDueToAnotherOperation");
    bed.sim.advance(Duration::from_secs(10));
    assert_eq!(bed.azure_poll(&second).await.json()["status"], "Succeeded");
    assert_eq!((bed.holder(FREE), bed.holder(OTHER)), (None, Some(azure_node("node-1"))));
}

// 21. Network troubleshooting page: a resource in state Failed is repaired by writing it again.
#[tokio::test]
async fn a_failed_interface_is_repaired_by_the_next_put() {
    let bed = Bed::small().await;
    let fault =
        Fault::LateFailure { code: "InternalServerError".into(), message: "An error occurred.".into() };
    bed.sim.fault(Rule::once(put_action(), fault));
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    assert_eq!(bed.azure_poll(&answer).await.json()["status"], "Failed");
    let failed = bed.nic("node-1").await;
    assert_eq!(failed["properties"]["provisioningState"], "Failed");
    assert_eq!(reference(&failed), &Value::Null);
    bed.azure_attach("node-1", FREE).await;
    assert_eq!(bed.nic("node-1").await["properties"]["provisioningState"], "Succeeded");
}

// 23. Seen by clients: the operation is not found although the write is done.
#[tokio::test]
async fn the_operation_can_be_not_found() {
    let bed = Bed::small().await;
    let fault = Fault::Error { code: "NotFound".into(), message: None, status: None };
    bed.sim.fault(Rule::always(On::action(Cloud::Azure, "operations.get"), fault));
    slow(&bed);
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    bed.sim.advance(Duration::from_secs(10));
    assert_eq!(bed.azure_poll(&answer).await.error(), (404, "NotFound".into()));
    assert_eq!(bed.nic("node-1").await["properties"]["provisioningState"], "Succeeded");
    assert_eq!(bed.holder(FREE), Some(azure_node("node-1")));
}

// 25. Resource Manager: a token can run out while an operation is asked for.
#[tokio::test]
async fn a_token_can_expire_while_an_operation_is_polled() {
    let bed = Bed::small().await;
    bed.sim.set(|settings| settings.azure.operation = Pace::Polls(2));
    let on = On { caller: Some("old-token".into()), ..On::action(Cloud::Azure, "operations.get") };
    let fault = Fault::Error { code: "ExpiredAuthenticationToken".into(), message: None, status: None };
    bed.sim.fault(Rule::always(on, fault).after(1));
    let nic = bed.nic_with("node-1", Some(FREE)).await;
    let answer = bed.send(bed.put_nic("node-1", &nic)).await;
    let url = answer.header("azure-asyncoperation").unwrap();
    let poll = async |token: &str| bed.send(bed.request(Method::GET, url).bearer_auth(token)).await;
    assert_eq!(poll("old-token").await.json()["status"], "InProgress");
    assert_eq!(poll("old-token").await.error(), (401, "ExpiredAuthenticationToken".into()));
    assert_eq!(poll("new-token").await.json()["status"], "Succeeded");
}
