"""Drives the Azure simulator with azure-mgmt-network and azure-mgmt-compute."""

import time

from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.network.models import PublicIPAddress, TagsObject

from kit import AZURE_NODES, GROUP, SUBSCRIPTION, addresses, equal, instances, raises

FREE, OTHER = "203.0.3.1", "203.0.3.2"
# The SDK sends tokens over plain http only when it is told to, call by call.
HTTP = {"enforce_https": False}


class Token:
    """A credential: the simulator takes any token and knows the caller by it."""

    def get_token(self, *_scopes, **_options):
        return AccessToken("truth", int(time.time()) + 3600)


class Checks:
    def __init__(self, sim):
        self.sim = sim
        options = {"credential": Token(), "subscription_id": SUBSCRIPTION, "base_url": sim.urls["azure"]}
        self.network = NetworkManagementClient(polling_interval=0, **options)
        self.compute = ComputeManagementClient(**options)
        self.fresh()

    def fresh(self, **settings):
        self.sim.world(instances(AZURE_NODES), addresses("azure", 5, 3), {"azure": settings} if settings else None)

    def find(self, ip):
        listed = self.network.public_ip_addresses.list_all(**HTTP)
        return next((found for found in listed if found.properties.ip_address == ip), None)

    def nic(self, node="node-1"):
        return self.network.network_interfaces.get(GROUP, f"{node}-nic", **HTTP)

    def put(self, nic, ip, **options):
        """Writes back an interface as it was read, with an address on it or without."""
        reference = {"id": self.find(ip).id} if ip else None
        nic.properties.ip_configurations[0].properties.public_ip_address = reference
        return self.network.network_interfaces.begin_create_or_update(
            GROUP, nic.name, nic, polling_interval=0, **HTTP, **options
        )

    def refused(self, code, status, body):
        error = raises(HttpResponseError, body)
        equal((error.error.code, error.status_code), (code, status))
        return error

    def look_up(self):
        found = self.find(FREE)
        equal((found.sku.name, found.properties.public_ip_allocation_method), ("Standard", "Static"))
        equal(found.properties.ip_configuration, None)
        again = self.network.public_ip_addresses.get(GROUP, found.name, **HTTP)
        equal((again.id, again.etag), (found.id, found.etag))
        equal(self.find("192.0.2.1"), None)

    def list_over_several_pages(self):
        self.fresh(pageSize=2)
        pages = self.network.public_ip_addresses.list_all(**HTTP).by_page()
        equal([len(list(page)) for page in pages], [2, 2, 1])
        of_group = self.network.public_ip_addresses.list(GROUP, **HTTP)
        equal(len(list(of_group)), 5)
        equal(len(list(self.network.network_interfaces.list_all(**HTTP))), 2)

    def instance(self):
        vm = self.compute.virtual_machines.get(GROUP, "node-1", expand="instanceView", **HTTP)
        [reference] = vm.properties.network_profile.network_interfaces
        equal(reference.id.lower(), self.nic().id.lower())
        equal(reference.properties.primary, True)
        equal(vm.properties.instance_view.statuses[1].code, "PowerState/running")
        equal(self.nic().properties.virtual_machine.id.lower(), vm.id.lower())
        view = self.compute.virtual_machines.instance_view(GROUP, "node-1", **HTTP)
        equal(view.statuses[1].code, "PowerState/running")
        equal(len(list(self.compute.virtual_machines.list_all(**HTTP))), 2)
        states = list(self.compute.virtual_machines.list_all(status_only="true", **HTTP))
        equal([state.properties.instance_view.statuses[1].code for state in states], ["PowerState/running"] * 2)

    def attach(self):
        written = self.put(self.nic(), FREE).result(10)
        equal(written.properties.provisioning_state, "Succeeded")
        config = self.nic().properties.ip_configurations[0]
        equal(config.properties.public_ip_address.id, self.find(FREE).id)
        equal(self.find(FREE).properties.ip_configuration.id, config.id)
        equal(self.sim.holder(FREE), AZURE_NODES[0])

    def attach_waits_for_the_operation(self):
        self.fresh(operation={"polls": 3})
        poller = self.put(self.nic(), FREE)
        poller.result(10)
        equal(self.sim.holder(FREE), AZURE_NODES[0])
        equal(len(self.sim.calls("operations.get")), 3)

    def attach_on_condition(self):
        nic = self.nic()
        self.put(nic, FREE, headers={"If-Match": nic.etag}).result(10)
        self.refused("PreconditionFailed", 412, lambda: self.put(nic, OTHER, headers={"If-Match": nic.etag}))

    def conflict(self):
        self.attach()
        error = self.refused("PublicIPAddressInUse", 400, lambda: self.put(self.nic("node-2"), FREE))
        assert "already allocated to resource" in error.error.message, error.error.message

    def conflict_on_a_busy_interface(self):
        self.fresh(operation={"seconds": 60})
        nic = self.nic()
        self.put(nic, FREE, polling=False)
        # The SDK takes 429 for throttling and would try again.
        self.refused(
            "RetryableErrorDueToAnotherOperation", 429, lambda: self.put(nic, OTHER, retry_total=0)
        )

    def detach(self):
        self.attach()
        self.put(self.nic(), None).result(10)
        equal(self.find(FREE).properties.ip_configuration, None)

    def detach_again(self):
        self.detach()
        self.put(self.nic(), None).result(10)
        equal(self.sim.holder(FREE), None)

    def tags(self):
        tags = TagsObject(tags={"owner": "truth"})
        updated = self.network.network_interfaces.update_tags(GROUP, "node-1-nic", tags, **HTTP)
        equal(updated.tags, {"owner": "truth"})
        equal(updated.properties.enable_accelerated_networking, True)

    def not_found(self):
        gone = [
            lambda: self.network.network_interfaces.get(GROUP, "gone", **HTTP),
            lambda: self.network.public_ip_addresses.get(GROUP, "gone", **HTTP),
            lambda: self.compute.virtual_machines.get(GROUP, "gone", **HTTP),
        ]
        for get in gone:
            error = raises(ResourceNotFoundError, get)
            equal(error.error.code, "ResourceNotFound")

    def throttled_and_retried(self):
        self.sim.fault("azure", "networkInterfaces.get", {"kind": "throttle", "seconds": 1})
        equal(self.nic().name, "node-1-nic")
        equal(self.sim.calls("networkInterfaces.get"), [429, 200])

    def permission_denied(self):
        nic = self.nic()
        self.sim.admin("PUT", "/roles", {"azure": ["*/read"]})
        self.refused("AuthorizationFailed", 403, lambda: self.put(nic, FREE))

    def permission_on_the_address_denied(self):
        nic = self.nic()
        self.sim.fault(
            "azure", "networkInterfaces.createOrUpdate",
            {"kind": "withhold", "permission": "Microsoft.Network/publicIPAddresses/join/action"},
        )
        self.refused("LinkedAuthorizationFailed", 403, lambda: self.put(nic, FREE))

    def operation_failed_late(self):
        self.sim.fault("azure", "networkInterfaces.createOrUpdate", {
            "kind": "late_failure", "code": "AnotherOperationInProgress", "message": "Another operation is in progress."
        })
        poller = self.put(self.nic(), FREE)
        error = raises(HttpResponseError, lambda: poller.result(10))
        equal(error.error.code, "AnotherOperationInProgress")
        equal(self.nic().properties.provisioning_state, "Failed")
        equal(self.sim.holder(FREE), None)

    def model_of_an_address(self):
        """The SDK's model keeps every member of an address: nothing was sent that it does not know."""
        found = self.find(FREE)
        assert isinstance(found, PublicIPAddress)
        equal(found.properties.public_ip_address_version, "IPv4")


def run(sim, report):
    helpers = ("fresh", "find", "nic", "put", "refused")
    for name, body in vars(Checks).items():
        if not name.startswith("_") and name not in helpers:
            report.check(f"azure {name.replace('_', ' ')}", lambda body=body: body(Checks(sim)))
