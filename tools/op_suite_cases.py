"""The cases of the operator suite: which samples of torch's operator database are run, and copies of their tensors.

A case is one call of one operator, named by its dtype, the index of its sample in the database's list, and whether the
sample's tensors are made non-contiguous ("float32:3", "float32:3:noncontiguous").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool,
    torch.complex64,
)  # fmt: skip
MODES = ("forward", "inplace", "backward", "dynamic", "errors", "special", "special_backward")
BACKWARD_MODES = ("backward", "special_backward")
SPECIAL_MODES = ("special", "special_backward")
# What the special modes write into floating-point inputs, in this order, one number per 3 elements.
SPECIAL_NUMBERS = (float("nan"), float("inf"), -float("inf"), -0.0)
MAX_LISTED = 2000  # samples of one operator and dtype from which some are chosen


@dataclass(frozen=True)
class Case:
    """One call. `partner`: in the mode "dynamic", a call of the same structure with other sizes."""

    name: str
    dtype: torch.dtype | None
    call: Any  # (input, args, kwargs)
    process: Callable[[Any], Any]  # what of the results is differentiated
    partner: Any = None


def operators() -> dict[str, Any]:
    """The operators of the database by name."""
    return {op.full_name: op for op in op_db}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtypes_of(op: Any, mode: str, device: str, wanted: Sequence[torch.dtype]) -> list[torch.dtype]:
    """The dtypes in `wanted` that the database lists for the operator."""
    kind = torch.device(device).type
    listed = op.supported_backward_dtypes(kind) if mode in BACKWARD_MODES else op.supported_dtypes(kind)
    return [dtype for dtype in wanted if dtype in listed]


def function_of(op: Any, mode: str) -> Callable[..., Any] | None:
    """The function to call, or None if the operator has no such variant."""
    if mode == "inplace":
        return op.get_inplace()
    if mode in BACKWARD_MODES and not op.supports_autograd:
        return None
    return op.op


def cases_of(op: Any, mode: str, device: str, wanted: Sequence[torch.dtype], most: int) -> Iterator[Case]:
    """Up to `most` samples for each dtype (0: all), each as it is and, except in "dynamic" and the special modes, with
    non-contiguous tensors. In the special modes, floating-point inputs contain NaN, infinities and -0.0."""
    if mode == "errors":
        yield from _error_cases(op, device)
        return
    for dtype in dtypes_of(op, mode, device, wanted):
        torch.manual_seed(0)
        listed = enumerate(op.sample_inputs(device, dtype, requires_grad=mode in BACKWARD_MODES))
        samples = list(itertools.islice(listed, None if most == 0 else MAX_LISTED))
        chosen = samples if most == 0 else _diverse(samples, most)
        for index, sample in chosen:
            name = f"{dtype_name(dtype)}:{index}"
            process = sample.output_process_fn_grad
            if mode == "dynamic":
                yield Case(name, dtype, _call(sample), process, _partner(index, sample, samples))
                continue
            if mode in SPECIAL_MODES:
                if dtype.is_floating_point:
                    yield Case(f"{name}:special", dtype, with_special_numbers(_call(sample)), process)
                continue
            yield Case(name, dtype, _call(sample), process)
            if _has_many_elements(sample):
                yield Case(f"{name}:noncontiguous", dtype, _call(sample.noncontiguous()), process)


def _error_cases(op: Any, device: str) -> Iterator[Case]:
    if op.error_inputs_func is None:
        return
    torch.manual_seed(0)
    for index, error in enumerate(op.error_inputs(device)):
        yield Case(f"error:{index}", None, _call(error.sample_input), lambda out: out)


def _call(sample: Any) -> Any:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def _has_many_elements(sample: Any) -> bool:
    return any(isinstance(x, torch.Tensor) and x.numel() > 1 for x in pytree.tree_leaves(_call(sample)))


def _structure(call: Any, with_sizes: bool) -> str:
    """What must be equal in two calls that differ in sizes only."""
    leaves, spec = pytree.tree_flatten(call)
    parts = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            sizes = tuple(leaf.shape) if with_sizes else tuple(min(n, 2) for n in leaf.shape)
            parts.append(f"{leaf.dtype} {leaf.layout} {sizes}")
        else:
            parts.append(f"{type(leaf).__name__} {leaf!r}")
    return f"{spec} {parts}"


def _kind(call: Any) -> str:
    """A coarser key: which arguments there are, and their numbers of dimensions."""
    leaves, spec = pytree.tree_flatten(call)
    return f"{spec} {[x.dim() if isinstance(x, torch.Tensor) else type(x).__name__ for x in leaves]}"


def _diverse(samples: list[tuple[int, Any]], most: int) -> list[tuple[int, Any]]:
    """Up to `most` samples: one of each kind of arguments in turn, all different in sizes and other arguments."""
    kinds: dict[str, list[tuple[int, Any]]] = {}
    seen = set()
    for index, sample in samples:
        call = _call(sample)
        exact = _structure(call, with_sizes=True)
        if exact not in seen:
            seen.add(exact)
            kinds.setdefault(_kind(call), []).append((index, sample))
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*kinds.values()))
    if len(kinds) > most:  # spread over the list rather than its head
        firsts = [group[0] for group in kinds.values()]
        rounds = iter(firsts[k * len(firsts) // most] for k in range(most))
    return sorted(itertools.islice((x for x in rounds if x is not None), most), key=lambda pair: pair[0])


def _partner(index: int, sample: Any, samples: list[tuple[int, Any]]) -> Any:
    """The next sample that differs from this one in sizes only."""
    wanted, exact = _structure(_call(sample), with_sizes=False), _structure(_call(sample), with_sizes=True)
    for other, candidate in samples[index + 1 : index + 60]:
        call = _call(candidate)
        if other != index and _structure(call, False) == wanted and _structure(call, True) != exact:
            return call
    return None


def copy_call(call: Any) -> Any:
    """The call with copies of its tensors: same strides, same sharing of memory, same conj and neg bits, all leaves."""
    storages: dict[int, torch.UntypedStorage] = {}
    return pytree.tree_map(lambda x: _copy(x, storages) if isinstance(x, torch.Tensor) else x, call)


def _copy(x: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    requires_grad = x.requires_grad
    x = x.detach()
    if x.layout is not torch.strided or x.is_nested or x.is_quantized or x._is_zerotensor():
        return x.clone().requires_grad_(requires_grad)
    storage = x.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = storage.clone()
    y = torch.empty(0, dtype=x.dtype, device=x.device)
    y.set_(storages[storage._cdata], x.storage_offset(), x.shape, x.stride())
    torch._C._set_conj(y, x.is_conj())
    torch._C._set_neg(y, x.is_neg())
    return y.requires_grad_(requires_grad)


def with_special_numbers(call: Any) -> Any:
    """The call with `SPECIAL_NUMBERS` at every third element of its floating-point tensors. The numbers begin at
    another position of each tensor, so that they meet ordinary numbers and one another."""
    call = copy_call(call)
    floats = [x for x in pytree.tree_leaves(call) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    for start, x in enumerate(floats):
        if x.layout is torch.strided and not x.is_nested and x.numel():
            positions = torch.arange(start % 3, x.numel(), 3, device=x.device)
            numbers = torch.tensor(SPECIAL_NUMBERS, dtype=torch.float64, device=x.device).roll(-start)
            with torch.no_grad():
                flat = x.reshape(-1).clone()
                flat[positions] = numbers[torch.arange(len(positions), device=x.device) % len(numbers)].to(x.dtype)
                x.copy_(flat.view(x.shape))
    return call


def with_steps(call: Any) -> Any:
    """The call with tensors whose elements are not adjacent in memory: ATen's kernels then process one element at a
    time, while they process adjacent ones in vectors."""
    def spread(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or x.is_nested or not x.numel():
            return x
        apart = torch.stack([x.detach(), x.detach()], -1)[..., 0]
        return apart.requires_grad_(x.requires_grad)

    return pytree.tree_map(spread, call)


def to_double(call: Any) -> Any:
    """The call with floating tensors in float64 and complex ones in complex128."""
    def convert(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
            return x.detach().to(torch.complex128 if x.is_complex() else torch.float64).requires_grad_(x.requires_grad)
        return {torch.complex64: torch.complex128}.get(x, torch.float64) if _is_float_type(x) else x

    return pytree.tree_map(convert, call)


def _is_float_type(x: Any) -> bool:
    return isinstance(x, torch.dtype) and (x.is_floating_point or x.is_complex)
