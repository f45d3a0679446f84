"""Transforms: functions of the user that rewrite graphs between named stages of the compiler.

`transform` makes a `Transform`; the option `transforms` of `compile_fx` lists those to apply, in order. The graph cache
knows a transform by `Transform.key`: what its code is and what it reads.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .errors import TransformError
from .log.stages import count, show

STAGES = {
    "captured": "the graph as the program called torch's functions",
    "aten": "ATen operators without mutation, of a graph without gradients",
    "joint": "ATen operators of the forward and backward of a graph with gradients, in one graph",
    "forward": "the forward of a graph with gradients, after the partition",
    "backward": "its backward",
}
_PLAIN = (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, type(Ellipsis))
# Packages whose code does not change while they have the same version, which the graph cache's keys hold.
_VERSIONED = ("torch", "builtins", "operator", "math", "_operator", "functools", "itertools", "collections", "typing")


@dataclass(frozen=True)
class Transform:
    """`function(gm)` changes an fx.GraphModule in place and returns None, or returns another one with the same
    placeholders and as many results. `at`: the stages after which it is applied."""

    function: Callable[[fx.GraphModule], fx.GraphModule | None]
    at: tuple[str, ...]
    name: str = field(compare=False)

    def __call__(self, gm: fx.GraphModule) -> fx.GraphModule | None:
        return self.function(gm)

    @functools.cached_property
    def key(self) -> str | None:
        """What the graph cache knows the transform by; None if that is not known, see `why_no_key`."""
        return self._keyed[0]

    @functools.cached_property
    def why_no_key(self) -> str | None:
        """Why the transform has no key."""
        return self._keyed[1]

    @functools.cached_property
    def _keyed(self) -> tuple[str | None, str | None]:
        try:
            text = "\n".join(_described(self.function, {}))
        except _NoKey as reason:
            return None, str(reason)
        return hashlib.sha256(text.encode()).hexdigest(), None


def transform(
    function: Callable[[fx.GraphModule], fx.GraphModule | None] | None = None, *, at: str | Sequence[str] = "captured"
) -> Any:
    """A `Transform` of a graph-to-graph function, for the option `transforms` of `compile`. Also a decorator:
    `@transform(at="aten")`. ValueError for an unknown stage."""
    if function is None:
        return lambda given: transform(given, at=at)
    stages = (at,) if isinstance(at, str) else tuple(at)
    for stage in stages:
        if stage not in STAGES:
            raise ValueError(f"unknown stage {stage!r}; accepted: {', '.join(STAGES)}")
    if not callable(function):
        raise ValueError(f"transform() needs a function of a graph, got {function!r}")
    return Transform(function, stages, getattr(function, "__name__", type(function).__name__))


def check_transforms(value: Any) -> tuple[Transform, ...]:
    """The option `transforms`. ValueError for what is no sequence of transforms."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, Transform) for each in value):
        raise ValueError(f"option 'transforms' must be a list of what transform() returns, not {value!r}")
    return tuple(value)


def apply(transforms: Sequence[Transform], stage: str, gm: fx.GraphModule) -> fx.GraphModule:
    """The graph after the transforms for a stage, in order."""
    for each in transforms:
        if stage not in each.at:
            continue
        inputs = len(gm.graph.find_nodes(op="placeholder"))
        try:
            changed = each.function(gm)
        except Exception as error:
            raise TransformError(f"the transform {each.name!r} raised at {stage!r}: {error}") from error
        gm = gm if changed is None else changed
        if not isinstance(gm, fx.GraphModule) or len(gm.graph.find_nodes(op="placeholder")) != inputs:
            what = f"the transform {each.name!r} returned {type(gm).__name__}"
            raise TransformError(f"{what}, not a graph with the same placeholders")
        try:
            gm.graph.lint()
            gm.recompile()
        except Exception as error:
            raise TransformError(f"the transform {each.name!r} left an invalid graph at {stage!r}: {error}") from error
        count("transforms")
        show("ir", lambda gm=gm: gm.print_readable(print_output=False))
    return gm


def apply_to_aten(transforms: Sequence[Transform], stage: str, gm: fx.GraphModule) -> fx.GraphModule:
    """Like `apply`, for a graph whose nodes carry fake tensors: they are computed again."""
    if not any(stage in each.at for each in transforms):
        return gm
    before = [_layout(value) for value in _results(gm)]
    changed = apply(transforms, stage, gm)
    try:
        _set_values(changed)
    except MemoryError:
        raise
    except Exception as error:
        names = ", ".join(each.name for each in transforms if stage in each.at)
        raise TransformError(f"the graph after the transforms at {stage!r} ({names}) cannot run: {error}") from error
    after = [_layout(value) for value in _results(changed)]
    if before != after:
        raise TransformError(f"a transform at {stage!r} changed sizes, dtypes or number of the results of the graph")
    return changed


