"""Drives the GCP simulator with google-cloud-compute."""

from google.api_core import exceptions, retry
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from kit import GCP_NODES, addresses, equal, instances, raises

PROJECT, REGION, ZONE, OTHER_ZONE = "dev-project", "us-central1", "us-central1-a", "us-central1-b"
FREE = "203.0.1.1"


class Checks:
    def __init__(self, sim):
        self.sim = sim
        options = {
            "credentials": AnonymousCredentials(),
            "client_options": ClientOptions(api_endpoint=sim.urls["gcp"]),
        }
        self.addresses = compute_v1.AddressesClient(**options)
        self.instances = compute_v1.InstancesClient(**options)
        self.operations = compute_v1.ZoneOperationsClient(**options)
        self.projects = compute_v1.ProjectsClient(**options)
        # The SDK asks for operations with a client of its own, which it makes for the public endpoint
        # whatever the endpoint of this one is; unless there is one already.
        self.instances._transport._extended_operations_services["zone_operations"] = self.operations
        self.fresh()

    def fresh(self, **settings):
        nodes = instances(GCP_NODES, ephemeral=False)
        self.sim.world(nodes, addresses("gcp", 7, 1), {"gcp": settings} if settings else None)

    def find(self, address):
        request = compute_v1.ListAddressesRequest(project=PROJECT, region=REGION, filter=f'address="{address}"')
        return list(self.addresses.list(request))

    def node(self, name="node-1", zone=ZONE):
        return self.instances.get(project=PROJECT, zone=zone, instance=name)

    def add(self, address, name="node-1", zone=ZONE, **options):
        config = compute_v1.AccessConfig(
            name="ours", type_="ONE_TO_ONE_NAT", nat_i_p=address, network_tier="PREMIUM"
        )
        return self.instances.add_access_config(
            project=PROJECT, zone=zone, instance=name, network_interface="nic0", access_config_resource=config, **options
        )

    def delete(self, config="ours", name="node-1", zone=ZONE):
        return self.instances.delete_access_config(
            project=PROJECT, zone=zone, instance=name, access_config=config, network_interface="nic0"
        )

    def look_up(self):
        [found] = self.find(FREE)
        equal((found.address, found.status, found.network_tier, list(found.users)), (FREE, "RESERVED", "PREMIUM", []))
        equal(self.addresses.get(project=PROJECT, region=REGION, address=found.name).id, found.id)
        equal(self.find("192.0.2.1"), [])

    def look_up_by_regular_expression(self):
        request = compute_v1.ListAddressesRequest(
            project=PROJECT, region=REGION, filter=r'address eq "203\.0\.1\.(1|2)"'
        )
        equal([item.address for item in self.addresses.list(request)], ["203.0.1.1", "203.0.1.2"])

    def list_over_several_pages(self):
        request = compute_v1.ListAddressesRequest(project=PROJECT, region=REGION, max_results=3)
        pages = [len(page.items) for page in self.addresses.list(request).pages]
        equal(pages, [3, 3, 1])

    def list_over_all_regions(self):
        scopes = dict(self.addresses.aggregated_list(project=PROJECT))
        equal(len(scopes[f"regions/{REGION}"].addresses), 7)
        zones = dict(self.instances.aggregated_list(project=PROJECT))
        equal(sorted(zones), [f"zones/{ZONE}", f"zones/{OTHER_ZONE}"])
        equal(zones[f"zones/{ZONE}"].instances[0].name, "node-1")

    def instance(self):
        node = self.node()
        equal((node.name, node.status, node.network_interfaces[0].name), ("node-1", "RUNNING", "nic0"))
        equal([item.name for item in self.instances.list(project=PROJECT, zone=ZONE)], ["node-1"])

    def project(self):
        equal(self.projects.get(project=PROJECT).default_network_tier, "PREMIUM")

    def attach(self):
        self.add(FREE).result(timeout=10)
        config = self.node().network_interfaces[0].access_configs[0]
        equal((config.name, config.nat_i_p), ("ours", FREE))
        [found] = self.find(FREE)
        equal(found.status, "IN_USE")
        assert found.users[0].endswith("/zones/us-central1-a/instances/node-1"), found.users
        equal(self.sim.holder(FREE), GCP_NODES[0])

    def attach_waits_for_the_operation(self):
        self.fresh(operation={"polls": 3})
        operation = self.add(FREE)
        equal(operation.done(), False)
        operation.result(timeout=20)
        equal(self.sim.holder(FREE), GCP_NODES[0])

    def wait_on_the_server(self):
        started = self.add(FREE)
        done = self.operations.wait(project=PROJECT, zone=ZONE, operation=started.name)
        equal(done.status, compute_v1.Operation.Status.DONE)

    def conflict_on_the_address(self):
        self.attach()
        error = raises(exceptions.BadRequest, lambda: self.add(FREE, "node-2", OTHER_ZONE))
        assert "is already in-use" in error.message, error.message

    def conflict_on_the_interface(self):
        self.attach()
        error = raises(exceptions.BadRequest, lambda: self.add("203.0.1.2"))
        assert error.message.endswith("At most one access config currently supported."), error.message
        equal(error.errors[0]["reason"], "badRequest")

    def detach(self):
        self.attach()
        self.delete().result(timeout=10)
        equal(len(self.node().network_interfaces[0].access_configs), 0)
        equal(self.find(FREE)[0].status, "RESERVED")

    def detach_again(self):
        self.detach()
        equal(self.delete().result(timeout=10), None)
        equal(self.find(FREE)[0].status, "RESERVED")

    def same_request_id(self):
        request = compute_v1.AddAccessConfigInstanceRequest(
            project=PROJECT, zone=ZONE, instance="node-1", network_interface="nic0",
            request_id="6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            access_config_resource=compute_v1.AccessConfig(nat_i_p=FREE),
        )
        first = self.instances.add_access_config(request)
        first.result(timeout=10)
        equal(self.instances.add_access_config(request).name, first.name)

    def stale_fingerprint(self):
        interface = compute_v1.NetworkInterface(fingerprint="AAAAAAAAAAA=", stack_type="IPV4_IPV6")
        error = raises(exceptions.PreconditionFailed, lambda: self.instances.update_network_interface(
            project=PROJECT, zone=ZONE, instance="node-1", network_interface="nic0", network_interface_resource=interface
        ))
        equal(error.errors[0]["reason"], "conditionNotMet")

    def not_found(self):
        error = raises(exceptions.NotFound, lambda: self.node("gone"))
        assert error.message.endswith(
            "The resource 'projects/dev-project/zones/us-central1-a/instances/gone' was not found"
        ), error.message
        raises(exceptions.NotFound, lambda: self.addresses.get(project=PROJECT, region=REGION, address="gone"))
        raises(exceptions.BadRequest, lambda: self.add("192.0.2.1"))

    def throttled_and_retried(self):
        self.sim.fault("gcp", "instances.get", {"kind": "throttle", "seconds": 1})

        def rate_limited(error):
            errors = getattr(error, "errors", None)
            return bool(errors) and errors[0].get("reason") == "rateLimitExceeded"

        policy = retry.Retry(predicate=rate_limited, initial=0.3, timeout=20)
        node = self.instances.get(project=PROJECT, zone=ZONE, instance="node-1", retry=policy)
        equal(node.name, "node-1")
        answers = self.sim.calls("instances.get")
        assert answers[0] == 403 and answers[-1] == 200, answers

    def unavailable_and_retried(self):
        self.sim.fault("gcp", "addresses.list", {"kind": "error", "code": "backendError"}, times=2)
        policy = retry.Retry(predicate=retry.if_exception_type(exceptions.ServiceUnavailable), initial=0.1)
        found = list(self.addresses.list(project=PROJECT, region=REGION, retry=policy))
        equal((len(found), self.sim.calls("addresses.list")), (7, [503, 503, 200]))

    def permission_denied(self):
        self.sim.admin("PUT", "/roles", {"gcp": ["compute.instances.get", "compute.instances.addAccessConfig"]})
        error = raises(exceptions.Forbidden, lambda: self.add(FREE))
        equal(error.errors[0]["reason"], "forbidden")
        assert "Required 'compute.addresses.use' permission" in error.message, error.message
        equal(self.node().name, "node-1")

    def operation_failed_late(self):
        self.sim.fault("gcp", "instances.addAccessConfig", {
            "kind": "late_failure", "code": "IP_IN_USE_BY_ANOTHER_RESOURCE", "message": f"IP '{FREE}' is in use."
        })
        operation = self.add(FREE)
        error = raises(exceptions.GoogleAPICallError, lambda: operation.result(timeout=10))
        assert FREE in str(error), error
        equal(operation.error_code, 400)
        equal(self.sim.holder(FREE), None)


def run(sim, report):
    for name, body in vars(Checks).items():
        if not name.startswith("_") and name not in ("fresh", "find", "node", "add", "delete"):
            report.check(f"gcp  {name.replace('_', ' ')}", lambda body=body: body(Checks(sim)))
