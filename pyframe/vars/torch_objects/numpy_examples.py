"""What NumPy's functions return for examples of their arguments: dtypes, arrays or scalars, views or copies.

`torch._numpy`, whose functions replace NumPy's in graphs, differs from NumPy in some of these: it copies where NumPy
reverses an array in place (`a[::-1]`), and returns its argument where NumPy copies (`a.astype`, `a.flatten`). A trace
compares with what NumPy does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...core import symbolic
from ..protocol.base import NotConstant, Var

try:
    import numpy
except ImportError:  # torch also works without NumPy
    numpy = None  # type: ignore[assignment]

MAX_COMPUTED = 1 << 16  # elements of an example that functions may compute with


class Returned(NamedTuple):
    """One result of a NumPy function.

    scalar: a NumPy scalar rather than an array. shares: whether it shares memory with an argument; None if unknown.
    reversed: a stride is negative, which tensors cannot have."""

    dtype: Any
    scalar: bool
    shares: bool | None
    reversed: bool


def storage_of(fake: torch.Tensor) -> Any:
    """What identifies the memory of a fake tensor."""
    return fake.untyped_storage()._cdata


def example_of(fake: torch.Tensor, most: float) -> Any:
    """An array of the dtype, sizes and strides of `fake`; NotConstant if it has more than `most` elements. If `most` is
    0, every size is 1. Small arrays contain ones."""
    if not most:
        return torch.ones((1,) * fake.dim(), dtype=fake.dtype, device="cpu").numpy()
    sizes, strides = ([symbolic.hint(number) for number in numbers] for numbers in (fake.shape, fake.stride()))
    array = torch.empty_strided(sizes, strides, dtype=fake.dtype, device="cpu")
    if array.numel() > most:
        raise NotConstant("a large array")
    return array.numpy() if array.numel() > MAX_COMPUTED else array.fill_(1).numpy()


def returned_by_numpy(
    fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var], example: Callable[[Var, float], Any]
) -> list[Returned] | None:
    """What NumPy's `fn` returns for `example(argument, most)` of each argument; None if the calls fail."""
    only_views = fn is operator.getitem  # or copies of a part: the size of the argument does not matter
    for most in (math.inf if only_views else MAX_COMPUTED, 0):
        try:
            given = [example(arg, most) for arg in args]
            named = {key: example(value, most) for key, value in kwargs.items()}
            with numpy.errstate(all="ignore"):
                result = fn(*given, **named)
        except (TypeError, ValueError, IndexError, NotConstant, numpy.linalg.LinAlgError):
            continue
        results = result if isinstance(result, list | tuple) else [result]
        arrays = _arrays([*given, *named.values()])
        return [
            _returned(each, arrays, bool(most)) for each in results if isinstance(each, numpy.ndarray | numpy.generic)
        ]
    return None


def _returned(result: Any, arrays: Sequence[Any], sized: bool) -> Returned:
    """`arrays`: the arguments. `sized`: they have the sizes and strides of the program's; otherwise NumPy may return a
    view where the program gets a copy (`reshape` of a transposed array), and an empty result is not conclusive."""
    shares: bool | None = any(numpy.may_share_memory(result, array) for array in arrays)
    reversed = any(stride < 0 for stride in result.strides)
    if not sized and (not result.size or shares and not reversed):
        shares = None
    return Returned(result.dtype, isinstance(result, numpy.generic), shares, reversed)


def _arrays(values: Sequence[Any]) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, numpy.ndarray):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _arrays(value)
    return found
