"""Runs a frame eagerly when its graph raises an exception that the program handles, so that the program's own handlers
see it as in eager mode.

Before that, what the graph may already have changed is restored: inputs that it writes and the CPU generator's state.
Some changes of inputs cannot be undone: changes of sizes, and writes that autograd has recorded. A frame with such a
graph is not compiled at all if one of its operators may raise depending on tensor elements.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from inductor.aot.calls import python_kernels
from inductor.eager.flex_attention import with_dense_attention
from inductor.errors import CompileError
from inductor.log.stages import show
from inductor.overlap import memory_of

from .. import _C
from ..core.per_code import per_code
from ..metrics import counters
from .raising import may_raise
from .resume import CO_VARARGS, CO_VARKEYWORDS

_MODULES = ("torch", "_operator", "math", "builtins")


@dataclass(frozen=True)
class Undo:
    """What a graph changes besides computing its results: the positions of inputs that it writes, which are copied
    before each call, and whether it draws from the CPU generator."""

    written: tuple[int, ...] = ()
    draws: bool = False


class _Permanent(Exception):
    """The graph draws from a generator whose state is not restored."""


class CannotUndo(Exception):
    """The graph changes an input in a way that cannot be undone, and one of its operators may raise."""


class _Watch(TorchDispatchMode):
    """Records which of `storages` operators write to, whether they draw random numbers, and whether they may raise
    depending on tensor elements."""

    def __init__(self, storages: set[int]) -> None:
        super().__init__()
        self.storages = storages
        self.written: set[int] = set()
        self.draws = self.may_raise = self.resizes = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = dict(zip((arg.name for arg in func._schema.arguments), args, strict=False)) | kwargs
        self.may_raise = self.may_raise or may_raise(func, args)
        result = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            if given.get("generator") is not None or _devices(result) - {"cpu"}:
                raise _Permanent
            self.draws = True
        written = [given.get(arg.name) for arg in func._schema.arguments if arg.alias_info and arg.alias_info.is_write]
        if given.get("training", True):  # written in place, although no schema says so
            written += [given.get("running_mean"), given.get("running_var")]
        for each in written:
            self._note(func, each if isinstance(each, list | tuple) else [each])
        return result

    def _note(self, func: Any, written: Sequence[Any]) -> None:
        for each in written:
            if isinstance(each, torch.Tensor) and memory_of(each) in self.storages:
                if torch.Tag.inplace_view in func.tags:  # changes sizes and strides, not elements
                    self.resizes = True
                self.written.add(memory_of(each))


def _devices(result: Any) -> set[str]:
    tensors = result if isinstance(result, list | tuple) else [result]
    return {each.device.type for each in tensors if isinstance(each, torch.Tensor)}


def undo_of(gm: fx.GraphModule, fake_mode: Any) -> Undo | None:
    """What must be restored before the frame of a graph runs eagerly.

    None if the frame cannot run again, or if something would have to be restored but no operator may raise, so that the
    copies would not pay off. Raises CannotUndo if the frame must not be compiled.
    """
    if not all(map(_is_plain, gm.graph.nodes)):
        return None
    inputs = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    fakes = [_as_recorded(x, fake_mode) if isinstance(x, torch.Tensor) else x for x in inputs]
    records = [x.grad_fn if isinstance(x, torch.Tensor) else None for x in fakes]
    storages = [memory_of(x) if isinstance(x, torch.Tensor) else 0 for x in fakes]
    watch = _Watch(set(storages) - {0})
    try:
        with fake_mode, torch.set_grad_enabled(torch.is_grad_enabled()), python_kernels(fake_mode), watch:
            with_dense_attention(gm)(*fakes)
    except _Permanent:
        return None
    recorded = any(x.grad_fn is not was for x, was in zip(fakes, records) if isinstance(x, torch.Tensor))
    if watch.resizes or recorded:
        if watch.may_raise:
            raise CannotUndo("an input is changed in a way that cannot be undone if an operator raises")
        return None
    written = tuple(i for i, storage in enumerate(storages) if storage in watch.written)
    if (written or watch.draws) and not (watch.may_raise and all(_is_copied(inputs[i]) for i in written)):
        return None
    return Undo(written, watch.draws)


def _as_recorded(x: torch.Tensor, fake_mode: Any) -> torch.Tensor:
    """A tensor to run the graph on in place of input `x`. It is not a leaf, because autograd does not record writes to
    leaves."""
    with fake_mode, torch.enable_grad():
        return x.detach().requires_grad_().clone() if x.requires_grad else x.detach()


def _is_copied(value: torch.Tensor) -> bool:
    """Whether copying the elements of a tensor captures all of its state that operators change."""
    return type(value) is FakeTensor and value.layout == torch.strided and not value.is_quantized


def _is_plain(node: fx.Node) -> bool:
    """Whether a node is an operator of torch or Python, or restores a mode that it switches."""
    if node.op != "call_function":
        return node.op in ("placeholder", "call_method", "output", "get_attr")
    target: Any = node.target
    if getattr(target, "switches_mode", False):
        return True
    module: str = getattr(target, "__module__", None) or "builtins"
    return not getattr(target, "in_order", False) and module.split(".")[0] in _MODULES


def none_on_error(compiled: Callable[..., Any], name: str, undo: Undo) -> Callable[..., Any]:
    """Wrap `compiled` to return None instead of raising; its changes are undone in that case."""

    changes = bool(undo.written or undo.draws)

    def run(*args: Any) -> Any:
        before = _Before(args, undo) if changes else None
        try:
            return compiled(*args)
        except CompileError:
            raise
        except Exception as error:  # the eager run raises it again, where the program handles it
            if before is not None and not before.restore():
                raise
            counters["eager_retries"] += 1
            show(
                "breaks", f"the graph of {name} raised {type(error).__name__}: {error}; the original frame runs eagerly"
            )
            return None

    return _C.run_disabled(run)


class _Before:
    """The state that a graph may change, saved before its call."""

    def __init__(self, args: Sequence[Any], undo: Undo) -> None:
        with torch._C.DisableTorchFunction():
            self.tensors = [(args[i], args[i].grad_fn, args[i].detach().clone()) for i in undo.written]
            self.state = torch.default_generator.get_state() if undo.draws else None

    def restore(self) -> bool:
        """Restore the state. Does nothing and returns False if autograd has already recorded a write."""
        with torch._C.DisableTorchFunction():
            if any(tensor.grad_fn is not grad_fn for tensor, grad_fn, _ in self.tensors):
                return False
            for tensor, _, elements in self.tensors:
                tensor.data.copy_(elements)
            if self.state is not None:
                torch.default_generator.set_state(self.state)
        return True


@per_code
def as_it_is(code: types.CodeType) -> types.CodeType:
    """A copy of `code` that is never captured; its parameters are the frame's arguments one by one, *args and **kwargs
    as a tuple and a dict."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    copied = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS),
    )  # fmt: skip
    _C.skip_code(copied, recursive=True)
    return copied
