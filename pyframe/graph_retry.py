"""The run-time part of eager retries (`emit.eager_retry` decides which frames have them): the call of a graph that
returns None if it fails, and the code that then runs the frame."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inductor.errors import CompileError
from inductor.log.stages import show

from . import _C
from .core.in_order import PASSES
from .core.per_code import per_code
from .errors import InternalError
from .metrics import counters


@dataclass(frozen=True)
class Undo:
    """What a graph changes besides computing its results: the positions of inputs that it writes, which are copied
    before each call, and whether it draws from the CPU generator. `checked`: the last result of the graph says whether
    the others are valid. `until_backward`: this holds until the graph begins a backward pass, which changes gradients,
    so that the frame cannot run again after an exception of the pass or of what follows."""

    written: tuple[int, ...] = ()
    draws: bool = False
    checked: bool = False
    until_backward: bool = False


def none_on_error(
    compiled: Callable[..., Any], name: str, undo: Undo, failed: Callable[[], None] | None = None
) -> Callable[..., Any]:
    """Wrap `compiled` to return None instead of raising, or if its results are not valid; its changes are undone in
    that case. `failed` is called then."""

    changes = bool(undo.written or undo.draws)

    def run(*args: Any) -> Any:
        before, begun = _Before(args, undo) if changes else None, PASSES.begun
        try:
            results = compiled(*args)
            if not undo.checked or bool(results[-1]):
                return results
            why = "a check failed"
        except CompileError:
            raise
        except Exception as error:  # the eager run raises it again, where the program handles it
            if undo.until_backward and PASSES.begun != begun:
                raise
            if before is not None and not before.restore():
                raise
            why = f"{type(error).__name__}: {error}"
        else:
            if before is not None and not before.restore():
                raise InternalError(f"a check of the graph of {name} failed, and its writes cannot be undone")
        counters["eager_retries"] += 1
        if failed is not None:
            failed()
        show("breaks", f"the graph of {name} did not complete ({why}); the original frame runs eagerly")
        return None

    return _C.run_disabled(run)


class _Before:
    """The state that a graph may change, saved before its call. Versions are restored, too: for a later backward, a
    tensor is not changed."""

    def __init__(self, args: Sequence[Any], undo: Undo) -> None:
        with torch._C.DisableTorchFunction():
            written = [args[i] for i in undo.written]
            self.tensors = [(tensor, tensor.grad_fn, tensor.detach().clone()) for tensor in written]
            self.counted = tuple(tensor for tensor in written if not tensor.is_inference())
            self.versions = tuple(tensor._version for tensor in self.counted)
            self.state = torch.default_generator.get_state() if undo.draws else None

    def restore(self) -> bool:
        """Restore the state. Does nothing and returns False if autograd has already recorded a write."""
        with torch._C.DisableTorchFunction():
            if any(tensor.grad_fn is not grad_fn for tensor, grad_fn, _ in self.tensors):
                return False
            for tensor, _, elements in self.tensors:
                tensor.data.copy_(elements)
            torch._C._autograd._unsafe_set_version_counter(self.counted, self.versions)
            if self.state is not None:
                torch.default_generator.set_state(self.state)
        return True


@per_code
def as_it_is(code: types.CodeType) -> types.CodeType:
    """A copy of `code` that is never captured; its parameters are the frame's arguments one by one, *args and **kwargs
    as a tuple and a dict."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    copied = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )  # fmt: skip
    _C.skip_code(copied, recursive=True)
    return copied
