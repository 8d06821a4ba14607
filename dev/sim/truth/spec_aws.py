"""Holds recorded replies against the service model of EC2 that botocore ships.

Elements that the model does not have, elements that it requires and that are missing, and texts of the
wrong type or outside an enumeration are faults.
"""

import datetime
import xml.etree.ElementTree as ElementTree

import botocore.session

NAMESPACE = "{http://ec2.amazonaws.com/doc/2016-11-15/}"
MODEL = botocore.session.get_session().get_service_model("ec2")


def local(element):
    return element.tag.removeprefix(NAMESPACE)


def walk(shape, element, place):
    if shape.type_name == "structure":
        yield from walk_structure(shape, element, place)
    elif shape.type_name == "list":
        wanted = shape.member.serialization.get("name", "item")
        for n, item in enumerate(element):
            if local(item) != wanted:
                yield f"{place}[{n}]: is {local(item)}, should be {wanted}"
            yield from walk(shape.member, item, f"{place}[{n}]")
    else:
        yield from scalar(shape, element.text or "", place)


def walk_structure(shape, element, place):
    members = {member.serialization.get("name", name): (name, member) for name, member in shape.members.items()}
    seen = set()
    for child in element:
        if local(child) not in members:
            yield f"{place}.{local(child)}: is not in the model"
            continue
        name, member = members[local(child)]
        if name in seen:
            yield f"{place}.{name}: is there twice"
        seen.add(name)
        yield from walk(member, child, f"{place}.{name}")
    for name in shape.required_members:
        if name not in seen:
            yield f"{place}.{name}: is missing"


def scalar(shape, text, place):
    kind = shape.type_name
    if kind == "boolean" and text not in ("true", "false"):
        yield f"{place}: {text!r} is no boolean"
    elif kind in ("integer", "long") and not text.lstrip("-").isdigit():
        yield f"{place}: {text!r} is no integer"
    elif kind == "timestamp":
        try:
            datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            yield f"{place}: {text!r} is no time"
    elif kind == "string" and getattr(shape, "enum", None) and text not in shape.enum:
        yield f"{place}: {text!r} is none of {shape.enum}"


def faults(exchange):
    root = ElementTree.fromstring(exchange["reply"])
    if exchange["status"] != 200:
        error = root.find("Errors/Error")
        whole = error is not None and error.findtext("Code") and root.findtext("RequestID")
        return [] if whole and error.find("Message") is not None else [f"{exchange['reply']} is no error of the API"]
    action = exchange["action"]
    if root.tag != f"{NAMESPACE}{action}Response":
        return [f"the root is {root.tag}"]
    request_id = root.find(f"{NAMESPACE}requestId")
    if request_id is None:
        return ["requestId is missing"]
    root.remove(request_id)
    returned = root.find(f"{NAMESPACE}return")
    output = MODEL.operation_model(action).output_shape
    if returned is not None and (output is None or "Return" not in output.members):
        # Older actions answer whether they succeeded; the model leaves that out.
        root.remove(returned)
    return list(walk(output, root, action)) if output else [f"{local(child)}: is not in the model" for child in root]
