"""Frames that run again as they are where their graph raises an exception that the program handles: its handlers do
what they do in eager. Only for graphs that change nothing but their results."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from inductor.aot.calls import python_kernels
from inductor.errors import CompileError

from .. import _C
from ..core.per_code import per_code
from ..metrics import counters
from ..report.logs import log
from .resume import CO_VARARGS, CO_VARKEYWORDS

_MODULES = ("torch", "_operator", "math", "builtins")
_NOT_ANSWERED = (MemoryError, torch.OutOfMemoryError, CompileError)


class _Changes(Exception):
    """The graph changes something."""


class _Watch(TorchDispatchMode):
    """Lets through only operators that draw nothing at random and write to no tensor of `storages`."""

    def __init__(self, storages: set[int]) -> None:
        super().__init__()
        self.storages = storages

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _Changes
        given = dict(zip((arg.name for arg in func._schema.arguments), args, strict=False)) | kwargs
        if given.get("running_mean") is not None and given.get("training", True):  # written, which no schema says
            raise _Changes
        for arg in func._schema.arguments:
            if arg.alias_info is not None and arg.alias_info.is_write:
                written = given.get(arg.name)
                for each in written if isinstance(written, list | tuple) else [written]:
                    if isinstance(each, torch.Tensor) and each.untyped_storage()._cdata in self.storages:
                        raise _Changes
        return func(*args, **kwargs)


def may_run_again(gm: fx.GraphModule, fake_mode: Any) -> bool:
    """Whether a graph changes nothing but its results: no input, no random state, no setting of the process."""
    inputs = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    if not all(map(_is_plain, gm.graph.nodes)):
        return False
    fakes = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
    storages = {x.untyped_storage()._cdata for x in fakes if isinstance(x, torch.Tensor)}
    try:
        with fake_mode, torch.no_grad(), python_kernels(fake_mode), _Watch(storages):
            gm(*fakes)
    except _Changes:
        return False
    return True


def _is_plain(node: fx.Node) -> bool:
    """Whether a node is an operator, of torch or of Python, or gives a mode back that it switches."""
    if node.op != "call_function":
        return node.op in ("placeholder", "call_method", "output", "get_attr")
    target: Any = node.target
    if getattr(target, "switches_mode", False):
        return True
    module: str = getattr(target, "__module__", None) or "builtins"
    return not getattr(target, "in_order", False) and module.split(".")[0] in _MODULES


def told_apart(compiled: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`compiled`, which gives None in place of an exception."""

    def run(*args: Any) -> Any:
        try:
            return compiled(*args)
        except _NOT_ANSWERED:
            raise
        except Exception as error:  # noqa: BLE001  the frame, as it runs next, raises it where the program does
            counters["runs_again"] += 1
            log("breaks", f"the graph of {name} raised {type(error).__name__}: {error}; the frame runs as it is")
            return None

    return _C.run_disabled(run)  # type: ignore[no-any-return]


@per_code
def as_it_is(code: types.CodeType) -> types.CodeType:
    """A copy of `code` that is never captured, and takes what are locals of its frame one by one."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    copied = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS),
    )  # fmt: skip
    _C.skip_code(copied, recursive=True)
    return copied
