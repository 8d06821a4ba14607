"""Drives the EC2 simulator with boto3."""

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from kit import AWS_NODES, addresses, equal, instances, raises

FREE, OTHER = "203.0.2.1", "203.0.2.2"
FIRST, SECOND = "i-00000000000000001", "i-00000000000000002"


def client(endpoint, **config):
    return boto3.client(
        "ec2", endpoint_url=endpoint, region_name="eu-west-1", aws_access_key_id="AKIDTRUTH",
        aws_secret_access_key="secret", config=Config(retries={"mode": "standard", "max_attempts": 5}, **config),
    )


class Checks:
    def __init__(self, sim):
        self.sim = sim
        self.ec2 = client(sim.urls["aws"])
        self.fresh()

    def fresh(self, nodes=AWS_NODES, **settings):
        self.sim.world(instances(nodes), addresses("aws", 3, 2), {"aws": settings} if settings else None)

    def find(self, *ips):
        return self.ec2.describe_addresses(Filters=[{"Name": "public-ip", "Values": list(ips)}])["Addresses"]

    def interface(self, instance):
        [reservation] = self.ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        [interface] = reservation["Instances"][0]["NetworkInterfaces"]
        return interface

    def associate(self, ip, instance, **options):
        [address] = self.find(ip)
        interface = self.interface(instance)["NetworkInterfaceId"]
        options = {"AllowReassociation": False, **options}
        reply = self.ec2.associate_address(
            AllocationId=address["AllocationId"], NetworkInterfaceId=interface, **options
        )
        return reply["AssociationId"]

    def refused(self, code, status, body):
        error = raises(ClientError, body)
        equal((error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]), (code, status))
        return error.response["Error"]["Message"]

    def look_up(self):
        [found] = self.find(FREE, "192.0.2.1")
        equal((found["PublicIp"], found["Domain"], found["NetworkBorderGroup"]), (FREE, "vpc", "eu-west-1"))
        assert "AssociationId" not in found, found
        again = self.ec2.describe_addresses(AllocationIds=[found["AllocationId"]])["Addresses"]
        equal(again, [found])

    def list_over_several_pages(self):
        nodes = [f"aws:///eu-west-1a/i-{n:017x}" for n in range(1, 14)]
        self.fresh(nodes)
        pages = self.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
        equal([len(page["Reservations"]) for page in pages], [5, 5, 3])
        pages = self.ec2.get_paginator("describe_network_interfaces").paginate(PaginationConfig={"PageSize": 6})
        equal([len(page["NetworkInterfaces"]) for page in pages], [6, 6, 1])

    def instance(self):
        interface = self.interface(FIRST)
        equal((interface["Attachment"]["DeviceIndex"], interface["Association"]["IpOwnerId"]), (0, "amazon"))
        equal(interface["PrivateIpAddresses"][0]["Primary"], True)

    def attach(self):
        association = self.associate(FREE, FIRST)
        [found] = self.find(FREE)
        equal((found["AssociationId"], found["InstanceId"]), (association, FIRST))
        equal(self.interface(FIRST)["Association"]["PublicIp"], FREE)
        equal(self.sim.holder(FREE), AWS_NODES[0])
        return association

    def attach_to_an_instance(self):
        [address] = self.find(FREE)
        self.ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=SECOND)
        equal(self.sim.holder(FREE), AWS_NODES[1])

    def conflict_on_the_address(self):
        association = self.attach()
        message = self.refused("Resource.AlreadyAssociated", 400, lambda: self.associate(FREE, SECOND))
        assert message.endswith(f"is already associated with associate-id {association}"), message

    def conflict_on_the_interface(self):
        self.attach()
        self.refused("Resource.AlreadyAssociated", 400, lambda: self.associate(OTHER, FIRST))

    def move_by_force(self):
        self.attach()
        self.associate(FREE, SECOND, AllowReassociation=True)
        equal(self.sim.holder(FREE), AWS_NODES[1])

    def detach(self):
        association = self.attach()
        self.ec2.disassociate_address(AssociationId=association)
        assert "AssociationId" not in self.find(FREE)[0]
        return association

    def detach_again(self):
        association = self.detach()
        self.refused(
            "InvalidAssociationID.NotFound", 400, lambda: self.ec2.disassociate_address(AssociationId=association)
        )

    def not_found(self):
        gone = "0" * 16 + "9"
        describe = self.ec2.describe_addresses
        self.refused("InvalidAddress.NotFound", 400, lambda: describe(PublicIps=["192.0.2.1"]))
        self.refused("InvalidAllocationID.NotFound", 400, lambda: describe(AllocationIds=[f"eipalloc-{gone}"]))
        self.refused("InvalidInstanceID.NotFound", 400, lambda: self.ec2.describe_instances(InstanceIds=[f"i-{gone}"]))
        [address] = self.find(FREE)
        self.refused("InvalidNetworkInterfaceID.NotFound", 400, lambda: self.ec2.associate_address(
            AllocationId=address["AllocationId"], NetworkInterfaceId=f"eni-{gone}"
        ))

    def throttled_and_retried(self):
        self.sim.fault("aws", "DescribeAddresses", {"kind": "throttle"}, times=2)
        equal(len(self.find(FREE)), 1)
        equal(self.sim.calls("DescribeAddresses"), [503, 503, 200])

    def reply_lost_and_retried(self):
        self.sim.fault("aws", "AssociateAddress", {"kind": "lost_reply"})
        self.refused("Resource.AlreadyAssociated", 400, lambda: self.associate(FREE, FIRST))
        equal(self.sim.calls("AssociateAddress"), [None, 400])
        equal(self.find(FREE)[0]["InstanceId"], FIRST)

    def permission_denied(self):
        self.sim.admin("PUT", "/roles", {"aws": ["ec2:Describe*"]})
        message = self.refused("UnauthorizedOperation", 403, lambda: self.associate(FREE, FIRST))
        assert "Encoded authorization failure message:" in message, message

    def dry_run(self):
        [address] = self.find(FREE)
        call = {"AllocationId": address["AllocationId"], "InstanceId": FIRST, "DryRun": True}
        self.refused("DryRunOperation", 412, lambda: self.ec2.associate_address(**call))
        equal(self.sim.holder(FREE), None)

    def accepted_and_not_yet_visible(self):
        """EC2 has no operations that fail late; what it has instead are reads that are behind."""
        self.associate(FREE, FIRST)
        self.sim.fault("aws", "DescribeAddresses", {"kind": "lag", "seconds": 300}, times=2)
        seen = ["AssociationId" in self.find(FREE)[0] for _ in range(3)]
        equal(seen, [False, False, True])

    def interfaces(self):
        self.attach()
        filters = [{"Name": "association.public-ip", "Values": [FREE]}]
        [interface] = self.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
        equal(interface["Attachment"]["InstanceId"], FIRST)

    def life_of_an_instance(self):
        launched = self.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"][0]
        ids = [launched["InstanceId"]]
        self.ec2.get_waiter("instance_running").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 10})
        self.ec2.stop_instances(InstanceIds=ids)
        self.ec2.start_instances(InstanceIds=ids)
        self.ec2.terminate_instances(InstanceIds=ids)
        self.ec2.get_waiter("instance_terminated").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 10})

    def life_of_an_address(self):
        allocated = self.ec2.allocate_address(Domain="vpc", TagSpecifications=[
            {"ResourceType": "elastic-ip", "Tags": [{"Key": "owner", "Value": "truth & co"}]}
        ])
        [found] = self.ec2.describe_addresses(Filters=[{"Name": "tag:owner", "Values": ["truth*"]}])["Addresses"]
        equal((found["PublicIp"], found["Tags"]), (allocated["PublicIp"], [{"Key": "owner", "Value": "truth & co"}]))
        self.ec2.release_address(AllocationId=allocated["AllocationId"])
        equal(self.find(allocated["PublicIp"]), [])


def run(sim, report):
    helpers = ("fresh", "find", "interface", "associate", "refused")
    for name, body in vars(Checks).items():
        if not name.startswith("_") and name not in helpers:
            report.check(f"aws  {name.replace('_', ' ')}", lambda body=body: body(Checks(sim)))
