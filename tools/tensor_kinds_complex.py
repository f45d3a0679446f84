"""Programs of ``tensor_kinds`` on complex numbers: operators by family, Fourier transforms, modules, writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fft, nn

C64 = torch.complex64


def _complex() -> list[Any]:
    return [torch.randn(4, 6, dtype=C64)]


def _two() -> list[Any]:
    return [torch.randn(4, 6, dtype=C64), torch.randn(4, 6, dtype=C64)]


def _complex_and_real() -> list[Any]:
    return [torch.randn(4, 6, dtype=C64), torch.randn(4, 6)]


def _real() -> list[Any]:
    return [torch.randn(4, 6)]


def _pairs() -> list[Any]:
    return [torch.randn(4, 3, 2)]


def _with_zeros() -> list[Any]:
    z = torch.randn(4, 6, dtype=C64)
    z[0] = 0
    z[:, 1] = 0
    return [z]


class _Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 6, dtype=C64))
        self.bias = nn.Parameter(torch.randn(5, dtype=C64))

    def forward(self, z: torch.Tensor) -> Any:
        return F.linear(z, self.weight, self.bias)


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plane = nn.Conv2d(2, 3, 3, padding=1, dtype=C64)
        self.line = nn.Conv1d(2, 3, 3, dtype=C64)

    def forward(self, z: torch.Tensor) -> Any:
        return self.plane(z), self.line(z[0, :, 0][None])


class _Spectral(nn.Module):
    """A layer of a Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2, 4, 4, dtype=C64) * 0.1)

    def forward(self, x: torch.Tensor) -> Any:
        found = fft.rfft2(x)
        made = torch.zeros(x.shape[0], 2, x.shape[2], x.shape[3] // 2 + 1, dtype=C64)
        made[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", found[:, :, :4, :4], self.weight)
        return fft.irfft2(made, s=x.shape[-2:])


def _called(module: nn.Module, z: torch.Tensor) -> Any:
    return module(z)


def _parts_written(z: torch.Tensor, x: torch.Tensor) -> Any:
    made = z * 1
    made.real = x
    made.imag[0] = 3
    made[1] = 1j
    return made


def _written_through_conj(z: torch.Tensor, w: torch.Tensor) -> Any:
    made = z * 1
    made.conj()[0].add_(w[1])
    made.mT.mul_(2j)
    return made, made.conj()


def _out(z: torch.Tensor, w: torch.Tensor) -> Any:
    product, size = torch.empty(4, 6, dtype=C64), torch.empty(4, 6)
    torch.mul(z.detach(), w.detach(), out=product)
    torch.abs(product, out=size)
    return product, size


def _argument_written(z: torch.Tensor, w: torch.Tensor) -> Any:
    z.detach().copy_(w.detach().conj())
    return z + 1


def _there_and_back(x: torch.Tensor) -> Any:
    turned = torch.view_as_complex(x) * (1 + 1j)
    pairs = torch.view_as_real(turned)
    return turned, pairs, pairs * 2


def _rotary(x: torch.Tensor) -> Any:
    turns = torch.polar(torch.ones(4, 3), torch.outer(torch.arange(4.0), torch.arange(3.0)))
    return torch.view_as_real(torch.view_as_complex(x.reshape(4, 3, 2)) * turns).flatten(1)


def _short_time(x: torch.Tensor) -> Any:
    window = torch.hann_window(8)
    found = torch.stft(x.reshape(1, -1), 8, 4, window=window, return_complex=True)
    return found, torch.istft(found, 8, 4, window=window), found.abs().log1p()


def _functions(z: torch.Tensor) -> Any:
    names = "exp log sin cos tan sinh cosh tanh sqrt rsqrt reciprocal square sigmoid asin acos atan asinh acosh"
    return [getattr(z, name)() for name in names.split()] + [z.pow(2), z.pow(1.5), z**z, z.log2(), z.log1p(), z.expm1()]


def _sums(z: torch.Tensor) -> Any:
    return (
        z.sum(), z.sum(0), z.mean(1), z.prod(1), z.var(0), z.std(1), z.cumsum(0), z.cumprod(1), z.norm(),
        torch.linalg.vector_norm(z, 1), z.any(), z.all(0), z.count_nonzero(), torch.linalg.matrix_norm(z),
    )  # fmt: skip


def _products(z: torch.Tensor, w: torch.Tensor) -> Any:
    return (
        z @ w.mT, z @ w.mH, torch.mv(z, w[0]), torch.vdot(z[0], w[0]), torch.dot(z[0], w[0]), torch.outer(z[0], w[0]),
        torch.bmm(z[None], w.mT[None]), torch.addmm(z @ z.mT, z, w.mT), torch.einsum("ij,kj->ik", z, w),
        torch.tensordot(z, w.conj(), 2), torch.kron(z, w), torch.addcmul(z, z, w), torch.addcdiv(z, z, w),
        torch.lerp(z, w, 0.3),
    )  # fmt: skip


def _transforms(x: torch.Tensor) -> Any:
    z = fft.fft(x)
    return (
        z, fft.ifft(z), fft.rfft(x), fft.irfft(z), fft.irfft(z, 7), fft.hfft(z), fft.ihfft(x), fft.fft2(x),
        fft.ifft2(z), fft.rfft2(x), fft.irfft2(z), fft.fftn(x), fft.ifftn(z), fft.rfftn(x), fft.irfftn(z),
        fft.fft(x, norm="ortho"), fft.fft(x, 9, 0), fft.fftshift(z), fft.ifftshift(z), fft.fftfreq(6),
        fft.rfftfreq(6), fft.hfft2(z), fft.ihfft2(x), fft.fft(z.conj()), fft.ifft(z.mT),
    )  # fmt: skip


def _moved(z: torch.Tensor) -> Any:
    return (
        z.flip(0), z.roll(1, 1), F.pad(z, (1, 1)), z.repeat(2, 1), z.t().contiguous(), z[:, ::2],
        torch.stack([z, z.conj()]), torch.cat([z, z], 1), z.tril(), z.diag(), torch.diag_embed(z),
        torch.where(z.abs() > 1, z, 0), z.index_select(0, torch.tensor([1, 1])), z.unfold(0, 2, 1).clone(),
        z.expand(2, 4, 6) * 1, z.take(torch.tensor([1, 5])),
    )  # fmt: skip


def _mixed(z: torch.Tensor, x: torch.Tensor) -> Any:
    return (
        x.to(C64) * z, z.to(torch.complex128), z.real.double(), x * 1j, x + 1j, torch.complex(x, x * 2), z * x, z / x,
        x / z, x**z, z - 2, 3 - z, z * (1 + 2j), x.double() * z, torch.result_type(z, x),
    )  # fmt: skip


def _bits(z: torch.Tensor) -> Any:
    return (
        z.conj(), z.conj().imag, z.conj().conj(), z.conj().resolve_conj(), z.mH, z.conj_physical(), z.is_conj(),
        z.conj().is_conj(), z.conj().imag.is_neg(), torch.resolve_neg(z.conj().imag),
    )  # fmt: skip


def _solved(z: torch.Tensor) -> Any:
    a = z @ z.mH + torch.eye(4)
    return torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.solve(a, z), torch.linalg.eigvalsh(a), a.trace()


def _chain(z: torch.Tensor) -> Any:
    for _ in range(5):
        z = z * z.conj() + z
    return z


def _attention(z: torch.Tensor) -> Any:
    return torch.softmax((z @ z.mH).real, -1).to(C64) @ z


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "abs, angle, sgn at zero": (lambda z: (z.abs(), z.angle(), torch.sgn(z), z.abs().sqrt() + 1), _with_zeros),
    "functions": (_functions, _complex),
    "sums and products": (_sums, _complex),
    "products of matrices": (_products, _two),
    "Fourier transforms": (_transforms, _real),
    "short-time Fourier transform": (_short_time, _real),
    "moved": (_moved, _complex),
    "mixed with real numbers": (_mixed, _complex_and_real),
    "conj and neg bits": (_bits, _complex),
    "real and imaginary parts": (lambda z: (z.real, z.imag, (z * 2).real, (z * 2).imag), _complex),
    "view_as_complex": (lambda x: (torch.view_as_complex(x), torch.view_as_complex(x * 2)), _pairs),
    "there and back": (_there_and_back, _pairs),
    "rotary embedding": (_rotary, _real),
    "polar": (lambda z: (torch.polar(z.abs(), z.angle()), torch.complex(z.real.sin(), z.imag.cos())), _complex),
    "parts written": (_parts_written, _complex_and_real),
    "written through conj": (_written_through_conj, _two),
    "argument written": (_argument_written, _two),
    "out": (_out, _two),
    "comparisons": (lambda z, w: (z == w, z != z, torch.isclose(z, w), z.isnan(), z.isfinite(), z.isreal()), _two),
    "linear algebra": (_solved, _complex),
    "losses": (lambda z: (F.l1_loss(z, torch.zeros_like(z)), (z.abs() ** 2).mean()), _complex),
    "attention": (_attention, _complex),
    "chain": (_chain, _complex),
    "a number": (lambda z: z * z[0, 0].item(), _complex),
    "complex32": (lambda z: (lambda h: (h, h.to(C64), h.real))(z.to(torch.complex32)), _complex),
    "linear module": (_called, lambda: [_Linear(), *_complex()]),
    "convolutions": (_called, lambda: [_Convolutions(), torch.randn(1, 2, 5, 5, dtype=C64)]),
    "spectral module": (_called, lambda: [_Spectral(), torch.randn(2, 4, 8, 8)]),
    "conj as argument": (lambda z: (z * 2, z.real, z @ z.mT), lambda: [torch.randn(4, 6, dtype=C64).conj()]),
    "neg as argument": (lambda x: (x * 2, x + 1), lambda: [torch.randn(4, 6, dtype=C64).conj().imag]),
    "no dimension": (lambda z: (z * 2, z.abs(), z.conj()), lambda: [torch.randn((), dtype=C64)]),
    "empty": (lambda z: (z * 2, z.abs(), z.sum(0)), lambda: [torch.randn(0, 6, dtype=C64)]),
}
