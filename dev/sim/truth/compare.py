"""Runs one boto3 script against the EC2 simulator and against moto, and compares every answer.

A difference must be listed in moto_differences.py with the documentation that says who is right. One that
is not listed fails, and so does a listed one that is none any more.
"""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

import moto_differences
from check_aws import client

X, Y = "203.0.113.10", "203.0.113.11"
UNKNOWN = "0" * 15 + "99"
STEPS = 0


class Moto:
    """moto's server as a process."""

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = Path(sys.executable).parent / "moto_server"
        command = [sys.executable, str(server), "-H", "127.0.0.1", "-p", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(150):
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/").read()
                return self
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("moto_server does not answer after 30 seconds")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class Script:
    """The script. Each step is a call; what it answers is kept in a form that both can share."""

    def __init__(self, url):
        self.ec2 = client(url)
        self.answers = {}
        self.names = {}
        self.known = {X, Y}

    def step(self, name, call):
        assert name not in self.answers, f"two steps are called {name!r}"
        try:
            self.answers[name] = call()
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            self.answers[name] = f"{error.response['Error']['Code']} {status}"
        except ResponseParserError:
            self.answers[name] = "no answer that makes sense"

    def name(self, given):
        """Ids differ from run to run: each gets a name by the order in which it came up."""
        if given not in self.names:
            kind = given.split("-")[0]
            count = sum(name.startswith(kind + "#") for name in self.names.values())
            self.names[given] = f"{kind}#{count + 1}"
        return self.names[given]

    def ip(self, given):
        return given if given in self.known else "of the cloud's choice"

    def address(self, found):
        """What an address shows. Absent and empty are the same to a reader."""
        shown = {"PublicIp": found["PublicIp"], "Domain": found["Domain"]}
        for member in ["AllocationId", "AssociationId", "InstanceId", "NetworkInterfaceId"]:
            if found.get(member):
                shown[member] = self.name(found[member])
        shown["PrivateIpAddress"] = bool(found.get("PrivateIpAddress"))
        return shown

    def addresses(self, **query):
        found = self.ec2.describe_addresses(**query)["Addresses"]
        return sorted((self.address(one) for one in found), key=lambda one: one["PublicIp"])

    def by_ip(self, *ips):
        return self.addresses(Filters=[{"Name": "public-ip", "Values": list(ips)}])

    def association(self, found):
        if not found:
            return None
        return self.ip(found["PublicIp"])

    def instance(self, instance):
        [reservation] = self.ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        found = reservation["Instances"][0]
        interfaces = sorted(found["NetworkInterfaces"], key=lambda one: one["Attachment"]["DeviceIndex"])
        return {
            "State": found["State"]["Name"],
            "PublicIpAddress": self.ip(found["PublicIpAddress"]) if found.get("PublicIpAddress") else None,
            "NetworkInterfaces": [
                {
                    "DeviceIndex": one["Attachment"]["DeviceIndex"],
                    "Association": self.association(one.get("Association")),
                    "PrivateIpAddresses": [
                        (private["Primary"], self.association(private.get("Association")))
                        for private in one["PrivateIpAddresses"]
                    ],
                }
                for one in interfaces
            ],
        }

    def owner(self, instance):
        [reservation] = self.ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        association = reservation["Instances"][0]["NetworkInterfaces"][0]["Association"]
        return "amazon" if association["IpOwnerId"] == "amazon" else "the account"

    def launch(self, interfaces=1):
        extra = {}
        if interfaces > 1:
            extra["NetworkInterfaces"] = [{"DeviceIndex": n} for n in range(interfaces)]
        launched = self.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, **extra)
        instance = launched["Instances"][0]["InstanceId"]
        self.ec2.get_waiter("instance_running").wait(
            InstanceIds=[instance], WaiterConfig={"Delay": 1, "MaxAttempts": 20}
        )
        return instance

    def interface_of(self, instance):
        filters = [{"Name": "attachment.instance-id", "Values": [instance]}]
        found = self.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
        return min(found, key=lambda one: one["Attachment"]["DeviceIndex"])["NetworkInterfaceId"]

    def associate(self, allocation, **target):
        return self.ec2.associate_address(AllocationId=allocation, **target)["AssociationId"]

    def run(self):
        self.a, self.b, self.two = self.launch(), self.launch(), self.launch(interfaces=2)
        self.eni_a, self.eni_b = self.interface_of(self.a), self.interface_of(self.b)
        self.step("a new instance has an address of the cloud's choice", lambda: self.instance(self.a))
        self.step("who owns the address of the cloud's choice", lambda: self.owner(self.a))
        self.step("an instance with two interfaces", lambda: len(self.instance(self.two)["NetworkInterfaces"]))
        self.look_up()
        self.associations()
        self.forced()
        self.detaching()
        self.life()
        self.faults()
        self.token_and_quota()
        return self.answers

    def look_up(self):
        allocate = self.ec2.allocate_address
        self.x = allocate(Domain="vpc", Address=X)["AllocationId"]
        self.y = allocate(Domain="vpc", Address=Y)["AllocationId"]
        for allocation in (self.x, self.y):
            self.name(allocation)
        self.step("look up by filter, one of two known", lambda: self.by_ip(X, "192.0.2.1"))
        self.step("an address names its border group", lambda: bool(
            self.ec2.describe_addresses(AllocationIds=[self.x])["Addresses"][0].get("NetworkBorderGroup")
        ))
        self.step("look up by parameter, unknown", lambda: self.addresses(PublicIps=[X, "192.0.2.1"]))
        self.step("look up by allocation id", lambda: self.addresses(AllocationIds=[self.y]))
        gone = f"eipalloc-{UNKNOWN}"
        self.step("look up by allocation id, unknown", lambda: self.addresses(AllocationIds=[gone]))
        self.step("look up by a wrong filter", lambda: self.addresses(Filters=[{"Name": "colour", "Values": ["red"]}]))
        values = [f"192.0.2.{n}" for n in range(201)]
        self.step("look up by 201 values", lambda: self.by_ip(*values))

    def associations(self):
        false = {"AllowReassociation": False}
        first = []
        self.step("associate", lambda: bool(first.append(self.associate(self.x, NetworkInterfaceId=self.eni_a, **false))))
        self.first = first[0]
        self.step("associated: the address", lambda: self.by_ip(X))
        self.step("associated: the instance", lambda: self.instance(self.a))
        filters = [{"Name": "association.public-ip", "Values": [X]}]
        self.step("associated: the interface by its address", lambda: [
            self.name(found["NetworkInterfaceId"])
            for found in self.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
        ])
        self.step("associate again with the same", lambda: bool(
            self.associate(self.x, NetworkInterfaceId=self.eni_a, **false)
        ))
        self.step("associate with another, not by force", lambda: bool(
            self.associate(self.x, NetworkInterfaceId=self.eni_b, **false)
        ))
        self.step("associate a second address, not by force", lambda: bool(
            self.associate(self.y, NetworkInterfaceId=self.eni_a, **false)
        ))
        self.tidy()

    def tidy(self):
        """Both start the next part alike, whatever they made of the last one."""
        for found in self.ec2.describe_addresses()["Addresses"]:
            if found.get("AssociationId"):
                self.ec2.disassociate_address(AssociationId=found["AssociationId"])
        self.names = {given: name for given, name in self.names.items() if not name.startswith("eipassoc")}

    def forced(self):
        self.associate(self.x, NetworkInterfaceId=self.eni_a)
        self.step("associate with another, nothing said", lambda: bool(
            self.associate(self.x, NetworkInterfaceId=self.eni_b)
        ))
        self.tidy()
        first = self.associate(self.x, NetworkInterfaceId=self.eni_a)
        self.step("associate with another, by force", lambda: bool(
            self.associate(self.x, NetworkInterfaceId=self.eni_b, AllowReassociation=True)
        ))
        self.step("moved: the address", lambda: self.by_ip(X))
        self.step("moved: the old instance", lambda: self.instance(self.a)["NetworkInterfaces"])
        self.step("moved: the old association", lambda: bool(self.ec2.disassociate_address(AssociationId=first)))
        self.step("associate a second address, by force", lambda: bool(
            self.associate(self.y, NetworkInterfaceId=self.eni_b, AllowReassociation=True)
        ))
        self.step("displaced: both addresses", lambda: self.by_ip(X, Y))
        self.tidy()

    def detaching(self):
        association = self.associate(self.x, InstanceId=self.a)
        self.step("associated by instance", lambda: self.by_ip(X))
        self.step("disassociate", lambda: bool(self.ec2.disassociate_address(AssociationId=association)))
        self.step("disassociated: the address", lambda: self.by_ip(X))
        self.step("disassociate again", lambda: bool(self.ec2.disassociate_address(AssociationId=association)))
        time.sleep(1.5)
        self.step("disassociated: the instance after a while", lambda: self.instance(self.a))
        self.step("associate with an instance with two interfaces", lambda: bool(
            self.associate(self.x, InstanceId=self.two)
        ))
        self.tidy()
        self.step("associate with nothing", lambda: bool(self.associate(self.x)))
        self.tidy()

    def life(self):
        self.associate(self.x, InstanceId=self.a)
        self.ec2.stop_instances(InstanceIds=[self.a])
        time.sleep(0.5)
        self.step("stopped: the address", lambda: self.by_ip(X))
        self.step("release while associated", lambda: bool(self.ec2.release_address(AllocationId=self.x)))
        if not self.by_ip(X):
            self.x = self.ec2.allocate_address(Domain="vpc", Address=X)["AllocationId"]
        self.tidy()
        self.associate(self.x, InstanceId=self.b)
        self.ec2.terminate_instances(InstanceIds=[self.b])
        time.sleep(1)
        self.step("terminated: the instance", lambda: self.instance(self.b))
        self.step("terminated: the address", lambda: bool(
            self.ec2.describe_addresses(AllocationIds=[self.x])["Addresses"][0].get("AssociationId")
        ))
        self.tidy()
        self.step("associate with a terminated instance", lambda: bool(self.associate(self.x, InstanceId=self.b)))
        self.tidy()

    def faults(self):
        describe = self.ec2.describe_instances
        self.step("an unknown instance", lambda: describe(InstanceIds=[f"i-{UNKNOWN}"]))
        self.step("a malformed instance", lambda: describe(InstanceIds=["node-1"]))
        self.step("instances by page and id", lambda: describe(InstanceIds=[self.a], MaxResults=5) and "answered")
        self.step("an unknown interface", lambda: self.associate(self.x, NetworkInterfaceId=f"eni-{UNKNOWN}"))
        gone = f"eipalloc-{UNKNOWN}"
        self.step("an unknown allocation", lambda: self.associate(gone, InstanceId=self.a))
        unknown = f"eipassoc-{UNKNOWN}"
        self.step("an unknown association", lambda: self.ec2.disassociate_address(AssociationId=unknown))
        self.step("only to try", lambda: self.associate(self.x, InstanceId=self.a, DryRun=True))
        self.step("release", lambda: bool(self.ec2.release_address(AllocationId=self.y)))
        self.step("release again", lambda: bool(self.ec2.release_address(AllocationId=self.y)))

    def token_and_quota(self):
        def run_once():
            launch = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1, "ClientToken": "the-same"}
            return self.ec2.run_instances(**launch)["Instances"][0]["InstanceId"]

        self.step("launch twice with one token", lambda: run_once() == run_once())
        before = len(self.ec2.describe_addresses()["Addresses"])

        def six():
            for _ in range(6 - before):
                self.ec2.allocate_address(Domain="vpc")
            return "six addresses"

        self.step("a sixth address", six)


def run(sim, report):
    global STEPS
    sim.world()
    ours = Script(sim.urls["aws"]).run()
    with Moto() as moto:
        theirs = Script(moto.url).run()
    assert list(ours) == list(theirs), "both runs have the same steps"
    STEPS = len(ours)
    differing = {name for name in ours if ours[name] != theirs[name]}
    listed = moto_differences.DIFFERENCES
    for name in ours:
        if name in differing and name not in listed:
            why = f"ours: {ours[name]}\nmoto: {theirs[name]}\nput it right, or list it in moto_differences.py"
            report.fail(f"moto {name}", why)
        elif name in listed and name not in differing:
            report.fail(f"moto {name}", f"no difference any more ({ours[name]}); take it off moto_differences.py")
        else:
            report.passed += 1
            print(f"ok      moto {name}{' (differs as listed)' if name in differing else ''}")
    for name in set(listed) - set(ours):
        report.fail(f"moto {name}", "is listed in moto_differences.py, but there is no such step")
    return len(differing)
