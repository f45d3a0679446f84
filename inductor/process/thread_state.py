"""Restores the state that torch keeps per thread if tracing ends in an exception.

The `with` statements of torch and of this project already restore it if an exception passes through them. The remaining
case is an exception inside `__enter__` or `__exit__`, from Ctrl-C or a failed allocation, which leaves a mode entered.
Packages that the exception left half imported are removed, so that the next import starts from the beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..autocast import AutocastState
from ..ir.handler import ops
from .half_imported import forget_orphans
from .import_stubs import stub_torch_compiler
from .interrupts import HandlersBetweenImports

T = TypeVar("T")
_torch: Any = torch._C


class ThreadState:
    """A snapshot of the calling thread's torch modes."""

    __slots__ = ("autocast", "disabled", "dispatch", "function", "grad", "handler", "level", "light", "threads")

    def __init__(self) -> None:
        self.dispatch = _torch._len_torch_dispatch_stack()
        self.function = _function_modes()
        self.disabled = _torch._get_torch_function_state()
        self.level = _torch._functorch.maybe_current_level()
        self.grad, self.threads = torch.is_grad_enabled(), _torch._is_multithreading_enabled()
        self.autocast = AutocastState()
        self.light, self.handler = stub_torch_compiler.depth, ops.current

    def restore(self) -> None:
        """Restore the thread's modes; active `__torch_function__` modes do not see this."""
        with _torch.DisableTorchFunction():
            self._restore()
        _torch._set_torch_function_state(self.disabled)

    def _restore(self) -> None:
        while _torch._len_torch_dispatch_stack() > self.dispatch:
            _torch._pop_torch_dispatch_stack(None)
        if _function_modes() != self.function:
            while _torch._len_torch_function_stack():
                _torch._pop_torch_function_stack()
            for mode in self.function:
                _torch._push_on_torch_function_stack(mode)
        if _torch._functorch.maybe_current_level() != self.level:
            _torch._functorch.pop_dynamic_layer_stack_and_undo_to_depth(self.level or 0)
        _torch._set_grad_enabled(self.grad)
        _torch._set_multithreading_enabled(self.threads)
        self.autocast.restore()
        stub_torch_compiler.leave_to(self.light)
        ops.current = self.handler


def _function_modes() -> list[Any]:
    return [_torch._get_function_stack_at(i) for i in range(_torch._len_torch_function_stack())]


def restored_on_error(work: Callable[[], T]) -> T:
    """Run `work()`, which traces; if it raises, restore the thread's modes and remove half-imported packages.

    Meanwhile, hooks for tensors that autograd saves (`torch.autograd.graph.saved_tensors_hooks`, activation checkpoints
    around compiled code) are not called, because the saved tensors are fake and belong to the trace.
    """
    before, modules = ThreadState(), frozenset(sys.modules)
    tracing = _torch._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        # functorch leaves dispatch keys excluded if an exception passes through nested transforms
        with HandlersBetweenImports(), _torch._PreserveDispatchKeyGuard():
            return work()
    except BaseException:
        before.restore()
        forget_orphans(modules)
        raise
    finally:
        _torch._autograd._saved_tensors_hooks_set_tracing(tracing)
