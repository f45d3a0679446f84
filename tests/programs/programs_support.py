"""Runs a program eagerly and compiled, and compares everything that it does.

A program is a function of one argument, `C`, which it calls on every function and module that it compiles: `C` is
`pyframe.compile`, or returns its argument. What the program returns and prints, and the state of the random generators
after it, are compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import pyframe

TOLERANCE = {
    torch.float64: 1e-8, torch.complex128: 1e-8, torch.float16: 2e-3, torch.bfloat16: 1.6e-2,
}  # fmt: skip
Program = Callable[[Any], Any]


@dataclasses.dataclass
class Case:
    """A program with the tolerance of its numbers; None: that of each dtype."""

    run: Program
    tolerance: float | None = None


def program(run: Program | None = None, *, tol: float | None = None, **_: Any) -> Any:
    """Marks a program; as a decorator with or without arguments."""
    if run is None:
        return functools.partial(program, tol=tol)
    run.case = Case(run, tol)  # type: ignore[attr-defined]
    return run


def programs_of(module: Any) -> dict[str, Case]:
    """The programs of a module, by name."""
    return {name: value.case for name, value in vars(module).items() if hasattr(value, "case")}


class Eager:
    """Returns its argument: the eager run."""

    compiled = False

    def __call__(self, fn: Any = None, **settings: Any) -> Any:
        return fn if fn is not None else lambda fn: fn


class Compiled:
    """`pyframe.compile` with a backend."""

    compiled = True

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __call__(self, fn: Any = None, **settings: Any) -> Any:
        return pyframe.compile(fn, **{"backend": self.backend, **settings})


@contextlib.contextmanager
def torch_classes_restored() -> Iterator[None]:
    """Restores the methods of the classes in `torch.nn`: a program that compiles such a class changes it, as with
    torch.compile, for the rest of the process."""
    names = ("__call__", "__init__", "_call_impl")
    classes = [cls for cls in vars(torch.nn).values() if isinstance(cls, type)]
    before = [{name: vars(cls)[name] for name in names if name in vars(cls)} for cls in classes]
    try:
        yield
    finally:
        for cls, methods in zip(classes, before, strict=True):
            for name in names:
                if name in methods and vars(cls)[name] is not methods[name]:
                    setattr(cls, name, methods[name])
                elif name not in methods and name in vars(cls):
                    delattr(cls, name)


def outcome(run: Program, compile_function: Any) -> dict[str, Any]:
    """What a program returns, prints, and leaves behind in the generators of random numbers."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch_classes_restored():
        result = run(compile_function)
    numpy_state = np.random.get_state()[1]
    return {
        "result": result, "printed": printed.getvalue(), "torch's generator": torch.get_rng_state(),
        "random's generator": random.getstate(), "numpy's generator": numpy_state,
    }  # fmt: skip


def check(case: Case, backend: str) -> None:
    """AssertionError that lists the differences between eager and compiled."""
    want = outcome(case.run, Eager())
    pyframe.reset()
    got = outcome(case.run, Compiled(backend))
    found: list[str] = []
    compare(want, got, "", case.tolerance, found)
    assert not found, "\n".join(found)


def compare(want: Any, got: Any, path: str, tolerance: float | None, found: list[str]) -> None:
    """Appends a line to `found` for each difference in type, structure or value; tensors also in dtype, shape, strides,
    requires_grad, and the gradient of leaves."""
    if type(want) is not type(got) and type(want).__qualname__ != type(got).__qualname__:  # a class made by each run
        found.append(f"{path}: {got!r} for {want!r}"[:500])
    elif isinstance(want, torch.Tensor):
        _compare_tensors(want, got, path, tolerance, found)
    elif isinstance(want, torch.Size):
        if want != got:
            found.append(f"{path}: {got} for {want}")
    elif isinstance(want, dict):
        if list(map(repr, want)) != list(map(repr, got)):
            found.append(f"{path}: keys {list(got)} for {list(want)}")
            return
        for key, other in zip(want, got):
            compare(want[key], got[other], f"{path}[{key!r}]", tolerance, found)
    elif isinstance(want, list | tuple):
        if len(want) != len(got):
            found.append(f"{path}: {len(got)} items for {len(want)}")
            return
        for i, pair in enumerate(zip(want, got)):
            compare(*pair, f"{path}[{i}]", tolerance, found)
    elif isinstance(want, np.ndarray):
        if want.dtype != got.dtype or want.shape != got.shape or not np.allclose(want, got, 1e-5, 1e-5, equal_nan=True):
            found.append(f"{path}: {got} for {want}"[:500])
    elif isinstance(want, float):
        near = tolerance or 1e-5
        if not math.isclose(want, got, rel_tol=near, abs_tol=near) and not (math.isnan(want) and math.isnan(got)):
            found.append(f"{path}: {got} for {want}")
    elif dataclasses.is_dataclass(want) and not isinstance(want, type):
        compare(vars(want), vars(got), path, tolerance, found)
    elif isinstance(want, int | str | bytes | complex | set | frozenset | torch.dtype | torch.device):
        if want != got and not _close(want, got) and repr(want) != repr(got):
            found.append(f"{path}: {got!r} for {want!r}"[:500])


def _close(want: Any, got: Any) -> bool:
    return isinstance(want, complex) and abs(want - got) < 1e-4


def _compare_tensors(
    want: torch.Tensor, got: torch.Tensor, path: str, tolerance: float | None, found: list[str]
) -> None:
    for name in ("dtype", "shape", "layout", "requires_grad", "is_leaf"):
        if getattr(want, name) != getattr(got, name):
            found.append(f"{path}.{name}: {getattr(got, name)} for {getattr(want, name)}")
    if found:
        return
    if want.layout == torch.strided and want.numel() > 1:
        kept = [d for d, n in enumerate(want.shape) if n > 1]
        if [want.stride(d) for d in kept] != [got.stride(d) for d in kept]:
            found.append(f"{path}: strides {got.stride()} for {want.stride()}")
    near = TOLERANCE.get(want.dtype, 2e-5) if tolerance is None else tolerance
    a, b = want.detach(), got.detach()
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    try:
        if a.is_floating_point() or a.is_complex():
            torch.testing.assert_close(b, a, rtol=near, atol=near, equal_nan=True)
        else:
            assert torch.equal(a, b), f"{b} for {a}"
    except AssertionError as error:
        found.append(f"{path}: {' '.join(str(error).split())}"[:500])
    if want.is_leaf and (want.grad is not None or got.grad is not None):
        compare(want.grad, got.grad, f"{path}.grad", tolerance, found)
