"""Nested containers as data: how the leaves of arguments and results (tensors, numbers, constants) are arranged.

A `Structure` is a `Leaf`, a `Constant` or a `Node`. Nodes are lists, tuples, dicts, named tuples, dataclasses,
`torch.Size` and the classes that are registered with `torch.utils._pytree`.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import UserError

Step = tuple[str, Any]  # ("item", an index or a key) or ("attr", a name)
Path = tuple[Step, ...]
# Types of values other than tensors that may be leaves.
PLAIN_TYPES = (
    int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
    type(Ellipsis),
)  # fmt: skip


class SizeOf(tuple[Any, ...]):
    """What a result that is a `torch.Size` is while its numbers are not known."""


@dataclass(frozen=True)
class Leaf:
    """The `index`-th of the leaves."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A value that is always the same."""

    value: Any


@dataclass(frozen=True)
class Node:
    """A container. `kind`: tuple, list, dict, OrderedDict, namedtuple, dataclass, size or pytree. `cls`: the class of
    the last five. `keys`: of a dict the keys, of a named tuple or dataclass the names of the fields, otherwise empty.
    `context`: what pytree keeps of an object of a registered class besides the children. Results may also be objects of
    other classes: `kind` object, with the names of attributes as `keys`."""

    kind: str
    children: tuple[Structure, ...]
    keys: tuple[Any, ...] = ()
    cls: type | None = None
    context: Any = None


Structure = Leaf | Constant | Node


def path_text(path: Path) -> str:
    """A path as Python source that follows the name of a variable: `[0].mask['a']`."""
    return "".join(f".{key}" if kind == "attr" else f"[{key!r}]" for kind, key in path)


def opened(value: Any) -> tuple[Node, list[tuple[Step, Any]]] | None:
    """The node of a container, still without children, and its children with the step to each; None for a leaf."""
    cls = type(value)
    if cls in (Leaf, Constant, Node):
        return None
    if cls in (tuple, list):
        return Node(cls.__name__, ()), [(("item", index), each) for index, each in enumerate(value)]
    if cls in (dict, collections.OrderedDict):
        return Node(cls.__name__, (), tuple(value)), [(("item", key), each) for key, each in value.items()]
    if cls in (torch.Size, SizeOf):
        return Node("size", ()), [(("item", index), each) for index, each in enumerate(value)]
    if cls in pytree.SUPPORTED_NODES:
        return _registered(value)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return Node("namedtuple", (), cls._fields, cls), [(("item", i), each) for i, each in enumerate(value)]
    return _dataclass(value) if dataclasses.is_dataclass(cls) else None


def _dataclass(value: Any) -> tuple[Node, list[tuple[Step, Any]]]:
    names = tuple(field.name for field in dataclasses.fields(value) if hasattr(value, field.name))
    return Node("dataclass", (), names, type(value)), [(("attr", name), getattr(value, name)) for name in names]


def _registered(value: Any) -> tuple[Node, list[tuple[Step, Any]]]:
    definition = pytree.SUPPORTED_NODES[type(value)]
    children, context = definition.flatten_fn(value)
    steps: list[Step] = [("item", index) for index in range(len(children))]
    if definition.flatten_with_keys_fn is not None:
        keyed, _ = definition.flatten_with_keys_fn(value)
        steps = [_step_of(key, index) for index, (key, _) in enumerate(keyed)]
    return Node("pytree", (), (), type(value), context), list(zip(steps, children, strict=True))


def _step_of(key: Any, index: int) -> Step:
    if isinstance(key, pytree.GetAttrKey):
        return "attr", key.name
    if isinstance(key, pytree.MappingKey):
        return "item", key.key
    return "item", getattr(key, "idx", index)


def _object(value: Any) -> tuple[Node, list[tuple[Step, Any]]] | None:
    """Like `opened`, for an object whose state is its `__dict__`."""
    cls = type(value)
    held = getattr(value, "__dict__", None)
    if cls in PLAIN_TYPES or isinstance(value, torch.Tensor | type | types.FunctionType | enum.Enum):
        return None
    if type(held) is not dict or cls.__new__ is not object.__new__ or cls.__module__.startswith("pyframe."):
        return None
    return Node("object", (), tuple(held), cls), [(("attr", name), each) for name, each in held.items()]


