//! AWS: elastic addresses come to interfaces and leave them.

use crate::kit::{AWS_1, AWS_2, Bed, I_1, I_2, ip, small_world};
use sim::Rule;
use sim::{AddressSpec, Change, Cloud, Fault, InstanceState, On, Repeated, Roles};
use std::collections::HashSet;
use std::time::Duration;

const FREE: &str = "203.0.2.1";
const OTHER: &str = "203.0.2.2";

async fn disassociate(bed: &Bed, id: &str) -> crate::kit::Answer {
    bed.aws("DisassociateAddress", &[("AssociationId", id)]).await
}

async fn instance(bed: &Bed, id: &str) -> crate::kit::Answer {
    bed.aws("DescribeInstances", &[("InstanceId.1", id)]).await
}

// 1. Trace in ansible/ansible issue 27385.
#[tokio::test]
async fn associating_a_taken_address_without_reassociation_is_refused() {
    let bed = Bed::small().await;
    let first = bed.associate(FREE, I_1, "false").await.one("associationId");
    let answer = bed.associate(FREE, I_2, "false").await;
    assert_eq!(answer.error(), (400, "Resource.AlreadyAssociated".into()));
    let allocation = bed.allocation(FREE).await;
    let expected = format!("resource {allocation} is already associated with associate-id {first}");
    assert_eq!(answer.message(), expected);
    assert_eq!(bed.holder(FREE).as_deref(), Some(AWS_1));
}

// 2. Trace in aws-quickstart/quickstart-linux-bastion issue 21.
#[tokio::test]
async fn associating_with_a_private_address_that_has_one_is_refused() {
    let bed = Bed::small().await;
    bed.associate(FREE, I_1, "false").await;
    let answer = bed.associate(OTHER, I_1, "false").await;
    assert_eq!(answer.error(), (400, "Resource.AlreadyAssociated".into()));
    let expected = format!("is already associated with public address {FREE}");
    assert!(answer.message().ends_with(&expected), "{}", answer.message());
}

// 3. AssociateAddress reference: an address that another instance has is taken from it.
#[tokio::test]
async fn associating_with_reassociation_takes_the_address_and_kills_the_old_association() {
    let bed = Bed::small().await;
    let first = bed.associate(FREE, I_1, "false").await.one("associationId");
    let second = bed.associate(FREE, I_2, "true").await.one("associationId");
    assert_ne!(first, second);
    assert_eq!(bed.holder(FREE).as_deref(), Some(AWS_2));
    assert_eq!(disassociate(&bed, &first).await.error(), (400, "InvalidAssociationID.NotFound".into()));
    assert_eq!(bed.holder(FREE).as_deref(), Some(AWS_2));
}

// 4. AssociateAddress reference: the address that the instance had leaves it and stays allocated.
#[tokio::test]
async fn associating_with_reassociation_displaces_what_the_interface_had() {
    let bed = Bed::small().await;
    bed.associate(FREE, I_1, "false").await;
    assert_eq!(bed.associate(OTHER, I_1, "true").await.status, 200);
    assert_eq!(bed.holder(OTHER).as_deref(), Some(AWS_1));
    assert_eq!(bed.holder(FREE), None);
    assert_eq!(bed.aws_address(FREE).await.all("publicIp"), [FREE]);
}

// 5. skymill/aws-ec2-assign-elastic-ip issue 25: the default differs between accounts.
#[tokio::test]
async fn what_is_assumed_without_the_flag_depends_on_the_account() {
    let bed = Bed::small().await;
    bed.associate(FREE, I_1, "false").await;
    let (allocation, eni) = (bed.allocation(FREE).await, bed.eni(I_2).await);
    let params = [("AllocationId", allocation.as_str()), ("NetworkInterfaceId", eni.as_str())];
    bed.sim.set(|settings| settings.aws.reassociate_by_default = false);
    let old_account = bed.aws("AssociateAddress", &params).await;
    assert_eq!(old_account.error().1, "Resource.AlreadyAssociated");
    bed.sim.set(|settings| settings.aws.reassociate_by_default = true);
    assert_eq!(bed.aws("AssociateAddress", &params).await.status, 200);
}

