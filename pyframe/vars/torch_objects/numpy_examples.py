"""What NumPy's functions return for examples of their arguments: dtypes, arrays or scalars, views or copies.

`torch._numpy`, whose functions replace NumPy's in graphs, differs from NumPy in some of these: it copies where NumPy
reverses an array in place (`a[::-1]`), returns its argument where NumPy copies (`a.astype`, `a.flatten`), and raises
where NumPy does not (an integer divided by zero) or the reverse. A trace compares both on examples.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
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


class Comparison(NamedTuple):
    """returned: NumPy's results, None if no example could be run. difference: how `torch._numpy` differs from NumPy,
    None if it does not. kind: the type of what NumPy returns; None if no example could be run."""

    returned: list[Returned] | None
    difference: str | None
    kind: type | None = None


def example_of(fake: torch.Tensor, most: float, number: int) -> Any:
    """An array of the dtype, sizes and strides of `fake` that holds `number`; NotConstant if it has more than `most`
    elements, or sizes that depend on data. If `most` is 0, every size is 1. Arrays of more than MAX_COMPUTED elements
    are not initialized."""
    if not most:
        return torch.full((1,) * fake.dim(), number, dtype=fake.dtype, device="cpu").numpy()
    if any(size.node.hint is None for size in (*fake.shape, *fake.stride()) if isinstance(size, torch.SymInt)):
        raise NotConstant("a size that depends on data")
    sizes, strides = ([symbolic.hint(size) for size in sizes] for sizes in (fake.shape, fake.stride()))
    array = torch.empty_strided(sizes, strides, dtype=fake.dtype, device="cpu")
    if array.numel() > most:
        raise NotConstant("a large array")
    return array.numpy() if array.numel() > MAX_COMPUTED else array.fill_(number).numpy()


def compare_with_numpy(
    fn: Callable[..., Any], ours: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var],
    example: Callable[..., Any],
) -> Comparison:  # fmt: skip
    """Call NumPy's `fn` with `example(argument, most, number)` for each argument (see `example_of`), and `ours`, the
    function of tensors that replaces it, with the same as tensors."""
    only_views = fn is operator.getitem  # or copies of a part: the size of the argument does not matter
    for number in (0, -1):
        if _run(fn, ours, args, kwargs, functools.partial(example, most=0, number=number)).difference is not None:
            return Comparison(None, f"raises another error for {number}")
    for most in (math.inf if only_views else MAX_COMPUTED, 0):
        found = _run(fn, ours, args, kwargs, functools.partial(example, most=most, number=1))
        if found.difference is not None:
            return found
        if found.returned is not None:
            return found if most else found._replace(returned=list(map(_of_one_element, found.returned)))
    return Comparison(None, None)


def _run(
    fn: Callable[..., Any], ours: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var],
    example: Callable[[Var], Any],
) -> Comparison:  # fmt: skip
    try:
        given, named = list(map(example, args)), {key: example(value) for key, value in kwargs.items()}
    except NotConstant:
        return Comparison(None, None)
    tensors, named_tensors = list(map(_as_tensors, given)), {key: _as_tensors(value) for key, value in named.items()}
    refused = failed = None
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn(*given, **named)
        except Exception as error:  # the program gets the same one if it calls NumPy
            refused = error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            replaced = ours(*tensors, **named_tensors)
        except Exception as error:  # whatever it raises, the program must get what NumPy does
            failed = error
    if refused is not None:
        same = failed is not None and (type(failed) is type(refused) or not isinstance(refused, TypeError))
        return Comparison(None, None if same else f"does not raise {type(refused).__name__}")
    if failed is not None:
        return Comparison(None, f"raises {type(failed).__name__}: {failed}")
    results = result if isinstance(result, list | tuple) else [result]
    results = [each for each in results if isinstance(each, numpy.ndarray | numpy.generic)]
    replaced = replaced if isinstance(replaced, list | tuple) else [replaced]
    shapes = [tuple(each.shape) for each in replaced if isinstance(each, torch.Tensor)]
    expected = [each.shape for each in results]
    if len(shapes) == len(expected) and shapes != expected:
        return Comparison(None, f"returns arrays of sizes {shapes}, not {expected}")
    if any(isinstance(each, numpy.ndarray) and not each.flags.writeable for each in results):
        return Comparison(None, "returns an array that can be written")
    arrays = _arrays([*given, *named.values()])
    return Comparison([_returned(each, arrays) for each in results], None, type(result))


def _as_tensors(value: Any) -> Any:
    """An example, as nodes take it: arrays and NumPy's numbers as tensors, dtypes as their names."""
    if isinstance(value, numpy.ndarray | numpy.generic):
        array = numpy.asarray(value)
        return torch.from_numpy(array if array.size > MAX_COMPUTED else array.copy())
    if isinstance(value, list | tuple):
        return type(value)(map(_as_tensors, value))
    if isinstance(value, numpy.dtype) or isinstance(value, type) and issubclass(value, numpy.generic):
        return numpy.dtype(value).name
    return numpy.dtype(value).name if value in (float, int, bool, complex) else value


def _returned(result: Any, arrays: Sequence[Any]) -> Returned:
    shares = any(numpy.may_share_memory(result, array) for array in arrays)
    reversed = any(stride < 0 for stride in result.strides)
    return Returned(result.dtype, isinstance(result, numpy.generic), shares if result.size else None, reversed)


def _of_one_element(result: Returned) -> Returned:
    """Of larger arrays, NumPy may return a copy where it returns a view of one element (`reshape` of a transposed
    array)."""
    return result._replace(shares=None) if result.shares and not result.reversed else result


def _arrays(values: Sequence[Any]) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, numpy.ndarray):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _arrays(value)
    return found
