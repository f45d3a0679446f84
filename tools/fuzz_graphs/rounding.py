"""Runs a program in float64 with artificial rounding errors, to find how much two correct runs may differ.

An error is added to the value of each statement that computes (`Perturbation`) and to the result of each ATen operator
that rounds, including those of the backward (`RoundedOperators`), because the formula of an operator may magnify what
was rounded inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}

# Operators whose results are rounded. What moves or compares elements is exact, so equal elements stay equal.
ROUNDED = frozenset(
    "add sub rsub mul div sum nansum mean cumsum prod cumprod logcumsumexp mm bmm addmm baddbmm addbmm mv addmv dot "
    "convolution convolution_backward _softmax _safe_softmax _log_softmax _softmax_backward_data "
    "_log_softmax_backward_data logsumexp "
    "exp exp2 expm1 log log2 log1p pow sqrt rsqrt reciprocal tanh tanh_backward sigmoid sigmoid_backward sin cos erf "
    "var std linalg_vector_norm norm native_layer_norm native_layer_norm_backward native_group_norm "
    "native_group_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit gelu "
    "gelu_backward silu silu_backward softplus mish elu addcmul addcdiv lerp _cdist_forward _cdist_backward "
    "_pdist_forward _trilinear".split()
)
# For these the operand gets an error, too: partial sums and differences from a mean are rounded, and the result does
# not show how large these are. They are computed in float32 at least, for any dtype of the operand.
SUMS = frozenset("sum nansum mean cumsum native_layer_norm native_group_norm".split())


class RoundedOperators(TorchDispatchMode):
    """Multiplies the results of the operators in `ROUNDED` by 1 plus noise as large as the rounding error of the dtypes
    that they have in the program. A first run with `noted` records these dtypes by operator and call. If one operator
    computes both the mean and the variance, two operators compute them here, in another order."""

    def __init__(self, dtypes: dict[tuple[str, int], torch.dtype], seed: int, noted: bool = False) -> None:
        super().__init__()
        self.dtypes, self.noted, self.calls = dtypes, noted, Counter[str]()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::").removeprefix("_foreach_").removesuffix("_")
        if func in (aten.var_mean.correction, aten.std_mean.correction) and not self.noted:
            spread = aten.var if func is aten.var_mean.correction else aten.std
            dims = args[1] if len(args) > 1 else None
            mean = aten.mean.dim(args[0], dims, (kwargs or {}).get("keepdim", False))
            return spread.correction(*args, **(kwargs or {})), mean
        if name not in ROUNDED:
            return func(*args, **(kwargs or {}))
        self.calls[name] += 1
        key = (name, self.calls[name])
        if self.noted:
            result = func(*args, **(kwargs or {}))
            # a gradient that is not wanted is None, such as that of layer_norm's input
            tensors = [x for x in parts_of(result) if isinstance(x, torch.Tensor)]
            if tensors:
                self.dtypes[key] = tensors[0].dtype
            return result
        # where the wider dtype takes another path, the smallest rounding error of the program
        dtype = self.dtypes.get(key) or min(self.dtypes.values(), key=lambda d: EPS.get(d, 1.0), default=torch.float64)
        eps = EPS.get(dtype, 0.0)
        if name in SUMS and not func._schema.is_mutable and not exact_sums(args[0]):
            args = (self._rounded(args[0], min(eps, EPS[torch.float32]), False), *args[1:])
        result = func(*args, **(kwargs or {}))
        rounded = [self._rounded(x, eps, func._schema.is_mutable) for x in parts_of(result)]
        return type(result)(rounded) if isinstance(result, tuple | list) else rounded[0]

    def _rounded(self, x: Any, eps: float, in_place: bool) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        noise = torch.rand(x.shape, generator=self.generator, dtype=torch.float64).to(x.device) - 0.5
        return x.mul_(1 + 2 * eps * noise) if in_place else x * (1 + 2 * eps * noise)


def parts_of(result: Any) -> Sequence[Any]:
    """The results of an operator, which may be one or several; those that were not asked for are None."""
    return result if isinstance(result, tuple | list) else (result,)


def exact_sums(x: torch.Tensor) -> bool:
    """Whether sums of the elements are exact in any order: few enough of them, all multiples of a power of two."""
    scaled = x.detach().double() * 64
    return bool((scaled == scaled.round()).all()) and bool(scaled.abs().sum() < 2**24)


class Perturbation:
    """`_p` of a perturbed program: numbers off by as much as rounding to the eager value's dtype, gradients too."""

    def __init__(self, dtypes: dict[str, torch.dtype], seed: int, device: str) -> None:
        self.dtypes, self.generator, self.device = dtypes, torch.Generator().manual_seed(seed), device

    def __call__(self, value: torch.Tensor, name: str, differences: bool) -> torch.Tensor:
        eps = EPS.get(self.dtypes.get(name, torch.float32), 0.0)
        if not value.is_floating_point():
            return value
        if differences:
            near_zero = torch.rand(value.shape, generator=self.generator, dtype=torch.float64).to(self.device) - 0.5
            value = value + eps * near_zero
        noise = [
            1 + 2 * eps * (torch.rand(value.shape, generator=self.generator, dtype=torch.float64) - 0.5).to(self.device)
            for _ in range(2)
        ]
        return _Noise.apply(value, *noise)


class _Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, noise: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
        ctx.back = back
        return value * noise

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0] * ctx.back, None, None
