"""Constants, structures, conditions and parameters as data (JSON or CBOR), and back. Nothing here calls what the data
names."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import math
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..errors import UserError
from .conditions import OPS, Condition, InputSpec, Size, Value
from .parameters import ABSENT, Parameters
from .structure import Constant, Leaf, Node, Structure

_TORCH_TYPES = {
    torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format",
}  # fmt: skip


# ---- constants


def encode(value: Any) -> Any:
    """A constant, a node, or a container of such as JSON data. UserError for other values."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is list:
        return [encode(each) for each in value]
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if isinstance(value, torch.Size):
        return {"size": [encode(each) for each in value]}
    if isinstance(value, tuple):  # also torch.fx's immutable ones
        return {"tuple": [encode(each) for each in value]}
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(each)] for key, each in value.items()]}
    if isinstance(value, slice):
        return {"slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if type(value) is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if value is Ellipsis:
        return {"ellipsis": True}
    if value is ABSENT:
        return {"absent": True}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    kind = _TORCH_TYPES.get(type(value))
    if kind is not None:
        return {kind: str(value).removeprefix("torch.")}
    raise UserError(f"export: a {type(value).__qualname__} cannot be saved: {value!r}")


def decode(data: Any, nodes: Mapping[str, fx.Node] | None = None) -> Any:
    """The value that `encode` gave as `data`."""
    if isinstance(data, list):
        return [decode(each, nodes) for each in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise UserError(f"the file is damaged: unknown data {data!r}")
    ((kind, content),) = data.items()
    if kind == "node":
        if nodes is None or content not in nodes:
            raise UserError(f"the file is damaged: there is no node {content!r}")
        return nodes[content]
    if kind in ("tuple", "size", "slice"):
        items = [decode(each, nodes) for each in content]
        return tuple(items) if kind == "tuple" else torch.Size(items) if kind == "size" else slice(*items)
    if kind == "dict":
        return {decode(key, nodes): decode(each, nodes) for key, each in content}
    return _plain(kind, content)


def _plain(kind: str, content: Any) -> Any:
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(*map(float, content))
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "ellipsis":
        return Ellipsis
    if kind == "absent":
        return ABSENT
    if kind == "device":
        try:
            return torch.device(content)
        except RuntimeError as error:
            raise UserError(f"the file is damaged: {error}") from error
    for cls, name in _TORCH_TYPES.items():
        found = getattr(torch, str(content), None) if kind == name else None
        if isinstance(found, cls):
            return found
    raise UserError(f"the file is damaged or newer than this version of torch: {kind} {content!r}")


# ---- structures


def encode_structure(structure: Structure) -> Any:
    """A structure. UserError for one with a class that a file cannot name."""
    if isinstance(structure, Leaf):
        return structure.index
    if isinstance(structure, Constant):
        return {"constant": encode(structure.value)}
    data: dict[str, Any] = {"kind": structure.kind, "children": [encode_structure(each) for each in structure.children]}
    if structure.keys:
        data["keys"] = [encode(key) for key in structure.keys]
    if structure.cls is not None:
        data["class"] = [structure.cls.__module__, structure.cls.__qualname__]
    if structure.kind == "pytree":
        data["context"] = _encode_context(structure)
    return data


def _encode_context(node: Node) -> Any:
    definition = pytree.SUPPORTED_SERIALIZED_TYPES.get(node.cls)  # type: ignore[arg-type]
    if definition is not None and definition.to_dumpable_context is not None:
        return {"dumped": definition.to_dumpable_context(node.context)}
    return {"plain": encode(node.context)}


def decode_structure(data: Any, classes: Mapping[tuple[str, str], type], or_plain: bool = False) -> Structure:
    """The structure that `encode_structure` gave as `data`. `classes`: those that may be needed, by module and name,
    besides those of modules that are imported. UserError if another one is needed; `or_plain`: then a dict of the same
    keys takes its place, or a tuple where there are no keys."""
    if isinstance(data, int):
        return Leaf(data)
    if "constant" in data:
        return Constant(decode(data["constant"]))
    children = tuple(decode_structure(each, classes, or_plain) for each in data["children"])
    keys = tuple(decode(key) for key in data.get("keys", ()))
    cls = _class_of(data["kind"], data["class"], classes) if "class" in data else None
    if cls is None and "class" in data:
        if not or_plain:
            module, name = data["class"]
            raise UserError(
                f"the program needs the class {module}.{name}, a {data['kind']}: import {module} before it is loaded, "
                "or pass the class: load(path, classes=[...])"
            )
        names = keys or _keys_of(data, len(children))
        return Node("dict" if names else "tuple", children, names)
    context = _decode_context(cls, data["context"]) if data["kind"] == "pytree" else None
    return Node(data["kind"], children, keys, cls, context)


def _decode_context(cls: Any, data: Any) -> Any:
    if "plain" in data:
        return decode(data["plain"])
    definition = pytree.SUPPORTED_SERIALIZED_TYPES[cls]
    assert definition.from_dumpable_context is not None
    return definition.from_dumpable_context(data["dumped"])


def _keys_of(data: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The texts that pytree keeps of an object of a registered class, if there is one for each of its children."""
    context = data.get("context", {}).get("plain")
    listed = isinstance(context, list) and len(context) == count and all(isinstance(each, str) for each in context)
    return tuple(context) if listed else ()


def _class_of(kind: str, path: Any, classes: Mapping[tuple[str, str], type]) -> type | None:
    """A class of containers by its module and name; None if it is not known. No module is imported for it."""
    module, name = path
    found: Any = classes.get((module, name))
    if found is None:
        found = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
    valid = isinstance(found, type) and (
        found in pytree.SUPPORTED_NODES if kind == "pytree"
        else dataclasses.is_dataclass(found) if kind == "dataclass"
        else found.__new__ is object.__new__ and not hasattr(found, "__del__") if kind == "object"
        else issubclass(found, tuple) and hasattr(found, "_fields")
    )  # fmt: skip
    return found if valid else None


# ---- conditions


def encode_spec(spec: InputSpec) -> dict[str, Any]:
    return {field.name: encode(getattr(spec, field.name)) for field in dataclasses.fields(spec)}


def decode_spec(data: Mapping[str, Any]) -> InputSpec:
    return InputSpec(**{name: decode(each) for name, each in data.items()})


def encode_condition(condition: Condition) -> dict[str, Any]:
    return {"term": _encode_term(condition.term), "text": condition.text, "why": condition.why}


def decode_condition(data: Mapping[str, Any]) -> Condition:
    return Condition(_decode_term(data["term"]), data["text"], data["why"])


def _encode_term(term: Any) -> Any:
    if isinstance(term, Size):
        return {term.method: [term.leaf, term.dim]}
    if isinstance(term, Value):
        return {"input": term.leaf}
    if isinstance(term, tuple):
        return [term[0], *map(_encode_term, term[1:])]
    return {"number": encode(term)}


def _decode_term(data: Any) -> Any:
    if isinstance(data, list):
        if data[0] not in OPS:
            raise UserError(f"the file is damaged: unknown operator {data[0]!r}")
        return (data[0], *map(_decode_term, data[1:]))
    for method in ("size", "stride"):
        if method in data:
            leaf, dim = data[method]
            return Size(leaf, dim, method)
    return Value(data["input"]) if "input" in data else decode(data["number"])


# ---- parameters


def encode_parameters(parameters: Parameters) -> dict[str, Any]:
    empty = inspect.Parameter.empty
    return {
        "signature": [
            {"name": each.name, "kind": int(each.kind)}
            | ({} if each.default is empty else {"default": encode(each.default)})
            for each in parameters.signature.parameters.values()
        ],
        "given": {name: encode_structure(structure) for name, structure in parameters.given.items()},
        "by_keyword": sorted(parameters.by_keyword),
    }


def decode_parameters(
    data: Mapping[str, Any], classes: Mapping[tuple[str, str], type], or_plain: bool = False
) -> Parameters:
    """The parameters that `encode_parameters` gave as `data`. `classes`, `or_plain`: as for `decode_structure`."""
    kinds = {int(kind): kind for kind in inspect._ParameterKind}
    signature = inspect.Signature([
        inspect.Parameter(
            each["name"], kinds[each["kind"]],
            default=decode(each["default"]) if "default" in each else inspect.Parameter.empty,
        )
        for each in data["signature"]
    ])  # fmt: skip
    given = {name: decode_structure(each, classes, or_plain) for name, each in data["given"].items()}
    return Parameters(signature, given, frozenset(data["by_keyword"]))