def without(transforms: Sequence[Transform], stage: str) -> tuple[Transform, ...]:
    """The transforms that are left after a stage."""
    left = (Transform(each.function, tuple(at for at in each.at if at != stage), each.name) for each in transforms)
    return tuple(each for each in left if each.at)


def key_of(transforms: Sequence[Transform]) -> tuple[str | None, str]:
    """What transforms add to the key of a graph; None, with the reason, if one has no key."""
    for each in transforms:
        if each.key is None:
            return None, f"the transform {each.name!r} has no key: {each.why_no_key}"
    return "".join(f"{each.key}{each.at}" for each in transforms), ""


def _results(gm: fx.GraphModule) -> list[Any]:
    (output,) = gm.graph.find_nodes(op="output")
    found: list[Any] = []
    fx.node.map_arg(output.args[0], lambda node: found.append(node.meta.get("val")))
    return found


def _layout(value: Any) -> Any:
    return (tuple(value.shape), value.dtype, value.device) if isinstance(value, torch.Tensor) else type(value)


def _set_values(gm: fx.GraphModule) -> None:
    """Compute the fake tensor of each node from those of the placeholders."""
    values = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    if mode is not None:
        with mode:
            _Propagation(gm, mode).run(*values)


class _Propagation(fx.Interpreter):
    """Runs a graph on fake tensors, whose results become `meta["val"]`. Nodes that have one keep it if it fits."""

    def __init__(self, gm: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(gm)
        self._mode = mode

    def run_node(self, n: fx.Node) -> Any:
        if n.op in ("placeholder", "output"):
            return super().run_node(n)
        if n.op == "get_attr" and "val" in n.meta:
            return n.meta["val"]
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) and not isinstance(found, FakeTensor):
            found = self._mode.from_tensor(found)
        n.meta["val"] = found
        return found


# ---- keys


class _NoKey(Exception):
    """The transform depends on something that cannot be described."""


def _described(value: Any, seen: dict[int, int]) -> Iterator[str]:
    """Lines that describe a value as far as a transform may depend on it: the same lines, the same behaviour."""
    if id(value) in seen:
        yield f"again {seen[id(value)]}"
        return
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if isinstance(value, torch.Tensor):
        raise _NoKey("it reads a tensor")
    seen[id(value)] = len(seen)
    if isinstance(value, types.FunctionType) and not _is_versioned(value.__module__):
        yield from _of_function(value, seen)
    elif isinstance(value, types.MethodType):
        yield from _described(value.__func__, seen)
        yield from _described(value.__self__, seen)
    elif isinstance(value, functools.partial):
        for part in (value.func, value.args, value.keywords):
            yield from _described(part, seen)
    elif isinstance(value, tuple | list | Mapping) and type(value) in (tuple, list, dict):
        yield f"{type(value).__name__} {len(value)}"
        for part in value.items() if isinstance(value, dict) else value:
            yield from _described(part, seen)
    elif isinstance(value, set | frozenset):
        yield from sorted("\n".join(_described(part, dict(seen))) for part in value)
    elif isinstance(value, types.CodeType):
        yield from _of_code(value, seen)
    else:
        yield _named(value)


def _of_function(function: types.FunctionType, seen: dict[int, int]) -> Iterator[str]:
    yield f"function {function.__qualname__}"
    yield from _of_code(function.__code__, seen)
    yield from _described(function.__defaults__, seen)
    yield from _described(function.__kwdefaults__, seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name
        try:
            yield from _described(cell.cell_contents, seen)
        except ValueError:  # an empty cell
            yield "empty"
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield f"global {name}"
            yield from _described(function.__globals__[name], seen)
        elif hasattr(builtins, name):
            yield f"builtin {name}"


def _of_code(code: types.CodeType, seen: dict[int, int]) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_flags))
    for constant in code.co_consts:
        yield from _described(constant, seen)


def _global_names(code: types.CodeType) -> set[str]:
    """The names in a code object and in those within it, attributes included."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_global_names, inner))


def _named(value: Any) -> str:
    """A module, class or function of a package with a version, or an operator, by its name."""
    if isinstance(value, types.ModuleType):
        if _is_versioned(value.__name__):
            return f"module {value.__name__}"
        raise _NoKey(f"it reads the module {value.__name__}")
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"operator {value}"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(name, str) and (_is_versioned(module) or isinstance(value, types.BuiltinFunctionType)):
        return f"{module}.{name}"
    raise _NoKey(f"it reads an object of the class {type(value).__qualname__}")


def _is_versioned(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in (*_VERSIONED, "inductor", "pyframe")
