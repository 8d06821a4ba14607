"""Holds recorded replies against the discovery document of compute v1.

Members that the schema does not have, wrong types, values outside an enumeration, and a missing or wrong
`kind` (the one member that the document fixes in replies) are faults. So are members that the document
requires of what a caller inserts: a thing that was made has them.
"""

import json
from pathlib import Path

import googleapiclient

DOCUMENT = Path(googleapiclient.__file__).parent / "discovery_cache/documents/compute.v1.json"


class Schemas:
    def __init__(self):
        document = json.loads(DOCUMENT.read_text())
        self.schemas = document["schemas"]
        self.methods = {
            f"{resource}.{name}": method
            for resource, body in document["resources"].items()
            for name, method in body["methods"].items()
        }

    def faults(self, action, reply):
        method = self.methods.get(action)
        if method is None:
            return [f"the document has no method {action}"]
        return list(self.walk({"$ref": method["response"]["$ref"]}, reply, action))

    def walk(self, schema, value, place):
        if "$ref" in schema:
            schema = self.schemas[schema["$ref"]]
        kind = schema.get("type")
        if kind == "object":
            yield from self.walk_object(schema, value, place)
        elif kind == "array":
            if not isinstance(value, list):
                yield f"{place}: {value!r} is no list"
                return
            for n, item in enumerate(value):
                yield from self.walk(schema["items"], item, f"{place}[{n}]")
        else:
            yield from scalar(schema, value, place)

    def walk_object(self, schema, value, place):
        if not isinstance(value, dict):
            yield f"{place}: {value!r} is no object"
            return
        members = schema.get("properties", {})
        for name, member in members.items():
            fixed = name == "kind" and member.get("default")
            if fixed and value.get("kind") != fixed:
                yield f"{place}.kind: {value.get('kind')!r} should be {fixed!r}"
            if member.get("annotations", {}).get("required") and name not in value:
                yield f"{place}.{name}: is missing"
        for name, item in value.items():
            if name in members:
                yield from self.walk(members[name], item, f"{place}.{name}")
            elif "additionalProperties" in schema:
                yield from self.walk(schema["additionalProperties"], item, f"{place}.{name}")
            else:
                yield f"{place}.{name}: is not in the document"


def scalar(schema, value, place):
    wanted = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}.get(schema.get("type"))
    if wanted and (not isinstance(value, wanted) or (wanted is int and isinstance(value, bool))):
        yield f"{place}: {value!r} is no {schema['type']}"
    elif schema.get("format") in ("uint64", "int64") and schema["type"] == "string" and not value.isdigit():
        yield f"{place}: {value!r} is no number in text"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"


def envelope(reply):
    """Errors have no schema in the document; their form is that of the reference's error page."""
    error = reply.get("error", {})
    first = (error.get("errors") or [{}])[0]
    whole = isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
    if not whole or not {"reason", "message", "domain"} <= set(first):
        yield f"{reply!r} is no error of the API"


SCHEMAS = Schemas()


def faults(exchange):
    reply = json.loads(exchange["reply"])
    if exchange["status"] == 200:
        return SCHEMAS.faults(exchange["action"], reply)
    return list(envelope(reply))
