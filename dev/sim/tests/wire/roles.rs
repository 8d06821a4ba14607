//! Minimal-permission mode: the documented roles are enough, and each of their permissions is needed.

use crate::kit::{Answer, Bed, GCP_1, I_1};
use serde_json::json;
use sim::{Cloud, Roles};

/// Permissions of the role that moving addresses needs. Sources: for GCP the custom role of
/// doitintl/kubeip and the reference of each method; for AWS the service authorization reference; for
/// Azure the operations that a write of an interface joins.
const GCP: [&str; 8] = [
    "compute.addresses.get",
    "compute.addresses.list",
    "compute.addresses.use",
    "compute.instances.addAccessConfig",
    "compute.instances.deleteAccessConfig",
    "compute.instances.get",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
];
const AWS: [&str; 5] = [
    "ec2:AssociateAddress",
    "ec2:DescribeAddresses",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DisassociateAddress",
];
const AZURE: [&str; 9] = [
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
];

fn role(cloud: Cloud, permissions: &[&str]) -> Roles {
    let role = Some(permissions.iter().map(|&permission| permission.to_owned()).collect());
    match cloud {
        Cloud::Gcp => Roles { gcp: role, ..Roles::default() },
        Cloud::Aws => Roles { aws: role, ..Roles::default() },
        Cloud::Azure => Roles { azure: role, ..Roles::default() },
    }
}

/// All calls of a look-up, an attach and a detach on GCP; the answers.
async fn use_gcp(bed: &Bed) -> Vec<Answer> {
    let mut answers = vec![
        bed.gcp_get("regions/us-central1/addresses").await,
        bed.gcp_get("regions/us-central1/addresses/ip-203-0-1-1").await,
        bed.gcp_get(&Bed::gcp_path(GCP_1)).await,
    ];
    let changes = [
        bed.gcp_delete(GCP_1, "external-nat"),
        bed.gcp_add(GCP_1, &json!({ "natIP": "203.0.1.1" })),
        bed.gcp_delete(GCP_1, "External NAT"),
    ];
    for change in changes {
        let answer = bed.send(change).await;
        if answer.status == 200 {
            let name = answer.json()["name"].as_str().unwrap_or_default().to_owned();
            answers.push(bed.gcp_get(&format!("zones/us-central1-a/operations/{name}")).await);
        }
        answers.push(answer);
    }
    answers
}

async fn use_aws(bed: &Bed) -> Vec<Answer> {
    let associate = [("AllocationId", "eipalloc-0"), ("NetworkInterfaceId", "eni-0")];
    vec![
        bed.aws("DescribeAddresses", &[]).await,
        bed.aws("DescribeInstances", &[("InstanceId.1", I_1)]).await,
        bed.aws("DescribeNetworkInterfaces", &[]).await,
        bed.aws("AssociateAddress", &associate).await,
        bed.aws("DisassociateAddress", &[("AssociationId", "eipassoc-0")]).await,
    ]
}

async fn use_azure(bed: &Bed, nic: &serde_json::Value) -> Vec<Answer> {
    let mut answers = vec![
        bed.azure_get("Microsoft.Network/publicIPAddresses").await,
        bed.azure_get("Microsoft.Network/networkInterfaces/node-1-nic").await,
        bed.azure_get("Microsoft.Compute/virtualMachines/node-1").await,
    ];
    let answer = bed.send(bed.put_nic("node-1", nic)).await;
    if answer.status == 200 {
        answers.push(bed.azure_poll(&answer).await);
    }
    answers.push(answer);
    answers
}

/// Codes of the refusals among the answers.
fn refusals(answers: &[Answer]) -> Vec<String> {
    let codes = answers.iter().filter(|answer| answer.status == 403).map(|answer| answer.error().1);
    codes.collect()
}

async fn used(bed: &Bed, cloud: Cloud, nic: &serde_json::Value) -> Vec<String> {
    refusals(&match cloud {
        Cloud::Gcp => use_gcp(bed).await,
        Cloud::Aws => use_aws(bed).await,
        Cloud::Azure => use_azure(bed, nic).await,
    })
}

async fn check(cloud: Cloud, permissions: &[&str], codes: &[&str]) {
    let bed = Bed::small().await;
    let nic = bed.nic_with("node-1", Some("203.0.3.1")).await;
    bed.sim.set_roles(role(cloud, permissions));
    assert_eq!(used(&bed, cloud, &nic).await, [""; 0], "the role is enough");
    for withheld in permissions {
        let bed = Bed::small().await;
        let rest: Vec<&str> =
            permissions.iter().copied().filter(|permission| permission != withheld).collect();
        bed.sim.set_roles(role(cloud, &rest));
        let refused = used(&bed, cloud, &nic).await;
        assert!(!refused.is_empty(), "{withheld} is not needed");
        assert!(refused.iter().all(|code| codes.contains(&code.as_str())), "{withheld}: {refused:?}");
    }
}

#[tokio::test]
async fn a_minimal_role_of_gcp_is_enough_and_nothing_in_it_too_much() {
    check(Cloud::Gcp, &GCP, &["forbidden"]).await;
}

#[tokio::test]
async fn a_minimal_role_of_aws_is_enough_and_nothing_in_it_too_much() {
    check(Cloud::Aws, &AWS, &["UnauthorizedOperation"]).await;
}

#[tokio::test]
async fn a_minimal_role_of_azure_is_enough_and_nothing_in_it_too_much() {
    check(Cloud::Azure, &AZURE, &["AuthorizationFailed", "LinkedAuthorizationFailed"]).await;
}
