"""Holds recorded replies against the models of Azure's SDKs.

No machine-readable specification ships in a package, but the SDKs' models are generated from it: they name
every member and its type. Members that a model does not have and values of the wrong type are faults.
Enumerations are open there, so values outside of them are faults only where the text is not even a text.
"""

import datetime
import json
import re
import typing

from azure.mgmt.compute import models as compute
from azure.mgmt.network import models as network

MODELS = {
    "publicIPAddresses.get": network.PublicIPAddress,
    "publicIPAddresses.list": list[network.PublicIPAddress],
    "networkInterfaces.get": network.NetworkInterface,
    "networkInterfaces.list": list[network.NetworkInterface],
    "networkInterfaces.createOrUpdate": network.NetworkInterface,
    "networkInterfaces.updateTags": network.NetworkInterface,
    "virtualMachines.get": compute.VirtualMachine,
    "virtualMachines.list": list[compute.VirtualMachine],
    "virtualMachines.instanceView": compute.VirtualMachineInstanceView,
}


def package_of(model):
    """Both packages have models of the same name: a model's references are to its own package."""
    return network if model.__module__.startswith("azure.mgmt.network.") else compute


def members(model):
    """The members of a model by their names on the wire, with their types."""
    model({})  # the SDK finds the names out when the first one is made
    hints = {}
    for part in reversed(model.__mro__):
        hints.update(getattr(part, "__annotations__", {}))
    return {field._rest_name: hints.get(name, typing.Any) for name, field in model._attr_to_rest_field.items()}


def resolve(hint, package):
    """A type without what may be absent, and without names that stand for types."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        return getattr(package, hint.removeprefix("_models."))
    if typing.get_origin(hint) is typing.Union:
        parts = [resolve(part, package) for part in typing.get_args(hint) if part is not type(None)]
        return str if str in parts else parts[0]
    return hint


def walk(hint, value, place, package):
    hint = resolve(hint, package)
    origin = typing.get_origin(hint)
    if origin is list:
        if not isinstance(value, list):
            yield f"{place}: {value!r} is no list"
            return
        for n, item in enumerate(value):
            yield from walk(typing.get_args(hint)[0], item, f"{place}[{n}]", package)
    elif origin is dict:
        for name, item in value.items():
            yield from walk(typing.get_args(hint)[1], item, f"{place}.{name}", package)
    elif hint is datetime.datetime:
        yield from time(value, place)
    elif hint in (str, bool, int, float):
        if type(value) is not hint:
            yield f"{place}: {value!r} is no {hint.__name__}"
    elif hint is not typing.Any:
        yield from walk_model(hint, value, place)


def time(value, place):
    try:
        datetime.datetime.fromisoformat(re.sub(r"\.\d+", "", value).replace("Z", "+00:00"))
    except (TypeError, ValueError):
        yield f"{place}: {value!r} is no time"


def walk_model(model, value, place):
    if not isinstance(value, dict):
        yield f"{place}: {value!r} is no object"
        return
    known = members(model)
    for name, item in value.items():
        if name not in known:
            yield f"{place}.{name}: is not in the model {model.__name__}"
        else:
            yield from walk(known[name], item, f"{place}.{name}", package_of(model))


def faults(exchange):
    reply = json.loads(exchange["reply"])
    action = exchange["action"]
    if exchange["status"] >= 400:
        error = reply.get("error", {})
        whole = isinstance(error.get("code"), str) and isinstance(error.get("message"), str)
        return [] if whole else [f"{reply!r} is no error of the API"]
    if action == "operations.get":
        known = {"InProgress", "Succeeded", "Failed", "Canceled"}
        return [] if reply.get("status") in known else [f"{reply!r} is no state of an operation"]
    model = MODELS[action]
    if typing.get_origin(model) is list:
        extra = [f"{action}.{name}: is not in a list" for name in set(reply) - {"value", "nextLink"}]
        return extra + list(walk(model, reply["value"], action, network))
    return list(walk(model, reply, action, network))
