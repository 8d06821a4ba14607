"""Where moto answers otherwise than the EC2 simulator: who is right, and what says so.

"Model" is the EC2 service model that botocore ships, whose texts are those of the API reference. "Error page"
is "Error codes for the Amazon EC2 API".
"""

from typing import NamedTuple


class Difference(NamedTuple):
    right: str
    because: str


US = "the simulator"
MOTO = "moto"

DIFFERENCES = {
    "who owns the address of the cloud's choice": Difference(
        US,
        "Replies of the real service in public test fixtures have 'amazon' as the owner of an address that an instance got "
        "by itself, and clients tell it by that from an elastic one. moto names the account.",
    ),
    "an address names its border group": Difference(
        US,
        "Model, Address.NetworkBorderGroup: where the address is advertised from, which every address is. moto leaves it out.",
    ),
    "look up by a wrong filter": Difference(
        US, "Error page, InvalidParameterValue: 'a value specified in a parameter is not valid'. moto answers 500 in HTML."
    ),
    "look up by 201 values": Difference(
        US, "User guide, 'Find your EC2 resources': up to 200 values per filter. moto has no limit."
    ),
    "associated: the address": Difference(
        US,
        "Model, Address.InstanceId: 'The ID of the instance that the address is associated with (if any)'. moto leaves it "
        "out when the address was associated by its interface.",
    ),
    "associated: the interface by its address": Difference(
        US,
        "Model, DescribeNetworkInterfaces, filter association.public-ip: 'The address of the Elastic IP address (IPv4) "
        "bound to the network interface'. moto answers 500 in HTML.",
    ),
    "associate again with the same": Difference(
        MOTO,
        "Model, AssociateAddress: 'This is an idempotent operation', and AllowReassociation=false guards against "
        "'another resource'. The simulator refuses by default all the same, because an SDK that repeats a call whose "
        "reply was lost must be able to live with either answer; the setting repeatedAssociate: sameAssociation makes "
        "it answer as documented. To be confirmed live.",
    ),
    "associate a second address, not by force": Difference(
        US,
        "aws-quickstart/quickstart-linux-bastion issue 21 has the refusal of the real service: 'resource eni-… and "
        "10.… is already associated with public address …'. moto lists two addresses on one private address, of which "
        "the model says: 'If you associate an Elastic IP address with an instance that has an existing Elastic IP "
        "address, the existing address is disassociated'.",
    ),
    "associate with another, nothing said": Difference(
        US, "Model, AllowReassociation: 'Reassociation is automatic, but you can specify false'. moto takes false for granted."
    ),
    "moved: the address": Difference(US, "Model, Address.InstanceId, as above: moto leaves it out."),
    "moved: the old instance": Difference(
        US,
        "Model, AssociateAddress: 'it is disassociated from that instance and associated with the specified instance'. "
        "In moto the old instance goes on showing the address.",
    ),
    "displaced: both addresses": Difference(
        US,
        "Model, AssociateAddress: 'the existing address is disassociated from the instance, but remains allocated to your "
        "account'. moto leaves both on one private address.",
    ),
    "associate with an instance with two interfaces": Difference(
        US, "Model, AssociateAddress.InstanceId: 'The instance must have exactly one attached network interface'."
    ),
    "release while associated": Difference(
        US,
        "Model, ReleaseAddress: '[Nondefault VPC] You must disassociate the Elastic IP address before you can release it. "
        "Otherwise, Amazon EC2 returns an error (InvalidIPAddress.InUse)'. Clusters run in networks of their own.",
    ),
    "terminated: the instance": Difference(
        US,
        "User guide, 'Terminate Amazon EC2 instances': interfaces that were made with the instance are deleted with it "
        "(DeleteOnTermination). moto goes on showing them.",
    ),
    "terminated: the address": Difference(
        US,
        "User guide, 'Elastic IP addresses' and 'Terminate Amazon EC2 instances': the address is disassociated when its "
        "interface is deleted. In moto it stays associated.",
    ),
    "associate with a terminated instance": Difference(
        US,
        "Error page, IncorrectInstanceState and InvalidInstanceID: the instance must be in a state that allows it; the "
        "wording is that of the refusal which hashicorp/terraform-provider-aws waits out for pending ones.",
    ),
    "a malformed instance": Difference(
        US, "Error page, InvalidInstanceID.Malformed: 'The specified instance ID is malformed'. moto answers NotFound."
    ),
    "launch twice with one token": Difference(
        US, "Model, RunInstances.ClientToken: 'to ensure the idempotency of the request'. moto launches twice."
    ),
    "a sixth address": Difference(
        US,
        "Error page, AddressLimitExceeded; user guide, 'Elastic IP addresses': five in a Region by default. moto has no limit.",
    ),
}
