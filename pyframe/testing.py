"""Helpers for tests of captures: backends that count or record graphs, a comparison of results, and a mode that sends
every frame of a program through the tracer."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from . import _C
from .backends import Backend, find_backend, takes_fake_tensors
from .core.files import OWN_ROOTS
from .driver import FrameCompiler
from .options import Options

_CALLS = ("call_function", "call_method", "call_module")


class CompileCounter:
    """A backend that runs graphs uncompiled and counts them: `frame_count` graphs, `op_count` operations in total."""

    takes_fake_tensors = True

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += sum(node.op in _CALLS for node in gm.graph.nodes)
        return gm.forward

    def clear(self) -> None:
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """Like CompileCounter, but another backend compiles the graphs, which are kept in `graphs`."""

    def __init__(self, backend: str | Backend) -> None:
        self.backend = find_backend(backend)
        self.takes_fake_tensors = takes_fake_tensors(self.backend)
        super().__init__()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return self.backend(gm, example_inputs)

    def clear(self) -> None:
        super().clear()
        self.graphs: list[fx.GraphModule] = []


class EagerAndRecordGraphs:
    """A backend that runs graphs uncompiled and keeps them in `graphs`."""

    takes_fake_tensors = True

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


def same(a: Any, b: Any, *, tol: float = 1e-4, equal_nan: bool = False) -> bool:
    """Whether two results agree: same types, containers compared item by item, tensors of the same dtype, shape and
    layout, and floating-point values within `tol` (absolute and relative)."""
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
            return False
        if a.layout is not torch.strided:
            a, b = a.to_dense(), b.to_dense()
        exact = not (a.dtype.is_floating_point or a.dtype.is_complex)
        return torch.equal(a, b) if exact else torch.allclose(a, b, tol, tol, equal_nan)
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return set(a) == set(b) and all(same(a[key], b[key], tol=tol, equal_nan=equal_nan) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y, tol=tol, equal_nan=equal_nan) for x, y in zip(a, b, strict=True))
    if isinstance(a, float | complex):
        return a == b or abs(a - b) <= tol + tol * abs(b) or (equal_nan and a != a and b != b)
    if type(a).__eq__ is object.__eq__ and hasattr(a, "__dict__") and not callable(a):
        return same(vars(a), vars(b), tol=tol, equal_nan=equal_nan)
    return bool(a == b)


class EveryFrame(FrameCompiler):
    """Captures every frame except those of torch and pyframe. Replaces frames even if there is nothing to compile."""

    def __init__(self, backend: str | Backend, recompile_limit: int) -> None:
        super().__init__(find_backend(backend), Options(limit=recompile_limit, steps=30_000), str(backend))
        self.keeps_empty = True
        self.recompiles.warns = False

    def skips(self, func: types.FunctionType) -> bool:
        return func.__code__.co_filename.startswith(OWN_ROOTS)

    def forget(self, keeps: Callable[[types.CodeType], bool]) -> None:
        """Drop the captures of all code objects for which `keeps` returns False."""
        for code in [ref() for ref in list(self.codes_with_entries.values())]:
            if code is not None and not keeps(code):
                _C.reset_code(code)
                del self.codes_with_entries[id(code)]


@contextlib.contextmanager
def trace_everything(
    backend: str | Backend = "eager", recompile_limit: int = 4, compiler: EveryFrame | None = None
) -> Iterator[EveryFrame]:
    """Send every frame that this thread starts through the tracer, including those of the standard library and
    functions without tensors, and run the generated code. For finding bugs of the capture with programs that check
    their own results. `compiler`: one that already has captures, instead of a new one."""
    _C.bind_torch()
    compiler = compiler or EveryFrame(backend, recompile_limit)
    before = _C.set_callback(compiler)
    try:
        yield compiler
    finally:
        _C.set_callback(before)
