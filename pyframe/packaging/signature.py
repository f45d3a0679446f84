"""How a package's arguments and results are arranged: nested containers whose leaves are tensors and numbers, as plain
data for the file, and the functions that take such arguments apart and build such results."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from inductor.package.errors import PackageError

from ..core.same_value import same_value

_PLAIN = (type(None), bool, int, float, str)
Leaf = Callable[[Any, str], dict[str, Any]]


def describe(value: Any, where: str, leaf: Leaf) -> dict[str, Any]:
    """The arrangement of `value`, which is found at `where`; `leaf(x, where)` describes what is not a container."""
    if type(value) in (tuple, list):
        items = [describe(x, f"{where}[{i}]", leaf) for i, x in enumerate(value)]
        return {"tuple" if type(value) is tuple else "list": items}
    if type(value) is dict:
        return {"dict": _entries(value, where, leaf)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        named = zip(value._fields, value)
        return {"class": _name_of(value), "fields": [[k, describe(x, f"{where}.{k}", leaf)] for k, x in named]}
    if isinstance(value, tuple) and hasattr(type(value), "n_sequence_fields"):  # of torch.return_types
        results = zip(type(value).__match_args__, value)  # type: ignore[attr-defined]
        return {"class": _name_of(value), "fields": [[k, describe(x, f"{where}.{k}", leaf)] for k, x in results]}
    if isinstance(value, OrderedDict):  # the outputs of transformers are classes of them
        if not all(isinstance(key, str) for key in value):
            raise PackageError(f"{where} is a {type(value).__qualname__} with keys that are no texts")
        return {"class": _name_of(value), "fields": _entries(value, where, leaf)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        parts = [[name, describe(getattr(value, name), f"{where}.{name}", leaf)] for name in fields]
        return {"class": _name_of(value), "fields": parts}
    return leaf(value, where)


def _entries(value: Mapping[Any, Any], where: str, leaf: Leaf) -> list[list[Any]]:
    for key in value:
        if type(key) not in (str, int):
            raise PackageError(f"{where} has the key {key!r}; keys are texts or ints")
    return [[key, describe(x, f"{where}[{key!r}]", leaf)] for key, x in value.items()]


def _name_of(value: Any) -> list[str]:
    return [type(value).__module__, type(value).__qualname__]


def constant(value: Any, where: str) -> dict[str, Any]:
    """A leaf that is the same in every call. PackageError for one that a file cannot hold."""
    if type(value) not in _PLAIN:
        raise PackageError(f"{where} is a {type(value).__qualname__}, which a package cannot hold")
    return {"constant": value}


# ---- results


def builder(node: Mapping[str, Any]) -> Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]:
    """A function of the plan's results, the call's leaves and the package's constants that builds what the function
    returns."""
    if "result" in node:
        k = node["result"]
        return lambda results, leaves, constants: results[k]
    if "argument" in node:
        k = node["argument"]
        return lambda results, leaves, constants: leaves[k]
    if "fixed" in node:
        k = node["fixed"]
        return lambda results, leaves, constants: constants[k]
    if "constant" in node:
        value = node["constant"]
        return lambda results, leaves, constants: value
    if "tuple" in node or "list" in node:
        kind: Any = tuple if "tuple" in node else list
        items = [builder(each) for each in node["tuple" if kind is tuple else "list"]]
        return lambda results, leaves, constants: kind([item(results, leaves, constants) for item in items])
    entries = [(key, builder(each)) for key, each in node["dict" if "dict" in node else "fields"]]
    made = _class_of(node["class"]) if "class" in node else None
    if made is None:
        return lambda results, leaves, constants: {k: item(results, leaves, constants) for k, item in entries}
    if hasattr(made, "n_sequence_fields"):
        return lambda results, leaves, constants: made([item(results, leaves, constants) for _, item in entries])
    return lambda results, leaves, constants: made(**{k: item(results, leaves, constants) for k, item in entries})


def _class_of(name: Sequence[str]) -> Any:
    """The class with this module and name, if the program has imported that module; else None. A file imports nothing:
    its results are then dicts of the same keys."""
    module, path = name
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


# ---- arguments


class Arguments:
    """Takes calls apart. `taken`: what each argument of the plan is, as the number of a leaf."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.args, self.kwargs = arguments["args"], {name: node for name, node in arguments["kwargs"]}
        every = [(f"argument {i}", node) for i, node in enumerate(self.args)] + list(self.kwargs.items())
        self.simple = not self.kwargs and all("tensor" in node for node in self.args)
        self.every = every

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call, in order. TypeError if it is arranged otherwise, ValueError if a constant differs."""
        if len(args) != len(self.args) or kwargs.keys() != self.kwargs.keys():
            raise TypeError(self.message(args, kwargs))
        found: list[Any] = []
        for (where, node), value in zip(self.every, [*args, *(kwargs[name] for name in self.kwargs)], strict=True):
            _take(node, value, where, found)
        return found

    def message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """What is wrong with the number and the names of the arguments."""
        names = "".join(f", {name}=" for name in self.kwargs)
        given = "".join(f", {name}=" for name in kwargs)
        return (
            f"this package was made for {len(self.args)} positional arguments{names}, and is called with "
            f"{len(args)}{given}"
        )


def _take(node: Mapping[str, Any], value: Any, where: str, found: list[Any]) -> None:
    if "tensor" in node or "unused" in node:
        if type(value).__module__ == "builtins":
            raise TypeError(f"{where} is a {type(value).__qualname__}; this package was made for a tensor there")
        found.append(value)
    elif "int" in node:
        if type(value) is not int:
            raise TypeError(f"{where} is a {type(value).__qualname__}; this package was made for an int there")
        found.append(value)
    elif "constant" in node:
        expected = node["constant"]
        if not same_value(value, expected):
            raise ValueError(f"{where} is {value!r}; this package was made for {expected!r}")
        found.append(value)
    elif "tuple" in node or "list" in node:
        kind: Any = tuple if "tuple" in node else list
        items = node["tuple" if kind is tuple else "list"]
        if not isinstance(value, kind) or len(value) != len(items):
            raise TypeError(f"{where} is not a {kind.__name__} of {len(items)} items, for which this package was made")
        for i, (item, each) in enumerate(zip(items, value)):
            _take(item, each, f"{where}[{i}]", found)
    else:
        entries = node["dict" if "dict" in node else "fields"]
        for (key, item), each in zip(entries, _values(node, value, where), strict=True):
            _take(item, each, f"{where}[{key!r}]", found)


def _values(node: Mapping[str, Any], value: Any, where: str) -> list[Any]:
    if "dict" in node:
        keys = [key for key, _ in node["dict"]]
        if not isinstance(value, dict) or set(value) != set(keys):
            raise TypeError(f"{where} is not a dict with the keys {keys}, for which this package was made")
        return [value[key] for key in keys]
    names = [name for name, _ in node["fields"]]
    try:
        return [value[name] if isinstance(value, dict) else getattr(value, name) for name in names]
    except (AttributeError, KeyError) as error:
        raise TypeError(f"{where} has not the fields {names}, for which this package was made") from error


def leaf_nodes(node: Any) -> Iterator[dict[str, Any]]:
    """The leaves of an arrangement, in the order in which `Arguments` finds them."""
    for kind in ("tuple", "list"):
        if kind in node:
            for item in node[kind]:
                yield from leaf_nodes(item)
            return
    for kind in ("dict", "fields"):
        if kind in node:
            for _, item in node[kind]:
                yield from leaf_nodes(item)
            return
    yield node
