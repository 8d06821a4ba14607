"""Spoils recorded replies on purpose: a check of replies that finds no fault in them is worth nothing."""

import copy
import json


def spoiled_json(reply):
    """Ways to spoil a reply in JSON, each with a name."""
    def members(value, path=()):
        if isinstance(value, dict):
            for name, item in value.items():
                yield (*path, name), item
                yield from members(item, (*path, name))
        elif isinstance(value, list) and value:
            yield from members(value[0], (*path, 0))

    def with_value(path, value):
        spoiled = copy.deepcopy(reply)
        inner = spoiled
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        return spoiled

    found = list(members(reply))
    deepest = max((path for path, _ in found), key=len)
    text = next(path for path, item in found if isinstance(item, str))
    objects = [path for path, item in found if isinstance(item, dict)]
    yield "an unknown member", {**reply, "invented": "x"}
    yield "an unknown member far inside", with_value((*deepest[:-1], "invented"), "x")
    yield "a number for a text", with_value(text, 7)
    if objects:
        yield "a text for an object", with_value(objects[0], "x")


def spoiled_xml(reply):
    """Ways to spoil a reply in XML, each with a name."""
    yield "an unknown element", reply.replace("</requestId>", "</requestId><invented>x</invented>", 1)
    yield "a missing request id", reply.replace("requestId>", "id>")
    if "<instanceState>" in reply:
        yield "an unknown element far inside", reply.replace("<instanceState>", "<invented/><instanceState>", 1)
        yield "a text for a number", reply.replace("<code>16</code>", "<code>running</code>")
        yield "a word for a time", reply.replace("<launchTime>2", "<launchTime>soon", 1)
        yield "a value that no enumeration has", reply.replace("<name>running</name>", "<name>walking</name>", 1)
        yield "a text for a boolean", reply.replace("<sourceDestCheck>true<", "<sourceDestCheck>yes<", 1)


def check(cloud, exchanges, faults, report):
    """Every spoiled reply must be found out. `faults` finds the faults of an exchange."""
    wanted = {"gcp": "instances.get", "aws": "DescribeInstances", "azure": "networkInterfaces.get"}[cloud]
    exchange = next(e for e in exchanges if e["action"] == wanted and e["status"] == 200)
    assert not faults(exchange), "the reply is fine before it is spoiled"
    if cloud == "aws":
        ways = [(name, spoiled) for name, spoiled in spoiled_xml(exchange["reply"]) if spoiled != exchange["reply"]]
    else:
        ways = [(name, json.dumps(spoiled)) for name, spoiled in spoiled_json(json.loads(exchange["reply"]))]
    for name, spoiled in ways:
        if faults({**exchange, "reply": spoiled}):
            report.passed += 1
        else:
            report.fail(f"{cloud}  spoiled reply: {name}", "was not found out")
    return len(ways)
