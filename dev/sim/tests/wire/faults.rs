//! What can be made to go wrong.

use crate::kit::{AWS_1, Bed, GCP_1, GCP_2, I_1, azure_node, ip, small_world};
use serde_json::{Value, json};
use sim::{Change, Cloud, Fault, On, Pace, Rule};
use std::time::{Duration, Instant};

const GCP_FREE: &str = "203.0.1.1";
const AWS_FREE: &str = "203.0.2.1";
const AZURE_FREE: &str = "203.0.3.1";

fn on(cloud: Cloud, action: &str) -> On {
    On::action(cloud, action)
}

/// A small world whose nodes have no address of the cloud's choice.
async fn bare() -> Bed {
    let mut world = small_world();
    for instance in &mut world.instances {
        instance.ephemeral = false;
    }
    Bed::start(world).await
}

#[tokio::test]
async fn delay_holds_back_effect_and_reply() {
    let bed = bare().await;
    bed.sim.fault(Rule::once(on(Cloud::Aws, "AssociateAddress"), Fault::Delay { seconds: 1.0 }));
    let start = Instant::now();
    let (allocation, eni) = (bed.allocation(AWS_FREE).await, bed.eni(I_1).await);
    let params = [("AllocationId", allocation.as_str()), ("NetworkInterfaceId", eni.as_str())];
    let (answer, early) = tokio::join!(bed.aws("AssociateAddress", &params), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bed.holder(AWS_FREE)
    });
    assert_eq!((answer.status, early), (200, None));
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(bed.holder(AWS_FREE).as_deref(), Some(AWS_1));
}

#[tokio::test]
async fn an_error_by_code_has_the_vendors_status_and_no_effect() {
    let bed = bare().await;
    let cases = [
        (Cloud::Gcp, "backendError", 503),
        (Cloud::Gcp, "operationInProgress", 409),
        (Cloud::Aws, "InternalError", 500),
        (Cloud::Aws, "Unavailable", 503),
        (Cloud::Azure, "InternalServerError", 500),
        (Cloud::Azure, "ScopeLocked", 409),
    ];
    let nic = bed.nic_with("node-1", Some(AZURE_FREE)).await;
    for (cloud, code, status) in cases {
        let fault = Fault::Error { code: code.into(), message: Some("on purpose".into()), status: None };
        bed.sim.fault(Rule::once(On { cloud: Some(cloud), mutating: Some(true), ..On::default() }, fault));
        let answer = match cloud {
            Cloud::Gcp => bed.send(bed.gcp_add(GCP_1, &json!({ "natIP": GCP_FREE }))).await,
            Cloud::Aws => bed.associate(AWS_FREE, I_1, "false").await,
            Cloud::Azure => bed.send(bed.put_nic("node-1", &nic)).await,
        };
        assert_eq!(answer.error(), (status, code.into()));
        assert_eq!(answer.message(), "on purpose");
    }
    assert!(bed.sim.snapshot().holds.is_empty());
    assert!(bed.sim.faults().is_empty(), "each was for one call");
}

#[tokio::test]
async fn a_reply_is_lost_after_the_effect_in_every_cloud() {
    let bed = bare().await;
    let nic = bed.nic_with("node-1", Some(AZURE_FREE)).await;
    let (allocation, eni) = (bed.allocation(AWS_FREE).await, bed.eni(I_1).await);
    let mutating = On { mutating: Some(true), ..On::default() };
    bed.sim.fault(Rule { times: Some(3), ..Rule::always(mutating, Fault::LostReply) });
    let params = [("AllocationId", allocation.as_str()), ("NetworkInterfaceId", eni.as_str())];
    let requests = [
        bed.gcp_add(GCP_1, &json!({ "natIP": GCP_FREE })),
        bed.aws_request("AssociateAddress", &params),
        bed.put_nic("node-1", &nic),
    ];
    for request in requests {
        bed.try_send(request).await.expect_err("an answer");
    }
    let lost: Vec<_> = bed.sim.events(0).into_iter().filter(|event| event.mutating).collect();
    assert!(lost.iter().all(|event| event.status.is_none() && event.faults == ["lost_reply"]), "{lost:?}");
    // Two of them started operations that are done when somebody asks.
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(bed.holder(AWS_FREE).as_deref(), Some(AWS_1));
    assert_eq!(bed.nic("node-1").await["properties"]["provisioningState"], "Updating");
}

