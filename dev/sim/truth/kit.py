"""A running simulator, its admin port, and a report of what passed and what failed."""

import json
import subprocess
import traceback
import urllib.request

GCP_NODES = ["gce://dev-project/us-central1-a/node-1", "gce://dev-project/us-central1-b/node-2"]
AWS_NODES = ["aws:///eu-west-1a/i-00000000000000001", "aws:///eu-west-1b/i-00000000000000002"]
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = "dev-nodes"
AZURE_NODES = [
    f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"
    for name in ["node-1", "node-2"]
]


class Report:
    """Counts checks and prints each."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, body):
        """Runs a check; it passes unless it raises."""
        try:
            body()
        except Exception:  # whatever went wrong is a failed check, and the others still run
            self.fail(name, traceback.format_exc())
        else:
            self.passed += 1
            print(f"ok      {name}")

    def fail(self, name, why):
        self.failed += 1
        print(f"FAILED  {name}\n{why}")


class Simulator:
    """The simulators as a process."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = [self.process.stdout.readline().split() for _ in range(4)]
        if not all(lines):
            raise SystemExit(f"{binary} did not say where it listens; run it by hand to see why")
        self.urls = dict(lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def admin(self, method, path, body=None):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        request = urllib.request.Request(self.urls["admin"] + path, data=data, method=method)
        with urllib.request.urlopen(request) as reply:
            text = reply.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def record(self):
        """Starts to record replies, from nothing. They survive a new world, so this comes first."""
        self.recorded = []

    def exchanges(self):
        """Everything recorded so far."""
        self.keep()
        return self.recorded

    def keep(self):
        """Keeps what was recorded before the world is replaced."""
        self.recorded += self.admin("GET", "/exchanges")
        self.admin("POST", "/exchanges")

    def world(self, instances=(), addresses=(), settings=None):
        """Starts anew with another world. Operations are done when asked for once, unless a check says otherwise."""
        self.keep()
        usual = {"gcp": {"operation": {"polls": 1}}, "azure": {"operation": {"polls": 1}, "retryAfter": 0}}
        for cloud, values in (settings or {}).items():
            usual.setdefault(cloud, {}).update(values)
        world = {"instances": list(instances), "addresses": list(addresses), "settings": usual}
        # JSON is YAML.
        self.admin("PUT", "/world", json.dumps(world).encode())
        self.admin("POST", "/exchanges")

    def fault(self, cloud, action, fault, times=1):
        rule = {"on": {"cloud": cloud, "action": action}, "fault": fault}
        if times:
            rule["times"] = times
        self.admin("POST", "/faults", rule)

    def calls(self, action):
        """How the calls of an action were answered, oldest first."""
        events = self.admin("GET", "/events?since=0")
        return [event.get("status") for event in events if event["kind"] == "call" and event["action"] == action]

    def holder(self, address):
        """Who holds an address, by the simulator's own account."""
        holds = self.admin("GET", "/snapshot")["holds"]
        return holds.get(address, {}).get("holder")


def instances(provider_ids, **fields):
    return [{"providerID": provider_id, **fields} for provider_id in provider_ids]


def addresses(cloud, count, network):
    return [{"cloud": cloud, "address": f"203.0.{network}.{n}"} for n in range(1, count + 1)]


def raises(kind, body):
    """Runs something that must raise, and gives what it raised."""
    try:
        body()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"
