"""Backends: named callables `(gm, example_inputs) -> callable`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from inductor.aot.fake import make_fx
from inductor.aot.higher_order import runnable
from inductor.segments import must_be_cut
from inductor.specialize import Specialized, is_symbolic

from .errors import UserError
from .metrics import counters
from .report.logs import log

Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]
_REGISTRY: dict[str, Backend] = {}


def register_backend(name: str, backend: Backend | None = None) -> Any:
    """Makes `compile(..., backend=name)` use `backend`.  As a decorator: `@register_backend("name")`."""
    if backend is None:
        return lambda fn: register_backend(name, fn)
    if not isinstance(name, str) or not name:
        raise UserError(f"a backend's name must be a non-empty string, not {name!r}")
    if not callable(backend):
        raise UserError(f"backend {name!r} must be callable as backend(gm, example_inputs), got {backend!r}")
    _REGISTRY[name] = backend
    return backend


def list_backends() -> list[str]:
    """The names that `compile(backend=...)` accepts."""
    return sorted(_REGISTRY)


def find_backend(backend: Any, strict: bool = False, verify: str | float | None = None) -> Backend:
    """The callable of a name, or the callable itself; `strict` and `verify` are for "inductor" only."""
    for name, given in (("strict", strict), ("verify", verify)):
        if given and backend != "inductor":
            raise UserError(f"the option {name!r} is of the backend 'inductor', not of {backend!r}")
    if strict or verify:
        return functools.partial(inductor_backend, strict=strict, verify=verify)
    if isinstance(backend, str):
        if backend not in _REGISTRY:
            raise UserError(f"unknown backend {backend!r}; accepted: {', '.join(list_backends())}, or a callable")
        return _REGISTRY[backend]
    if not callable(backend):
        raise UserError(f"backend must be a name or a callable (gm, example_inputs) -> callable, not {backend!r}")
    return backend


@register_backend("eager")
def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs the captured graph as it is."""
    return runnable(gm).forward


@register_backend("aot_eager")
def aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph lowered to ATen operators, run one by one: tells a fault of the capture from one of code generation.
    Where gradients are recorded or results depend on data, runs the captured graph as it is."""
    if must_be_cut(gm):
        return runnable(gm).forward
    if torch.is_grad_enabled() and any(x.requires_grad for x in example_inputs if isinstance(x, torch.Tensor)):
        return gm.forward
    if is_symbolic(example_inputs):
        return Specialized(gm, lambda fixed, tensors: make_fx(fixed)(*tensors).forward)
    mode = next((x.fake_mode for x in example_inputs if isinstance(x, FakeTensor)), None)
    with mode if mode is not None else contextlib.nullcontext():
        return make_fx(gm)(*example_inputs).forward


@register_backend("inductor")
def inductor_backend(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], strict: bool = False, verify: str | float | None = None
) -> Callable[..., Any]:
    """The default: our own compiler.  strict: an error where it cannot compile, in place of a warning and ATen.
    verify: when compiled graphs are compared with ATen."""
    import inductor  # the compiler is loaded by its first use only
    from inductor import stages

    stages.set_sink(log, counters)
    return inductor.compile_fx(gm, example_inputs, options={"strict": strict, "verify": verify})
