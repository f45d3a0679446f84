"""Finds out, for operators on single elements, whether ATen's kernel accepts the dtypes of its arguments.

Fake tensors accept dtypes for which ATen has no kernel (`torch.frac` of integers, `torch.xlogy` of complex numbers) or
which it refuses (`x - True`), and a decomposition would compute a result where eager raises. `KernelDtypes`, a dispatch
mode in which a graph is traced, calls the operator once, on a few ones of the same dtypes, and remembers the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..errors import Unsupported
from .foreach import foreach_decompositions

aten = torch.ops.aten


def _in_place(overload: Any) -> Any:
    """The operator that writes what this one returns, or None."""
    return getattr(aten, f"{overload.overloadpacket._qualified_op_name.removeprefix('aten::')}_", None)


# Operators without the tag `pointwise` that raise only because of dtypes if all elements are 1 and no size is odd.
_ALSO = frozenset(
    (
        aten.glu, aten.hardswish, aten.hardtanh, aten.hardsigmoid, aten.leaky_relu, aten.elu, aten.softplus,
        aten.log_sigmoid_forward, aten.mse_loss, aten.huber_loss, aten.smooth_l1_loss, aten.soft_margin_loss,
        aten.binary_cross_entropy, aten.hardswish_backward, aten.hardtanh_backward, aten.hardsigmoid_backward,
        aten.leaky_relu_backward, aten.elu_backward, aten.softplus_backward, aten.log_sigmoid_backward,
        aten.mse_loss_backward, aten.huber_loss_backward, aten.smooth_l1_loss_backward,
        aten.soft_margin_loss_backward, aten.binary_cross_entropy_backward, aten.nansum, aten.sum, aten.mean,
        aten.trace, aten.cumsum, aten.cumprod, aten.logcumsumexp, aten.logsumexp, aten._softmax, aten._log_softmax,
        aten._softmax_backward_data, aten._log_softmax_backward_data,
        aten.complex, aten.polar,
        *(overload.overloadpacket for overload in foreach_decompositions()),
        *(packet for packet in map(_in_place, foreach_decompositions()) if packet is not None),
    )
)  # fmt: skip
_PLAIN = {torch.float32, torch.float64}  # every kernel accepts these
_LARGEST = 2  # of the sizes of the arguments of such a call
_REMEMBERED = 10_000
# The outcome of each call made: None, or the exception that it raised. By operator and description of the arguments.
_OUTCOMES: dict[Any, Exception | None] = {}


class RefusedByKernel(Unsupported):
    """ATen's kernel raises an error for the dtypes of the arguments."""


class KernelDtypes(TorchDispatchMode):
    """RefusedByKernel for calls of operators whose kernels do not accept the dtypes of the arguments."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps `__torch_dispatch__` by a function that imports torch._dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_checked(func):
            error = _outcome(func, args, kwargs)
            if error is not None:
                raise RefusedByKernel(f"eager raises an error here: {error}") from error
        return func(*args, **kwargs)


def _is_checked(func: Any) -> bool:
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    if func.overloadpacket in _ALSO:
        return True
    return torch.Tag.pointwise in func.tags and torch.Tag.nondeterministic_seeded not in func.tags


def _outcome(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Exception | None:
    """The exception that the operator raises for such arguments, or None."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    dtypes = {x.dtype for x in tensors}
    if len(dtypes) == 1 and dtypes < _PLAIN and not any(isinstance(x, bool | complex) for x in leaves):
        return None
    if not all(_is_available(x) for x in tensors):
        return None
    try:
        key = (func, structure, tuple(map(_description, leaves)))
        known = key in _OUTCOMES
    except TypeError:  # an argument that has no hash
        return None
    if not known:
        if len(_OUTCOMES) >= _REMEMBERED:
            _OUTCOMES.clear()
        _OUTCOMES[key] = _raised(func, leaves, structure)
    return _OUTCOMES[key]


def _is_available(x: torch.Tensor) -> bool:
    """Whether a tensor like `x` can be created and used here and now."""
    if x.layout is not torch.strided or x.is_quantized:
        return False
    if x.device.type == "cuda":
        return torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing()
    return x.device.type == "cpu"


def _description(x: Any) -> Any:
    """What the kernel's choice may depend on."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.device, tuple(map(_size, x.shape))
    if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
        return type(x)
    return type(x), x


def _example(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return torch.ones(tuple(map(_size, x.shape)), dtype=x.dtype, device=x.device)
    if isinstance(x, torch.SymInt):
        return 1
    if isinstance(x, torch.SymFloat):
        return 1.0
    return True if isinstance(x, torch.SymBool) else x


def _size(n: int | torch.SymInt) -> int:
    """A small size that broadcasts as `n` does."""
    return min(n, _LARGEST) if isinstance(n, int) else _LARGEST


def _raised(func: Any, leaves: Sequence[Any], structure: pytree.TreeSpec) -> Exception | None:
    """The exception that the operator raises for examples of these arguments, or None."""
    functional = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast(), functional:
        try:
            args, kwargs = pytree.tree_unflatten([_example(x) for x in leaves], structure)
        except RuntimeError:  # no kernel fills tensors of this dtype; what accepts them is not known
            return None
        try:
            func(*args, **kwargs)
        except MemoryError:
            raise
        except Exception as error:  # whatever the kernel raises, eager raises
            return error.with_traceback(None)
    return None