#[tokio::test]
async fn a_hang_up_comes_after_the_effect_and_is_no_reset() {
    let bed = bare().await;
    let (allocation, eni) = (bed.allocation(AWS_FREE).await, bed.eni(I_1).await);
    bed.sim.fault(Rule::once(on(Cloud::Aws, "AssociateAddress"), Fault::HangUp));
    let params = [("AllocationId", allocation.as_str()), ("NetworkInterfaceId", eni.as_str())];
    let error = bed.try_send(bed.aws_request("AssociateAddress", &params)).await.expect_err("an answer");
    let mut causes = format!("{error}");
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        causes = format!("{causes}: {cause}");
        next = cause.source();
    }
    assert!(causes.contains("closed before message completed") && !causes.contains("reset"), "{causes}");
    assert_eq!(bed.holder(AWS_FREE).as_deref(), Some(AWS_1));
}

#[tokio::test]
async fn a_reset_comes_before_any_effect() {
    let bed = bare().await;
    bed.sim.fault(Rule::once(on(Cloud::Gcp, "instances.addAccessConfig"), Fault::Reset));
    let error = bed.try_send(bed.gcp_add(GCP_1, &json!({ "natIP": GCP_FREE }))).await.expect_err("an answer");
    assert!(!error.is_timeout(), "{error}");
    bed.gcp_done(bed.gcp_add(GCP_1, &json!({ "natIP": GCP_FREE }))).await;
    assert_eq!(bed.holder(GCP_FREE).as_deref(), Some(GCP_1));
}

#[tokio::test]
async fn each_cloud_throttles_in_its_own_way() {
    let bed = bare().await;
    for cloud in Cloud::ALL {
        let reads = On { cloud: Some(cloud), mutating: Some(false), ..On::default() };
        bed.sim.fault(Rule::once(reads, Fault::Throttle { seconds: Some(5.0) }));
    }
    let gcp = async || bed.gcp_get("regions/us-central1/addresses").await;
    let aws = async || bed.aws("DescribeAddresses", &[]).await;
    let azure = async || bed.azure_get("Microsoft.Network/networkInterfaces/node-1-nic").await;
    for _ in 0..2 {
        assert_eq!(gcp().await.error(), (403, "rateLimitExceeded".into()));
        assert_eq!(aws().await.error(), (503, "RequestLimitExceeded".into()));
        assert_eq!(azure().await.error(), (429, "SubscriptionRequestsThrottled".into()));
    }
    bed.sim.advance(Duration::from_secs(5));
    assert_eq!((gcp().await.status, aws().await.status, azure().await.status), (200, 200, 200));
}

#[tokio::test]
async fn reads_lag_by_so_many_seconds_in_every_cloud() {
    let bed = bare().await;
    bed.gcp_attach(GCP_1, GCP_FREE).await;
    bed.associate(AWS_FREE, I_1, "false").await;
    bed.azure_attach("node-1", AZURE_FREE).await;
    bed.sim.advance(Duration::from_secs(10));
    let reads = On { mutating: Some(false), ..On::default() };
    let rule = bed.sim.fault(Rule::always(reads, Fault::Lag { seconds: 11.0, jitter: false }));
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"], Value::Null);
    assert_eq!(bed.aws_address(AWS_FREE).await.all("associationId").len(), 0);
    assert_eq!(bed.pip(AZURE_FREE).await["properties"]["ipConfiguration"], Value::Null);
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"][0]["natIP"], GCP_FREE);
    assert_eq!(bed.aws_address(AWS_FREE).await.all("associationId").len(), 1);
    assert_ne!(bed.pip(AZURE_FREE).await["properties"]["ipConfiguration"], Value::Null);
    assert_eq!(bed.sim.faults()[0].0, rule);
    bed.sim.clear_faults();
    assert!(bed.sim.faults().is_empty());
}

