"""Cache keys of graphs: everything that the compiled form of a torch-level graph depends on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ..ir.size import Size
from ..ir.sized import SizedTensor
from ..log.stages import show
from .file_store import content_key
from .process_key import is_own_function, is_own_operator, operators_are_overridden, process_key

_NAMED_MODULES = ("torch", "_operator", "operator", "math", "builtins")
_PLAIN = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis))


class OfGraphs:
    """Base class of functions of this package that a graph calls and whose results depend on `graphs`, besides their
    arguments."""

    graphs: Sequence[fx.GraphModule]


class _NoKey(Exception):
    """Something in the graph has no name that is valid in another process."""


def graph_key(
    gm: fx.GraphModule, inputs: Sequence[Any], attributes: Sequence[tuple[str, torch.Tensor]],
    hints: Mapping[str, int] | None = None,
) -> str | None:
    """The key of a graph for inputs with this metadata under the current modes; None if it has no key.

    `hints`: the values of the symbols, if the graph is compiled for varying sizes.
    """
    try:
        parts = [_process(), repr(hints), *map(_metadata, inputs)]
        parts += [f"{name}: {_metadata(value)}" for name, value in attributes]
        nodes = _nodes(gm, {name for name, _ in attributes})
        parts += nodes
        if any("as_strided" in line for line in nodes):  # its offset counts from the start of the storage
            tensors = [x for x in (*inputs, *(value for _, value in attributes)) if isinstance(x, torch.Tensor)]
            parts.append(repr([x.storage_offset() for x in tensors]))
    except _NoKey:
        return None
    return _key_of("graph", parts)


def training_key(
    gm: fx.GraphModule, inputs: Sequence[Any], attributes: Sequence[torch.Tensor], names: Mapping[str, int],
    known: Sequence[Any] | None = None, hints: Mapping[str, int] | None = None, buckets: Sequence[int] | None = None,
) -> str | None:
    """Like `graph_key`, for a graph with its gradients; `attributes` and `names` as returned by
    `aot.joint.module_tensors`.

    The key includes the autograd metadata of the inputs and which of them share memory. `known`: the inputs' metadata
    if sizes vary. `buckets`: the sizes of DDP's buckets, into which the backward is divided; None: it is not.
    """
    primals = (*inputs, *attributes)
    tensors = [x for x in primals if isinstance(x, torch.Tensor)]
    try:
        parts = [_process(), repr(hints), str(torch.is_autocast_cache_enabled()), str(len(inputs))]
        parts.append(repr(buckets and tuple(buckets)))
        parts += map(_metadata, (*(known or inputs), *attributes))
        parts += [f"{x.requires_grad} {x.is_leaf} {x.storage_offset()}" for x in tensors]
        parts += [f"{name}: {i}" for name, i in names.items()]
        parts += _nodes(gm, set(names))
    except _NoKey:
        return None
    storages = [x.untyped_storage()._cdata for x in tensors]
    sharing = [storages.index(x) for x in storages]
    return _key_of("training", [repr(sharing), *parts])


def _key_of(kind: str, parts: Sequence[str]) -> str:
    key = content_key(kind, _source_hash(), *parts)
    show("keys", lambda: "\n    ".join((f"{kind} {key}:", *parts)))
    return key


def half_key(half: fx.GraphModule, inputs: Sequence[Any], release: bool) -> str | None:
    """Like `graph_key`, for one half of a partition; `release`: whether it frees its inputs while it runs."""
    key = graph_key(half, inputs, ())
    return None if key is None else content_key("half", key, str(release))


def _nodes(gm: fx.GraphModule, known: Collection[str]) -> list[str]:
    """One line per node; `known`: names of the tensors that the graph may read from its module."""
    numbers: dict[fx.Node, int] = {}
    lines = []
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        match node.op:
            case "placeholder" | "output":
                target = ""
            case "get_attr" | "call_method":
                target = str(node.target)
            case _:
                target = _target(node)
        args = _argument(node.args, numbers), _argument(tuple(sorted(node.kwargs.items())), numbers)
        lines.append(f"{node.op} {target} {args}")
        if node.op == "get_attr" and str(node.target) not in known:
            raise _NoKey
    return lines


def _process() -> str:
    if operators_are_overridden():
        raise _NoKey
    return process_key()


def _metadata(x: Any) -> str:
    if isinstance(x, SizedTensor):
        return repr(x)
    if isinstance(x, int | Size):
        return f"number {x}"
    if not isinstance(x, torch.Tensor):
        raise _NoKey
    sizes = (*x.shape, *x.stride())
    if x.layout != torch.strided or any(type(n) is not int for n in sizes):
        raise _NoKey
    return f"{x.dtype} {x.device} {tuple(x.shape)} {x.stride()} {x.is_conj()} {x.is_neg()}"


def _target(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        if not is_own_operator(target):
            raise _NoKey
        return f"operator {target}"
    derivative = getattr(target, "engine_function", None)  # it belongs to this torch, as `process_key` does
    if isinstance(derivative, str):
        return f"derivative {derivative}"
    module = getattr(target, "__module__", None) or getattr(getattr(target, "__self__", None), "__name__", None)
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if callable(target) and name is not None and "<" in name and _named_by_module(target):
        name = target.__name__  # such as F.max_pool2d, which another function created
    if isinstance(target, OfGraphs):
        return f"{type(target).__name__} {[_nodes(graph, ()) for graph in target.graphs]}"
    if isinstance(target, torch._ops.HigherOrderOperator):  # its arguments may be ids valid in this process only
        raise _NoKey
    if node.op != "call_function" or not isinstance(module, str) or name is None or "<" in name:
        raise _NoKey
    if module.partition(".")[0] not in _NAMED_MODULES or not is_own_function(target):
        raise _NoKey
    return f"{module}.{name}"


def _named_by_module(target: Any) -> bool:
    """Whether the function's module has it under its name."""
    return getattr(sys.modules.get(target.__module__), target.__name__, None) is target


def _argument(value: Any, numbers: dict[fx.Node, int]) -> str:
    if isinstance(value, fx.Node):
        return f"%{numbers[value]}"
    if isinstance(value, tuple | list):
        return f"{_class(type(value))}({', '.join(_argument(v, numbers) for v in value)})"
    if isinstance(value, dict):
        return f"dict({', '.join(_argument(item, numbers) for item in value.items())})"
    if isinstance(value, slice):
        return f"slice({_argument((value.start, value.stop, value.step), numbers)})"
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format) or type(value) in _PLAIN:
        return f"{type(value).__name__} {value!r}"
    raise _NoKey


def _class(kind: type) -> str:
    """The full name of a container's class, because named tuples of two modules may share a name."""
    return f"{kind.__module__}.{kind.__qualname__}"


@functools.cache
def _source_hash() -> str:
    """A hash of all source files of this package, because another version generates other code."""
    root = Path(__file__).resolve().parent.parent
    files = sorted(p for p in root.rglob("*") if p.suffix in (".py", ".h") and "__pycache__" not in p.parts)
    return content_key(*[part for p in files for part in (str(p.relative_to(root)), p.read_bytes())])
