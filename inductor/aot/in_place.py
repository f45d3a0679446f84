"""Runs in-place operators on fake tensors and raises the errors that eager would raise.

Some fake implementations accept a wrong size or dtype of the tensor that is written; eager does not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..autocast import without_autocast
from ..fx_utils.arguments import tensors_in
from ..fx_utils.writes import writes_in_place
from ..overlap import elements_overlap, memory_of

# Python's in-place operators, and the operator that computes the value that each of them writes.
_OPERATORS: dict[Any, Callable[..., Any]] = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.ipow: operator.pow, operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor,
    operator.ilshift: operator.lshift, operator.irshift: operator.rshift,
}  # fmt: skip
# The same operators as methods: `x.__iadd__(y)`.
_METHODS = {f"__{run.__name__}__": computes for run, computes in _OPERATORS.items()} | {"__idiv__": operator.truediv}
_WRITES_OF_ITEMS = {operator.setitem, "__setitem__"}  # into a part of the first argument
_FILL_DIAGONAL = ("fill_diagonal_", torch.Tensor.fill_diagonal_, torch.ops.aten.fill_diagonal_.default)
# Methods whose fake implementations do not compare the sizes of other operands with those of the first.
_SIZES_UNCHECKED = {"masked_scatter_"}


class WrongInPlace(RuntimeError):
    """Eager would raise: the result has another size or dtype than the tensor to write to, or operands overlap it."""


class ConvertedOut(WrongInPlace):
    """Eager converts the result to the dtype of the tensor passed as `out=`, which thus holds what the function
    computes without `out=`; `dtype`: this argument is needed in its place."""

    def __init__(self, message: str, dtype: torch.dtype | None = None) -> None:
        super().__init__(message)
        self.dtype = dtype


def call_operator(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`run(*args, **kwargs)`. The only place that calls the operator: an exception raised here is the operator's."""
    return run(*args, **kwargs)