def flatten(
    value: Any, leaf: Callable[[Any, Path], Structure], path: Path = (), objects: bool = False
) -> Structure:
    """The structure of a value. `leaf(value, path)` gives the structure of what is no container. `objects`: objects of
    any class are containers of their attributes."""
    found = opened(value)
    if found is None and objects:
        found = _object(value)
    if found is None:
        return leaf(value, path)
    node, children = found
    parts = tuple(flatten(child, leaf, (*path, step), objects) for step, child in children)
    return dataclasses.replace(node, children=parts)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The value with this structure and these leaves."""
    if isinstance(structure, Leaf):
        return leaves[structure.index]
    if isinstance(structure, Constant):
        return structure.value
    return build(structure, [unflatten(child, leaves) for child in structure.children])


def build(node: Node, children: list[Any]) -> Any:
    """The container with these children."""
    cls: Any = node.cls
    if node.kind == "list":
        return children
    if node.kind == "tuple":
        return tuple(children)
    if node.kind == "size":
        return torch.Size(children)
    if node.kind in ("dict", "OrderedDict"):
        items = zip(node.keys, children, strict=True)
        return dict(items) if node.kind == "dict" else collections.OrderedDict(items)
    if node.kind == "namedtuple":
        return cls(*children)
    if node.kind in ("dataclass", "object"):
        return object_of(cls, dict(zip(node.keys, children, strict=True)))
    return pytree.SUPPORTED_NODES[cls].unflatten_fn(children, node.context)


def object_of(cls: Any, values: dict[str, Any]) -> Any:
    """An object with these attributes. Its `__init__` does not run: it ran, or was traced, already."""
    made = object.__new__(cls)
    for name, value in values.items():
        if hasattr(made, "__dict__"):
            vars(made)[name] = value
        else:
            object.__setattr__(made, name, value)
    return made


def matched(structure: Structure, value: Any, name: str, found: dict[int, Any]) -> None:
    """Put the leaves of `value` into `found`, by index. UserError if it does not have this structure; `name` is what
    the message calls it."""
    if isinstance(structure, Leaf):
        found[structure.index] = value
        return
    if isinstance(structure, Constant):
        return
    known = type(value) is structure.cls and structure.kind == "dataclass"  # it may be registered with pytree since
    opening = _dataclass(value) if known else opened(value)
    if opening is None or opening[0].kind != structure.kind or opening[0].cls is not structure.cls:
        wanted = structure.kind if structure.cls is None else structure.cls.__qualname__
        raise UserError(f"{name} must be a {wanted}, as in the example, not a {type(value).__qualname__}")
    node, children = opening
    by_step = dict(children) if structure.keys else {}
    if structure.keys:
        if set(node.keys) != set(structure.keys):
            raise UserError(f"{name} must have the keys {list(structure.keys)}, not {list(node.keys)}")
        step = "attr" if structure.kind == "dataclass" else "item"
        names = range(len(structure.keys)) if structure.kind == "namedtuple" else structure.keys
        children = [((step, key), by_step[step, key]) for key in names]
    if len(children) != len(structure.children):
        raise UserError(f"{name} must have {len(structure.children)} items, not {len(children)}")
    if node.context != structure.context:
        raise UserError(f"{name} must have the keys {structure.context!r}, not {node.context!r}")
    for child, (to, each) in zip(structure.children, children, strict=True):
        matched(child, each, name + path_text((to,)), found)


def leaves_of(structure: Structure) -> Iterator[Leaf]:
    """The leaves in a structure, in order."""
    if isinstance(structure, Leaf):
        yield structure
    elif isinstance(structure, Node):
        for child in structure.children:
            yield from leaves_of(child)


def with_leaves(structure: Structure, change: Callable[[Leaf], Structure]) -> Structure:
    """The structure with each leaf replaced."""
    if isinstance(structure, Leaf):
        return change(structure)
    if isinstance(structure, Node):
        children = tuple(with_leaves(child, change) for child in structure.children)
        return dataclasses.replace(structure, children=children)
    return structure
