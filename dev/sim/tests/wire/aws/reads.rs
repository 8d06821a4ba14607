//! AWS: what reads show, and when they are refused.

use crate::kit::{AWS_1, Bed, I_1, ip, small_world};
use sim::{AddressSpec, Bucket, Buckets, Change, Cloud, Fault, InstanceSpec, Limits, On};
use sim::{Rule, Unassociated};
use std::collections::HashSet;
use std::time::Duration;

const FREE: &str = "203.0.2.1";
const OTHER: &str = "203.0.2.2";

async fn instance(bed: &Bed, id: &str) -> crate::kit::Answer {
    bed.aws("DescribeInstances", &[("InstanceId.1", id)]).await
}

// 8. EC2 developer guide on eventual consistency; terraform-provider-aws waits for minutes.
#[tokio::test]
async fn reads_after_a_write_lag_and_disagree() {
    let bed = Bed::small().await;
    bed.sim.set(|settings| settings.aws.read_lag = 60.0);
    let (allocation, eni) = {
        bed.sim.set(|settings| settings.aws.read_lag = 0.0);
        (bed.allocation(FREE).await, bed.eni(I_1).await)
    };
    bed.sim.set(|settings| settings.aws.read_lag = 60.0);
    let params = [("AllocationId", allocation.as_str()), ("NetworkInterfaceId", eni.as_str())];
    bed.aws("AssociateAddress", &params).await;
    bed.sim.advance(Duration::from_secs(30));
    let mut seen = Vec::new();
    for _ in 0..40 {
        seen.push(bed.aws_address(FREE).await.all("associationId").len());
    }
    assert!(seen.contains(&0) && seen.contains(&1), "{seen:?}");
    assert!(seen.windows(2).any(|pair| pair == [1, 0]), "a later read never showed less: {seen:?}");
    bed.sim.advance(Duration::from_secs(31));
    for _ in 0..20 {
        assert_eq!(bed.aws_address(FREE).await.all("associationId").len(), 1);
    }
}

// 9. DescribeAddresses reference and error page: InvalidAddress.NotFound.
#[tokio::test]
async fn an_unknown_address_fails_the_parameter_but_not_the_filter() {
    let bed = Bed::small().await;
    let by_parameter = [("PublicIp.1", FREE), ("PublicIp.2", "192.0.2.77")];
    let answer = bed.aws("DescribeAddresses", &by_parameter).await;
    assert_eq!(answer.error(), (400, "InvalidAddress.NotFound".into()));
    let by_filter =
        [("Filter.1.Name", "public-ip"), ("Filter.1.Value.1", FREE), ("Filter.1.Value.2", "192.0.2.77")];
    assert_eq!(bed.aws("DescribeAddresses", &by_filter).await.all("publicIp"), [FREE]);
}

// 10. EC2 user guide on filtering: at most 200 values.
#[tokio::test]
async fn more_than_two_hundred_filter_values_are_refused() {
    let bed = Bed::small().await;
    let names: Vec<String> = (1..=201).map(|n| format!("Filter.1.Value.{n}")).collect();
    let mut params = vec![("Filter.1.Name", "public-ip")];
    params.extend(names.iter().map(|name| (name.as_str(), FREE)));
    assert_eq!(bed.aws("DescribeAddresses", &params).await.error(), (400, "FilterLimitExceeded".into()));
    params.pop();
    assert_eq!(bed.aws("DescribeAddresses", &params).await.status, 200);
}

// 11. EC2 API throttling page: a token bucket per action; 503 without Retry-After.
#[tokio::test]
async fn each_action_has_its_token_bucket() {
    let bed = Bed::small().await;
    let bucket = Bucket { burst: 2.0, per_second: 1.0 };
    let aws = Some(Buckets { read: bucket, write: bucket });
    bed.sim.set_limits(Limits { aws, ..Limits::default() });
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(bed.aws("DescribeAddresses", &[]).await);
    }
    assert_eq!(statuses.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200, 503]);
    assert_eq!(statuses[2].error().1, "RequestLimitExceeded");
    assert_eq!(statuses[2].header("retry-after"), None);
    assert_eq!(bed.aws("DescribeInstances", &[]).await.status, 200, "another action has another bucket");
    bed.sim.advance(Duration::from_secs(1));
    assert_eq!(bed.aws("DescribeAddresses", &[]).await.status, 200);
}

// 13. DescribeInstances reference: the order of elements may change.
#[tokio::test]
async fn the_order_of_interfaces_changes() {
    let bed = Bed::small().await;
    bed.sim.change(&Change::AddInterface { instance: AWS_1.into() }).unwrap();
    let mut orders = HashSet::new();
    for _ in 0..20 {
        let answer = instance(&bed, I_1).await;
        let order = answer.all("deviceIndex");
        assert_eq!(order.iter().collect::<HashSet<_>>().len(), 2);
        orders.insert(order);
    }
    assert_eq!(orders.len(), 2);
}

