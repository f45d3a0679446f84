"""Complex numbers as pairs of real tensors: which operators become loops, and that values, special values, strides and
shared memory are ATen's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from op_samples import lowered
from torch.utils import _pytree as pytree

import pyframe
from inductor.ir.buffer import ExternKernel
from inductor.ir.interp import run_graph
from inductor.passes.complex_parts import parts_of_complex

Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def _tensors(dtype: torch.dtype = torch.complex64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    z, w = (torch.randn(5, 6, dtype=dtype, generator=generator) for _ in range(2))
    return z, w, torch.randn(5, 6, dtype=z.real.dtype, generator=generator)


Z, W, X = _tensors()
# All of these are loops.
LOOPS: dict[str, Program] = {
    "products": (lambda z, w: (z * w + z - torch.conj_physical(w)) * 2.5, (Z, W)),
    "a real and a complex tensor": (lambda z, x: (z * x + x, z - x, x / z, z / x), (Z, X)),
    "quotients": (lambda z, w: (z / w, z / 3, 2 / w, z / (1 + 2j), z / 2j, z.reciprocal()), (Z, W)),
    "numbers": (lambda z: (z * 2j + (1 - 1j), 1 - z, torch.add(z, z, alpha=2j), -z), (Z,)),
    "powers": (lambda z: (z**2, z**3), (Z,)),
    "absolute value and angle": (lambda z: (z.abs(), z.angle(), z.sgn()), (Z,)),
    "exponential": (lambda z: z.exp(), (Z,)),
    "polar and complex": (lambda x: torch.polar(x, x) * torch.complex(x, x + 1), (X,)),
    "comparison": (lambda z, w: (z == w, z != w, torch.where(z == w, z, w)), (Z, Z.clone())),
    "views": (lambda z, w: (z.t() * w.reshape(6, 5), (z + w)[1:3, 2], (z * w).unsqueeze(0).expand(2, 5, 6) + 1), (Z, W)),
    "sums": (lambda z: (z.sum(0), (z * 2).mean(1, keepdim=True), z.sum()), (Z,)),
    "parts": (lambda z, w: ((z * w).real + 1, (z - w).imag * 2, torch.view_as_real(z * w).sum(-1)), (Z, W)),
    "casts": (lambda z: (z.to(torch.complex128) * 2).to(torch.complex64), (Z,)),
    "0-d": (lambda z, w: z.sum() * w[0, 0] + w, (Z, W)),
    "moved elements": (lambda z: (z.flip(0) * 2, z.roll(1, 1) + 1, (z * 2)[[3, 1]], z.tril() * 2), (Z,)),
    "rotary": (lambda x, z: torch.view_as_real(torch.view_as_complex(x.reshape(5, 3, 2)) * z[:, :3]).flatten(1), (X, Z)),
    "no elements": (lambda z: (z[:0] * 2, z[:, :0].sum(0)), (Z,)),
}


def _with_parts(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    assert parts_of_complex(gm)
    return gm


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", LOOPS)
def test_operators_are_loops(name: str, dtype: torch.dtype) -> None:
    fn, inputs = LOOPS[name]
    wide = [x.to(dtype) if x.is_complex() else x.to(torch.empty(0, dtype=dtype).real.dtype) for x in inputs]
    graph = lowered(fn, *wide, prepare=_with_parts)
    assert not [node.target for node in graph.buffers if isinstance(node, ExternKernel)]
    want = pytree.tree_leaves(fn(*wide))
    torch.testing.assert_close(run_graph(graph, wide), want)
    compiled = pyframe.compile(fn, options={"strict": True})
    got = pytree.tree_leaves(compiled(*wide))
    torch.testing.assert_close(got, want)
    assert [x.stride() for x in got] == [x.stride() for x in want]


@pytest.mark.parametrize("name", LOOPS)
def test_gradients(name: str) -> None:
    fn, inputs = LOOPS[name]
    results = []
    for run in (fn, pyframe.compile(fn, options={"strict": True})):
        given = [x.clone().requires_grad_() for x in inputs]
        made = [y for y in pytree.tree_leaves(run(*given)) if y.requires_grad]
        tangents = [torch.full_like(y, 0.5 + 0.25j if y.is_complex() else 0.5) for y in made]
        results.append(torch.autograd.grad(made, given, tangents, allow_unused=True) if made else ())
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_that_are_not_contiguous(dynamic: bool) -> None:
    def fn(z: torch.Tensor, w: torch.Tensor) -> Any:
        return z * w + z.abs(), (z + w).t()

    compiled = pyframe.compile(fn, dynamic=dynamic, options={"strict": True})
    for n in (4, 7):
        z, w = torch.randn(n, 6, dtype=torch.complex64).t(), torch.randn(12, n, dtype=torch.complex64)[::2]
        want, got = fn(z, w), compiled(z, w)
        torch.testing.assert_close(got, want)
        assert [x.stride() for x in got] == [x.stride() for x in want]


def test_results_that_share_memory() -> None:
    compiled = pyframe.compile(lambda z: (lambda y: (y, y.t(), y[0]))(z * 2), options={"strict": True})
    whole, turned, row = compiled(Z)
    whole.zero_()
    assert not turned.any() and not row.any()


def test_complex_numbers_are_written_to_inputs() -> None:
    def fn(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        z.mul_(w).add_(z.conj())
        return z.abs()

    z, same = Z.clone(), Z.clone()
    torch.testing.assert_close(pyframe.compile(fn, options={"strict": True})(z, W), fn(same, W))
    torch.testing.assert_close(z, same)


# The result for infinite, NaN, tiny and huge parts is that of ATen. Sums of products may be rounded once or twice, so a
# product that overflows beside an infinite one gives an infinite number or NaN, in ATen too.
EXACT: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "div": lambda a, b: a / b, "exp": lambda a, b: a.exp(),
    "abs": lambda a, b: a.abs(), "angle": lambda a, b: a.angle(), "reciprocal": lambda a, b: a.reciprocal(),
    "mul": lambda a, b: a * b, "mul by real": lambda a, b: a * b.real, "div by real": lambda a, b: a / b.real,
    "real over complex": lambda a, b: a.real / b, "div by a number": lambda a, b: a / 3, "mul by i": lambda a, b: a * 1j,
    "number minus": lambda a, b: 1 - a, "alpha": lambda a, b: torch.add(a, b, alpha=2), "add real": lambda a, b: a + b.real,
    "polar": lambda a, b: torch.polar(a.real, b.real), "eq": lambda a, b: a == b, "conj": lambda a, b: a.conj() + 0,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", EXACT)
def test_special_values(name: str, dtype: torch.dtype) -> None:
    values = [0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan, 100.0]
    if name != "mul":
        values += [3e38, 1e-40]
    parts = torch.tensor(list(itertools.product(values, values)), dtype=torch.empty(0, dtype=dtype).real.dtype)
    z = torch.view_as_complex(parts)
    a, b = z.repeat_interleave(len(z)), z.repeat(len(z))
    want, got = EXACT[name](a, b), pyframe.compile(EXACT[name], options={"strict": True})(a, b)
    if want.is_complex():
        want, got = torch.view_as_real(want), torch.view_as_real(got)
    torch.testing.assert_close(got, want, equal_nan=True)
    if want.is_floating_point():  # of a zero, also the sign
        zero = (want == 0) & (got == 0)
        assert torch.equal(torch.signbit(got[zero]), torch.signbit(want[zero]))


def test_complex32_is_left_to_aten() -> None:
    graph = lowered(lambda z: z * 2, Z.to(torch.complex32), prepare=lambda gm: (parts_of_complex(gm), gm)[1])
    assert any(isinstance(node, ExternKernel) for node in graph.buffers)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_the_sign_of_very_small_numbers(dtype: torch.dtype) -> None:
    """The reciprocal of their length overflows. ATen's vectors divide by the length, as the loops do."""
    least = torch.finfo(dtype).smallest_normal
    z = torch.tensor([least * (1 + 1j), least / 100, least * 1j / 7, 3e-5 - 4e-5j, 0j, 1 + 0j, -1j, 2 - 2j], dtype=dtype).repeat(4)
    torch.testing.assert_close(pyframe.compile(torch.sgn)(z), torch.sgn(z), rtol=1e-5, atol=0)
    compiled = pyframe.compile(lambda z: torch.view_as_real(z.sgn()).sum(), options={"strict": True})
    torch.testing.assert_close(compiled(z), torch.view_as_real(z.sgn()).sum(), rtol=1e-5, atol=0)
