"""The registry of backends, callables `(gm, example_inputs) -> callable` that compile an FX graph. Defines the built-in
ones ("eager", "aot_eager", "inductor"); other names are looked up in torch.compile's registry."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from inductor.aot.fake import make_fx
from inductor.dynamic.dispatch import DynamicShapeDispatcher, is_symbolic
from inductor.eager.higher_order import runnable
from inductor.graph_split import needs_split

from .errors import UserError
from .metrics import counters

Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]
_REGISTRY: dict[str, Backend] = {}


def register_backend(name: str, backend: Backend | None = None) -> Any:
    """Make `compile(..., backend=name)` use `backend`. As a decorator: `@register_backend("name")`."""
    if backend is None:
        return lambda fn: register_backend(name, fn)
    if not isinstance(name, str) or not name:
        raise UserError(f"a backend's name must be a non-empty string, not {name!r}")
    if not callable(backend):
        raise UserError(f"backend {name!r} must be callable as backend(gm, example_inputs), got {backend!r}")
    _REGISTRY[name] = backend
    return backend


def is_own(name: str) -> bool:
    """Whether the backend of this name is the one that is registered here by pyframe itself."""
    return _REGISTRY.get(name) is _OWN.get(name)


def list_backends() -> list[str]:
    """The names that are registered here; `compile(backend=...)` also accepts torch's."""
    return sorted(_REGISTRY)


def takes_fake_tensors(backend: Any) -> bool:
    """Whether a backend accepts fake tensors as example inputs, as pyframe's own do; others get real tensors."""
    if isinstance(backend, functools.partial):
        backend = backend.func
    return bool(getattr(backend, "takes_fake_tensors", False))


def _with_fake_tensors(backend: Backend) -> Backend:
    backend.takes_fake_tensors = True  # type: ignore[attr-defined]
    return backend


def find_backend(
    backend: Any, strict: bool = False, verify: str | float | None = None, **other: Any
) -> Backend:
    """The callable registered under a name, or the given callable itself. `strict` and `verify` are valid for
    "inductor" only, and so is the option `transforms`; of the `other` options (`cudagraphs`, `max_autotune`,
    `bucket_collectives`, `background`, `cache`, `measure`, `budget_s`, `freezing`) every backend of pyframe's own takes
    what concerns it. Names that are not registered here are looked up in torch's registry."""
    for name, given in (("strict", strict), ("verify", verify), ("transforms", other.get("transforms"))):
        if given and backend != "inductor":
            raise UserError(f"the option {name!r} is of the backend 'inductor', not of {backend!r}")
    if backend == "inductor" and (strict or verify or other):
        return functools.partial(inductor_backend, strict=strict, verify=verify, **other)
    if isinstance(backend, str):
        return _REGISTRY[backend] if backend in _REGISTRY else _of_torch(backend)
    if not callable(backend):
        raise UserError(f"backend must be a name or a callable (gm, example_inputs) -> callable, not {backend!r}")
    return backend


def _of_torch(name: str) -> Backend:
    """The backend that torch.compile has registered under this name."""
    registry = importlib.import_module("torch._dynamo.backends.registry")  # the import takes seconds
    if name not in registry.list_backends(()):
        raise UserError(
            f"unknown backend {name!r}; accepted: {', '.join(list_backends())}, a name of "
            "torch._dynamo.list_backends(None), or a callable"
        )
    backend: Backend = registry.lookup_backend(name)
    return backend


def split_settings(
    backend: Any, mode: str | None, options: Mapping[str, Any] | None
) -> tuple[str | None, Mapping[str, Any] | None, dict[str, Any]]:
    """Split settings into the mode and options for pyframe, and keyword arguments for a backend that is not pyframe's
    own.

    As with torch.compile, such a backend is called with `mode=` and `options=` if they are given. The option
    "recompile_limit" belongs to the capture and is not passed on.
    """
    known = _REGISTRY.get(backend) if isinstance(backend, str) else backend
    if takes_fake_tensors(known) or not (callable(known) or isinstance(backend, str)):
        return mode, options, {}
    given = dict(options or {})
    own = {name: given.pop(name) for name in ("recompile_limit",) if name in given}
    passed: dict[str, Any] = {"mode": mode} if mode is not None and mode != "default" else {}
    return None, own, {**passed, "options": given} if given else passed


@register_backend("eager")
@_with_fake_tensors
def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs the captured graph uncompiled."""
    return runnable(gm).forward


@register_backend("aot_eager")
@_with_fake_tensors
def aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Lowers the graph to ATen operators and runs them one by one, to separate bugs of capture from bugs of code
    generation. Graphs that record gradients or have data-dependent results run as captured."""
    if needs_split(gm):
        return runnable(gm).forward
    if torch.is_grad_enabled() and any(x.requires_grad for x in example_inputs if isinstance(x, torch.Tensor)):
        return gm.forward
    if is_symbolic(example_inputs):
        return DynamicShapeDispatcher(gm, lambda fixed, tensors: make_fx(fixed)(*tensors).forward)
    mode = next((x.fake_mode for x in example_inputs if isinstance(x, FakeTensor)), None)
    with mode if mode is not None else contextlib.nullcontext():
        return make_fx(gm)(*example_inputs).forward


def wait_for_kernels(seconds: float | None = None) -> bool:
    """Wait until all kernels that `options={"background": True}` builds are ready; the next calls use them. Returns
    False if that takes longer than `seconds`."""
    from inductor import background  # deferred: loads the whole compiler

    return background.wait_for_kernels(seconds)


@register_backend("inductor")
@_with_fake_tensors
def inductor_backend(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], strict: bool = False, verify: str | float | None = None,
    **other: Any,
) -> Callable[..., Any]:
    """The default backend: pyframe's own compiler. strict: raise where it cannot compile, instead of warning and
    falling back to ATen. verify: when to compare compiled graphs with ATen. `other`: see `options.Options`."""
    import inductor  # deferred: loads the whole compiler
    from inductor.log import stages

    stages.count_in(counters)
    return inductor.compile_fx(gm, example_inputs, options={"strict": strict, "verify": verify, **other})


_OWN = dict(_REGISTRY)