def check_out(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """WrongInPlace unless the fake tensors passed as `out=` are simply filled; otherwise eager resizes them, converts
    the result, or raises an error."""
    outs = tensors_in(kwargs["out"])
    if not outs:
        return
    given = tensors_in([*args, *(value for name, value in kwargs.items() if name != "out")])
    if any(x.layout != torch.strided for x in (*outs, *given)):
        return
    if any(elements_overlap(x) for x in outs):
        raise WrongInPlace("more than one element of the written-to tensor refers to a single memory location")
    for k, x in enumerate(outs):
        if any(_shares_partly(x, y) for y in (*given, *outs[:k])):
            raise WrongInPlace("an operand and the written-to tensor refer to a single memory location")
    rest = {name: value for name, value in kwargs.items() if name != "out"}
    values = tensors_in(call_operator(run, args, rest))
    for x, value in zip(outs, values):
        if _was_resized(x, tuple(value.shape)):
            raise WrongInPlace(f"a result of shape {list(value.shape)} for an out tensor of shape {list(x.shape)}")
    for x, value in zip(outs, values):
        if value.dtype != x.dtype:
            message = f"a result of {value.dtype} for an out tensor of {x.dtype}"
            if kwargs["out"] is not x or (torch.is_grad_enabled() and any(y.requires_grad for y in (x, *given))):
                raise WrongInPlace(message)
            if not given and "dtype" not in rest and _takes_dtype(run, args, {**rest, "dtype": x.dtype}):
                raise ConvertedOut(message, x.dtype)
            if torch.can_cast(value.dtype, x.dtype) and _is_pointwise(run, args, rest):
                raise ConvertedOut(message)
            raise WrongInPlace(message)


def _takes_dtype(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function that creates a tensor of numbers alone takes a dtype."""
    try:
        call_operator(run, args, kwargs)
    except (TypeError, RuntimeError):
        return False
    return True


class _Operators(TorchDispatchMode):
    """Notes which operators run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def _is_pointwise(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function runs pointwise operators alone: they compute in the dtype of the operands, and convert the
    result. Reductions, for one, may add in the dtype of the out tensor."""
    with _Operators() as operators:
        call_operator(run, args, kwargs)
    return all(torch.Tag.pointwise in func.tags for func in operators.seen)


def _shares_partly(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors may share memory without being the same element by element."""
    if x is y or x.layout != y.layout or x.untyped_storage()._cdata != y.untyped_storage()._cdata:
        return False
    same = x.storage_offset() == y.storage_offset() and x.stride() == y.stride()
    return not (same and not _was_resized(x, tuple(y.shape)))


def _fill_diagonal(
    run: Callable[..., Any], x: torch.Tensor, fill_value: float, wrap: bool = False
) -> torch.Tensor:
    """`x.fill_diagonal_(fill_value, wrap)`. ATen writes through `as_strided`, which functionalization refuses for views
    of views; most diagonals are views that it knows."""
    rest = set(x.shape[1:])
    one_diagonal = x.dim() == 2 and not (wrap and x.shape[0] > x.shape[1]) or x.dim() > 2 and rest == {x.shape[0]}
    if not one_diagonal or not isinstance(fill_value, int | float | complex):
        return run(x, fill_value, wrap)
    diagonal = x
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal(0, 0, 1)
    diagonal.fill_(fill_value)
    return x


def run_in_place(
    run: Callable[..., Any], target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run `run(*args, **kwargs)` on fake tensors; `target` is what the graph calls. WrongInPlace for an in-place
    operator that eager refuses to run; the first argument then keeps its size and strides.

    In-place operators run without autocast: eager does not cast their operands, but would cast those of the functional
    operators that functionalization replaces them by.
    """
    if target in _FILL_DIAGONAL:
        run = functools.partial(_fill_diagonal, run)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    computes = _METHODS.get(target) if isinstance(target, str) else _OPERATORS.get(target)
    writes = writes_in_place(target)
    written = args[0] if writes and args and target not in _WRITES_OF_ITEMS else None
    if writes:
        alone = run
        run = without_autocast(lambda *args, **kwargs: call_operator(alone, args, kwargs))
    if isinstance(written, list | tuple):
        return _run_on_list(run, name, written, args, kwargs)
    if not isinstance(written, torch.Tensor) or written.layout != torch.strided or written.is_nested:
        return call_operator(run, args, kwargs)
    before = tuple(written.shape), written.stride(), written.storage_offset()
    result = call_operator(run, args, kwargs)
    if result is not written:
        return result
    if _was_resized(written, before[0]) and not _changes_metadata(name):
        size = tuple(written.shape)
        torch.ops.aten.as_strided_.default(written, *before)
        raise WrongInPlace(f"output with shape {list(before[0])} doesn't match the broadcast shape {list(size)}")
    narrow = not written.dtype.is_floating_point and not written.dtype.is_complex
    if narrow or name in _SIZES_UNCHECKED:
        _check_value(computes, name, args, kwargs)
    return result


def _run_on_list(
    run: Callable[..., Any], name: str, written: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run an operator that writes to the tensors of a list, and count the writes as eager does.

    `torch._foreach_add_` and the like increment the version of each tensor; on fake and functional tensors they do not.
    The fused optimizers and `_amp_foreach_non_finite_check_and_unscale_` increment none.
    """
    versions = [x._version if _has_version(x) else None for x in written]
    result = None
    if _shared_between_places(written, args[1:], kwargs):
        _one_after_another(run, len(written), args, kwargs)
    else:
        result = call_operator(run, args, kwargs)
    if name.startswith("_foreach_"):
        for x, version in zip(written, versions):
            if version is not None and x._version == version:
                torch.autograd.graph.increment_version(x)
    return result


def _has_version(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not x.is_inference()


def _shared_between_places(written: Sequence[Any], others: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a tensor in a written list shares memory with a tensor at another position of this or another list, or
    with a tensor outside of lists."""
    memory: dict[int, set[int]] = {}  # positions by memory; -1: outside of lists
    for values in (written, *others, *kwargs.values()):
        in_list = isinstance(values, list | tuple)
        for place, x in enumerate(values if in_list else (values,)):
            if isinstance(x, torch.Tensor):
                memory.setdefault(memory_of(x), set()).add(place if in_list else -1)
    return any(isinstance(x, torch.Tensor) and len(memory[memory_of(x)]) > 1 for x in written)


def _one_after_another(run: Callable[..., Any], count: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call an operator on lists of `count` items for one item after the other, as ATen's CPU kernels do: a later item
    sees what earlier ones wrote. The functional form would read all items first."""

    def item(value: Any, place: int) -> Any:
        return value[place : place + 1] if isinstance(value, list | tuple) and len(value) == count else value

    for place in range(count):
        items = [item(x, place) for x in args]
        call_operator(run, items, {name: item(x, place) for name, x in kwargs.items()})


def _was_resized(x: torch.Tensor, size: tuple[Any, ...]) -> bool:
    return x.dim() != len(size) or any(a is not b and a != b for a, b in zip(x.shape, size))


def _changes_metadata(name: str) -> bool:
    """Whether changing its argument's size is what the operator is for."""
    operators = getattr(torch.ops.aten, name.partition(".")[0], None)
    if operators is None:
        return False
    tags = [getattr(operators, overload).tags for overload in operators.overloads()]
    return any(torch.Tag.inplace_view in each for each in tags) or name in ("resize_", "resize_as_", "set_")


def _check_value(
    compute: Callable[..., Any] | None, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """WrongInPlace if the operator's out-of-place result has a size or dtype that the first argument cannot hold."""
    compute = compute or getattr(torch.Tensor, name.partition(".")[0].removesuffix("_"), None)
    if compute is None:
        return
    try:
        value = compute(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # there is no out-of-place form
        return
    written = args[0]
    if not isinstance(value, torch.Tensor):
        return
    if not torch.can_cast(value.dtype, written.dtype):
        raise WrongInPlace(f"result type {value.dtype} can't be cast to the desired output type {written.dtype}")
    if _was_resized(value, tuple(written.shape)):
        raise WrongInPlace(f"output with shape {list(written.shape)} doesn't match the shape {list(value.shape)}")