// 17. EC2 guide on terminating: described for about an hour; interfaces and associations go.
#[tokio::test]
async fn a_terminated_instance_is_described_for_an_hour_and_frees_its_address() {
    let bed = Bed::small().await;
    bed.associate(FREE, I_1, "false").await;
    bed.sim.terminate_instance(AWS_1).unwrap();
    assert_eq!(bed.aws_address(FREE).await.all("associationId").len(), 1, "freed after a while only");
    bed.sim.advance(Duration::from_secs(5));
    assert_eq!(bed.aws_address(FREE).await.all("associationId").len(), 0);
    let described = instance(&bed, I_1).await;
    assert_eq!(described.all("name"), ["terminated"]);
    assert_eq!(described.all("networkInterfaceId").len(), 0);
    bed.sim.advance(Duration::from_hours(1));
    assert_eq!(instance(&bed, I_1).await.error(), (400, "InvalidInstanceID.NotFound".into()));
}

// 18. EC2 guide on stopping: an elastic address stays.
#[tokio::test]
async fn a_stopped_instance_keeps_its_address() {
    let bed = Bed::small().await;
    bed.associate(FREE, I_1, "false").await;
    bed.sim.stop_instance(AWS_1).unwrap();
    bed.sim.advance(Duration::from_mins(10));
    assert_eq!(instance(&bed, I_1).await.all("name"), ["stopped"]);
    assert_eq!(bed.aws_address(FREE).await.one("instanceId"), I_1);
}

// 24. EC2 error page, RequestExpired: credentials run out while a program runs.
#[tokio::test]
async fn credentials_can_expire_mid_run() {
    let bed = Bed::small().await;
    let on = On { caller: Some("AKIDEXAMPLE".into()), ..On::default() };
    let fault = Fault::Error { code: "RequestExpired".into(), message: None, status: None };
    bed.sim.fault(Rule::always(on, fault).after(1));
    assert_eq!(bed.aws("DescribeAddresses", &[]).await.status, 200);
    for _ in 0..2 {
        assert_eq!(bed.aws("DescribeAddresses", &[]).await.error(), (400, "RequestExpired".into()));
    }
    let other =
        bed.request(reqwest::Method::GET, &format!("{}/?Action=DescribeAddresses", bed.sim.aws_url()));
    assert_eq!(bed.send(other).await.status, 200, "another caller has other credentials");
}

// 25. Replies in the wild have both forms.
#[tokio::test]
async fn an_unassociated_address_has_empty_or_no_fields() {
    let bed = Bed::small().await;
    assert_eq!(bed.aws_address(FREE).await.all("associationId").len(), 0);
    bed.sim.set(|settings| settings.aws.unassociated = Unassociated::Empty);
    let address = bed.aws_address(FREE).await;
    for field in ["associationId", "instanceId", "networkInterfaceId", "privateIpAddress"] {
        assert_eq!(address.one(field), "", "{field}");
    }
}

// Paging. DescribeInstances reference: MaxResults 5 to 1000, NextToken, not together with ids.
#[tokio::test]
async fn instances_come_in_pages() {
    let mut world = small_world();
    for n in 10..20 {
        world = world.instance(InstanceSpec::of(&format!("aws:///eu-west-1a/i-{n:017x}")));
    }
    let bed = Bed::start(world).await;
    let first = bed.aws("DescribeInstances", &[("MaxResults", "7")]).await;
    assert_eq!(first.all("reservationId").len(), 7);
    let token = first.one("nextToken");
    let rest = bed.aws("DescribeInstances", &[("MaxResults", "7"), ("NextToken", &token)]).await;
    assert_eq!(rest.all("reservationId").len(), 5);
    assert_eq!(rest.all("nextToken").len(), 0);
    let combined = bed.aws("DescribeInstances", &[("MaxResults", "7"), ("InstanceId.1", I_1)]).await;
    assert_eq!(combined.error(), (400, "InvalidParameterCombination".into()));
    let small = bed.aws("DescribeInstances", &[("MaxResults", "4")]).await;
    assert_eq!(small.error(), (400, "InvalidParameterValue".into()));
}

// Quota. EC2 error page, AddressLimitExceeded; five addresses in a region.
#[tokio::test]
async fn a_sixth_address_is_over_the_quota() {
    let bed = Bed::small().await;
    for _ in 0..3 {
        assert_eq!(bed.aws("AllocateAddress", &[("Domain", "vpc")]).await.status, 200);
    }
    assert_eq!(bed.aws("AllocateAddress", &[]).await.error(), (400, "AddressLimitExceeded".into()));
}

// Identity. EC2 error page: ids of the wrong form are told from those that name nothing.
#[tokio::test]
async fn malformed_ids_are_told_from_unknown_ones() {
    let bed = Bed::small().await;
    let code = async |id| instance(&bed, id).await.error().1;
    assert_eq!(code("i-00000000000000099").await, "InvalidInstanceID.NotFound");
    assert_eq!(code("node-1").await, "InvalidInstanceID.Malformed");
}

// Regions. Each region is a world of its own: the region is in the signature.
#[tokio::test]
async fn things_of_another_region_are_not_seen() {
    let mut abroad = AddressSpec::free(Cloud::Aws, ip("203.0.9.9"));
    abroad.region = Some("us-east-1".into());
    let bed = Bed::start(small_world().reserved(abroad)).await;
    let seen = bed.aws("DescribeAddresses", &[]).await.all("publicIp");
    assert_eq!(seen.iter().map(String::as_str).collect::<HashSet<_>>(), HashSet::from([FREE, OTHER]));
}