#[tokio::test]
async fn an_operation_fails_late_with_the_given_code() {
    let bed = bare().await;
    let fault = Fault::LateFailure { code: "QUOTA_EXCEEDED".into(), message: "No more.".into() };
    bed.sim.fault(Rule::once(on(Cloud::Gcp, "instances.addAccessConfig"), fault));
    let done = bed.gcp_done(bed.gcp_add(GCP_1, &json!({}))).await;
    assert_eq!(done["error"]["errors"][0], json!({ "code": "QUOTA_EXCEEDED", "message": "No more." }));
    assert_eq!(bed.gcp_interface(GCP_1).await["accessConfigs"], Value::Null);
}

#[tokio::test]
async fn a_list_leaves_out_what_it_is_told_to() {
    let bed = bare().await;
    let missing = vec!["203.0.2.1".to_owned(), "node-1".to_owned(), I_1.to_owned()];
    bed.sim.fault(Rule::always(On::default(), Fault::PartialList { missing }));
    assert_eq!(bed.aws("DescribeAddresses", &[]).await.all("publicIp"), ["203.0.2.2"]);
    assert_eq!(bed.aws("DescribeInstances", &[]).await.all("reservationId").len(), 1);
    let listed = bed.azure_get("Microsoft.Network/networkInterfaces").await.json();
    assert_eq!(listed["value"].as_array().unwrap().len(), 1);
    assert_eq!(bed.gcp_get("zones/us-central1-a/instances").await.json()["items"], Value::Null);
}

#[tokio::test]
async fn somebody_else_changes_the_world_just_before_or_just_after_a_call() {
    let bed = bare().await;
    let steal = || Change::Attach { address: ip(GCP_FREE), instance: GCP_2.into(), name: None };
    let add = || on(Cloud::Gcp, "instances.addAccessConfig");
    bed.sim.fault(Rule::once(add(), Fault::Outside { change: steal(), after: false }));
    let before = bed.send(bed.gcp_add(GCP_1, &json!({ "natIP": GCP_FREE }))).await;
    assert!(before.message().ends_with("is already in-use."), "{}", before.text);
    bed.sim.detach(ip(GCP_FREE)).unwrap();
    bed.sim.fault(Rule::once(add(), Fault::Outside { change: steal(), after: true }));
    let after = bed.gcp_done(bed.gcp_add(GCP_1, &json!({ "natIP": GCP_FREE }))).await;
    assert_eq!(after["error"]["errors"][0]["code"], "IP_IN_USE_BY_ANOTHER_RESOURCE");
}

#[tokio::test]
async fn a_permission_is_withheld_for_one_call() {
    let bed = bare().await;
    let fault = Fault::Withhold { permission: "ec2:AssociateAddress".into() };
    bed.sim.fault(Rule::once(On::default(), fault).after(2)); // the look-ups come first
    assert_eq!(bed.associate(AWS_FREE, I_1, "false").await.error().1, "UnauthorizedOperation");
    assert_eq!(bed.associate(AWS_FREE, I_1, "false").await.status, 200);
}

#[tokio::test]
async fn a_rule_is_for_the_calls_it_names() {
    let bed = bare().await;
    let node_2 = On { target: Some("node-2".into()), ..on(Cloud::Azure, "networkInterfaces.get") };
    let fault = Fault::Error { code: "InternalServerError".into(), message: None, status: None };
    bed.sim.fault(Rule::always(node_2, fault).after(1));
    let status = async |node: &str| {
        bed.azure_get(&format!("Microsoft.Network/networkInterfaces/{node}-nic")).await.status
    };
    assert_eq!([status("node-1").await, status("node-2").await, status("node-1").await], [200, 200, 200]);
    assert_eq!([status("node-2").await, status("node-1").await, status("node-2").await], [500, 200, 500]);
}

#[tokio::test]
async fn an_operation_takes_as_long_as_the_script_says() {
    let bed = bare().await;
    let put = on(Cloud::Azure, "networkInterfaces.createOrUpdate");
    bed.sim.fault(Rule::once(put, Fault::Pace { pace: Pace::Seconds(90.0) }));
    let nic = bed.nic_with("node-1", Some(AZURE_FREE)).await;
    bed.send(bed.put_nic("node-1", &nic)).await;
    bed.sim.advance(Duration::from_secs(89));
    assert_eq!(bed.holder(AZURE_FREE), None);
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(bed.holder(AZURE_FREE), Some(azure_node("node-1")));
}