// 6. hashicorp/terraform issue 1682: the reference calls it idempotent, the service answers NotFound.
#[tokio::test]
async fn disassociating_twice_is_not_found_and_has_no_effect() {
    let bed = Bed::small().await;
    let first = bed.associate(FREE, I_1, "false").await.one("associationId");
    assert_eq!(disassociate(&bed, &first).await.one("return"), "true");
    bed.associate(FREE, I_2, "false").await;
    assert_eq!(disassociate(&bed, &first).await.error(), (400, "InvalidAssociationID.NotFound".into()));
    assert_eq!(bed.holder(FREE).as_deref(), Some(AWS_2));
}

// 7. AssociateAddress reference: the id names one association.
#[tokio::test]
async fn each_association_has_another_id() {
    let bed = Bed::small().await;
    let mut ids = HashSet::new();
    for _ in 0..5 {
        let id = bed.associate(FREE, I_1, "false").await.one("associationId");
        disassociate(&bed, &id).await;
        ids.insert(id);
    }
    assert_eq!(ids.len(), 5);
}

// 12. AssociateAddress reference: by instance only if it has exactly one interface.
#[tokio::test]
async fn an_instance_with_two_interfaces_cannot_be_named_as_the_target() {
    let bed = Bed::small().await;
    bed.sim.change(&Change::AddInterface { instance: AWS_1.into() }).unwrap();
    let allocation = bed.allocation(FREE).await;
    let params = [("AllocationId", allocation.as_str()), ("InstanceId", I_1)];
    let answer = bed.aws("AssociateAddress", &params).await;
    assert_eq!(answer.error(), (400, "InvalidInstanceID".into()));
    assert!(answer.message().starts_with("There are multiple interfaces attached to instance"));
    let params = [("AllocationId", allocation.as_str()), ("InstanceId", I_2)];
    assert_eq!(bed.aws("AssociateAddress", &params).await.status, 200);
}

// 14. VPC guide on elastic addresses: the auto-assigned address is given up.
#[tokio::test]
async fn associating_drops_the_auto_assigned_address() {
    let bed = Bed::small().await;
    let before = instance(&bed, I_1).await;
    assert_eq!(before.all("ipOwnerId"), ["amazon", "amazon"]);
    let automatic = before.one("ipAddress");
    bed.associate(FREE, I_1, "false").await;
    let after = instance(&bed, I_1).await;
    assert_eq!(after.one("ipAddress"), FREE);
    assert_eq!(after.all("ipOwnerId"), ["123456789012", "123456789012"]);
    assert!(!after.text.contains(&automatic));
}

// 15. EC2 instance addressing page; aws/amazon-vpc-cni-k8s issue 1327 shows what follows from it.
#[tokio::test]
async fn a_new_auto_assigned_address_comes_only_to_an_instance_with_one_interface() {
    let bed = Bed::small().await;
    bed.sim.change(&Change::AddInterface { instance: AWS_2.into() }).unwrap();
    for (address, id) in [(FREE, I_1), (OTHER, I_2)] {
        let association = bed.associate(address, id, "false").await.one("associationId");
        disassociate(&bed, &association).await;
        assert_eq!(instance(&bed, id).await.all("ipAddress").len(), 0);
    }
    bed.sim.advance(Duration::from_mins(1));
    assert_eq!(instance(&bed, I_1).await.all("ipAddress").len(), 1);
    assert_eq!(instance(&bed, I_2).await.all("ipAddress").len(), 0);
}

// 16. terraform-provider-aws ec2_eip.go retries on this text.
#[tokio::test]
async fn a_pending_instance_is_refused() {
    let bed = Bed::small().await;
    let change = Change::SetState { instance: AWS_1.into(), state: InstanceState::Pending };
    bed.sim.change(&change).unwrap();
    let answer = bed.associate(FREE, I_1, "false").await;
    assert_eq!(answer.error(), (400, "InvalidInstanceID".into()));
    let expected = format!("The pending instance '{I_1}' is not in a valid state for this operation.");
    assert_eq!(answer.message(), expected);
}

// 19. terraform-provider-aws documentation, pull request 4675: the interface is not the caller's.
#[tokio::test]
async fn the_address_of_a_nat_gateway_has_no_instance_and_cannot_be_taken() {
    let mut held = AddressSpec::free(Cloud::Aws, ip("203.0.9.9"));
    held.held_by = Some("natGateways/nat-1".into());
    let bed = Bed::start(small_world().reserved(held)).await;
    let address = bed.aws_address("203.0.9.9").await;
    assert_eq!(address.all("networkInterfaceId").len(), 1);
    assert_eq!(address.all("instanceId").len(), 0);
    let answer = bed.associate("203.0.9.9", I_1, "true").await;
    assert_eq!(answer.error().1, "AuthFailure");
    assert_eq!(bed.holder("203.0.9.9").as_deref(), Some("natGateways/nat-1"));
}

