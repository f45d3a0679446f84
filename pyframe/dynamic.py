"""`mark_dynamic`, `mark_static` and related functions, by which users mark the dimensions of a tensor to say what
`compile` may assume about their sizes. `vars.numbers.dynamic` reads the marks during a capture."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .errors import UserError
from .vars.numbers.dynamic import MARKS, Mark


def mark_dynamic(
    t: torch.Tensor, index: int | Iterable[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Declare that the size of dimension `index` (or of each of several) varies: one capture of `t` serves every size
    from `min` to `max`.

    Raises UserError during capture if the program then requires one particular size. Sizes 0 and 1 always get captures
    of their own.
    """
    for limit in (min, max):
        if limit is not None and (type(limit) is not int or limit < 0):
            raise UserError(f"mark_dynamic(): min and max must be sizes or None, not {limit!r}")
    if min is not None and max is not None and min > max:
        raise UserError(f"mark_dynamic(): min={min} is larger than max={max}")
    _mark(t, index, Mark("dynamic", min, max))


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """Like mark_dynamic, but a program that requires one particular size is captured for that size."""
    _mark(t, index, Mark("maybe"))


def mark_static(t: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """The size of dimension `index` (default: of every one) is a constant of each capture, even if it varies between
    calls."""
    _mark(t, range(t.dim()) if index is None else index, Mark("static"))


def mark_unbacked(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """Like mark_dynamic, but for any size, including 0 and 1; a branch on the size breaks the graph."""
    _mark(t, index, Mark("unbacked"))


def _mark(t: torch.Tensor, index: int | Iterable[int], mark: Mark) -> None:
    if not isinstance(t, torch.Tensor):
        raise UserError(f"only dimensions of tensors can be marked, not of {type(t).__name__}")
    marks = dict(getattr(t, MARKS, {}))
    for dim in (index,) if isinstance(index, int) else tuple(index):
        if not -t.dim() <= dim < t.dim():
            raise UserError(f"the tensor has {t.dim()} dimensions; there is no dimension {dim} to mark")
        marks[dim % t.dim()] = mark
    setattr(t, MARKS, marks)
