"""Complex numbers, conjugate and negative bits: values, gradients and bits of inputs against eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import pyframe


def _tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    z, w = (torch.randn(4, 6, dtype=torch.complex64, generator=generator) for _ in range(2))
    return z, w, torch.randn(4, 6, generator=generator)


Z, W, X = _tensors()


def _rotary(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Llama's original rotary embedding. `x`: (batch, position, 2 * pairs); `turns`: (position, pairs)."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(2).type_as(x)


def _write_real(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = z * 1
    made.real.copy_(x)
    return made


def _write_through_conj(z: torch.Tensor) -> torch.Tensor:
    made = z.clone()
    made.conj().mul_(1j)
    return made


Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
# What is compiled, operators on complex numbers as calls of ATen.
COMPILED: dict[str, Program] = {
    "conj": (lambda z: z.conj() * 2, (Z,)),
    "conj in a product": (lambda z, w: (z.conj() @ w.mT).abs().sum(-1).relu() * 3, (Z, W)),
    "fft": (lambda x: torch.fft.fft(x).real * 2 + x, (X,)),
    "rfft and back": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2).sin() + x, (X,)),
    "polar": (lambda x: torch.polar(x.exp(), x) * 2, (X,)),
    "rotary": (_rotary, (X.reshape(1, 3, 8), torch.polar(torch.ones(3, 4), X.flatten()[:12].reshape(3, 4)))),
    "imag of conj": (lambda z: z.conj().imag * 2 + 1, (Z,)),
    "write of the real part": (_write_real, (Z, X)),
    "write through conj": (_write_through_conj, (Z,)),
    "sgn": (lambda z: z.sgn() * 2, (Z,)),
    "angle": (lambda z: z.angle() * 2 + z.abs(), (Z,)),
    "sum": (lambda z: (z * z.conj()).sum(0).real, (Z,)),
    "cat": (lambda z, w: torch.cat([z, w.conj()], 1) * 2, (Z, W)),
    "adjoint": (lambda z: (z.mH @ z, z.mT * 2), (Z,)),
    "where": (lambda z, w: torch.where(z.real > 0, z, w), (Z, W)),
    "indices": (lambda z: z[:, [0, 2]] * z[..., 1:3], (Z,)),
    "Python numbers": (lambda z: z * (1 + 2j) + 3j, (Z,)),
    "real times imaginary": (lambda x: x * 1j + x, (X,)),
    "einsum": (lambda z, w: torch.einsum("ij,kj->ik", z, w.conj()), (Z, W)),
    "bytes as int32": (lambda x: (x * 2).view(torch.int32) + 1, (X,)),
    "bytes as int16": (lambda x: (x * 2).view(torch.int16) + 1, (X,)),
    "complex as floats": (lambda z: z.view(torch.float32)[:, 1::2] + 1, (Z,)),
    "expand": (lambda z: z[:1].expand(4, 6).conj() + 1, (Z,)),
    "complex128": (lambda z: z.to(torch.complex128).conj() * 2, (Z,)),
    "complex32": (lambda z: z.to(torch.complex32) * 2, (Z,)),
}
# What runs with ATen as a whole.
WHOLE: dict[str, Program] = {
    "imag of conj as result": (lambda z: (z * 2).conj().imag, (Z,)),
    "conj as result": (lambda z: (z * 2).conj(), (Z,)),
    "conj of an input as result": (lambda z: z.conj(), (Z,)),
    "conj bit of an input": (lambda z: z * 2, (Z.conj(),)),
    "neg bit of an input": (lambda x, y: (x * 2 + 1, y + x), (Z.conj().imag, X)),
    "results that share memory": (lambda z: (lambda y: (y, y.conj(), y.real))(z * 2), (Z,)),
    "write into a complex input": (lambda z, x: z.real.copy_(x).sum(), (Z.clone(), X)),
}


def _run(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], grad: bool) -> tuple[list[torch.Tensor], Any]:
    """Results, gradients and the inputs after the call; and the bits of the results."""
    given = [x.detach() if x.is_conj() or x.is_neg() else x.detach().clone() for x in inputs]
    for x in given:
        x.requires_grad_(grad)
    results = pytree.tree_leaves(fn(*given))
    differentiable = [x for x in results if x.requires_grad]
    gradients: list[Any] = []
    if differentiable:
        generator = torch.Generator().manual_seed(1)
        tangents = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in differentiable]
        gradients = [x for x in torch.autograd.grad(differentiable, given, tangents, allow_unused=True) if x is not None]
    values = [x.detach().resolve_conj().resolve_neg() for x in (*results, *gradients, *given)]
    return values, [(x.is_conj(), x.is_neg()) for x in results]


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", [*COMPILED, *WHOLE])
def test_complex_programs_give_what_eager_gives(name: str, grad: bool) -> None:
    fn, inputs = COMPILED.get(name) or WHOLE[name]
    if grad and name == "write into a complex input":
        pytest.skip("a leaf is written")
    pyframe.reset()
    compiled = pyframe.compile(fn, options={"strict": name in COMPILED})
    for _ in range(2):
        (got, bits), (want, eager_bits) = _run(compiled, inputs, grad), _run(fn, inputs, grad)
        torch.testing.assert_close(got, want, equal_nan=True)
        assert bits == eager_bits


def test_guards_tell_bits_apart() -> None:
    compiled = pyframe.compile(lambda x: x * 2 + 1)
    plain = Z.imag
    for x, z in itertools.product((plain, Z.conj().imag, plain), (Z, Z.conj(), Z)):
        torch.testing.assert_close(compiled(x), x * 2 + 1)
        torch.testing.assert_close(compiled(z), z * 2 + 1)


def test_gradients_of_any_kind_reach_the_backward() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * x

    for kind in (
        lambda grad: grad.conj(), lambda grad: torch._efficientzerotensor(grad.shape, dtype=grad.dtype),
        lambda grad: grad.to_sparse(),
    ):  # fmt: skip
        gradients = []
        for run in (fn, pyframe.compile(fn)):
            z = Z.clone().requires_grad_()
            gradients.append(torch.autograd.grad(run(z), z, kind(W))[0].to_dense().resolve_conj())
        torch.testing.assert_close(*gradients)


def test_negated_gradients_reach_the_backward() -> None:
    gradients = []
    for run in (torch.sin, pyframe.compile(lambda x: x.sin())):
        x = X.clone().requires_grad_()
        gradients.append(torch.autograd.grad(run(x), x, Z.conj().imag)[0])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(2, 2), (3, 4)])
def test_parts_of_complex_numbers_keep_the_layout(shape: tuple[int, int], dynamic: bool) -> None:
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.complex(x.t(), x.t() * 0.5 + 1)
        pairs = torch.stack([x.t(), x.t()], -1)
        return z.real + z.imag, torch.view_as_complex(pairs).abs(), x.t().view(torch.int32) + 1

    x = torch.randn(shape)
    for want, got in zip(parts(x), pyframe.compile(parts, dynamic=dynamic)(x)):
        assert torch.equal(got, want) and got.stride() == want.stride()