// 20. AssociateAddress reference: not in another network border group.
#[tokio::test]
async fn an_address_of_another_border_group_is_refused() {
    let mut local = AddressSpec::free(Cloud::Aws, ip("203.0.9.9"));
    local.border_group = Some("us-west-2-lax-1".into());
    let bed = Bed::start(small_world().reserved(local)).await;
    let answer = bed.associate("203.0.9.9", I_1, "false").await;
    assert_eq!(answer.error(), (400, "InvalidParameterValue".into()));
    assert!(answer.message().contains("network border group us-west-2-lax-1"));
}

// 21. EC2 error page, UnauthorizedOperation: 403 with an encoded message; reads may still be allowed.
#[tokio::test]
async fn reading_can_be_allowed_and_associating_denied() {
    let bed = Bed::small().await;
    bed.sim.set_roles(Roles { aws: Some(vec!["ec2:Describe*".into()]), ..Roles::default() });
    let answer = bed.associate(FREE, I_1, "false").await;
    assert_eq!(answer.error(), (403, "UnauthorizedOperation".into()));
    let message = answer.message();
    assert!(message.contains("is not authorized to perform: ec2:AssociateAddress"), "{message}");
    let encoded = message.split("Encoded authorization failure message: ").nth(1).unwrap();
    assert!(encoded.len() > 200, "{encoded}");
    assert_eq!(bed.holder(FREE), None);
}

// 22. EC2 error page, Gateway.NotAttached.
#[tokio::test]
async fn a_network_without_an_internet_gateway_is_refused() {
    let mut world = small_world();
    world.instances[2].no_gateway = true;
    let bed = Bed::start(world).await;
    let answer = bed.associate(FREE, I_1, "false").await;
    assert_eq!(answer.error(), (400, "Gateway.NotAttached".into()));
}

// 23. An SDK that repeats a lost call meets its own success. Which answer the service gives is not
// confirmed, so there is a setting.
#[tokio::test]
async fn a_repeated_association_is_refused_or_the_same_by_setting() {
    let bed = Bed::small().await;
    let (allocation, eni) = (bed.allocation(FREE).await, bed.eni(I_1).await);
    let params = [
        ("AllocationId", allocation.as_str()),
        ("NetworkInterfaceId", &eni),
        ("AllowReassociation", "false"),
    ];
    bed.sim.fault(Rule::once(On::action(Cloud::Aws, "AssociateAddress"), Fault::LostReply));
    bed.try_send(bed.aws_request("AssociateAddress", &params)).await.expect_err("an answer");
    let association = bed.aws_address(FREE).await.one("associationId");
    assert_eq!(bed.aws("AssociateAddress", &params).await.error().1, "Resource.AlreadyAssociated");
    bed.sim.set(|settings| settings.aws.repeated_associate = Repeated::SameAssociation);
    assert_eq!(bed.aws("AssociateAddress", &params).await.one("associationId"), association);
}

// 14. Trace in tigera/docs pull request 602: wherever on the instance the address goes.
#[tokio::test]
async fn associating_with_a_second_interface_drops_the_auto_assigned_address_too() {
    let bed = Bed::small().await;
    bed.sim.change(&Change::AddInterface { instance: AWS_1.into() }).unwrap();
    let interfaces = bed
        .aws(
            "DescribeNetworkInterfaces",
            &[("Filter.1.Name", "attachment.instance-id"), ("Filter.1.Value.1", I_1)],
        )
        .await;
    let first = interfaces.text.split("<item>").find(|item| item.contains("amazon")).unwrap().to_owned();
    let all = interfaces.all("networkInterfaceId");
    let second = all.iter().find(|id| !first.contains(id.as_str())).unwrap();
    let allocation = bed.allocation(FREE).await;
    let params = [("AllocationId", allocation.as_str()), ("NetworkInterfaceId", second.as_str())];
    assert_eq!(bed.aws("AssociateAddress", &params).await.status, 200);
    let after = instance(&bed, I_1).await;
    assert!(!after.text.contains("<ipOwnerId>amazon</ipOwnerId>"), "{}", after.text);
    assert_eq!(after.one("ipAddress"), FREE);
}
