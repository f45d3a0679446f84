"""`mark_dynamic`, `mark_static` and related functions: marks on the dimensions of a tensor that say what `compile` may
assume about their sizes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .errors import UserError
from .vars.numbers.dynamic import MARKS, Mark


def mark_dynamic(
    t: torch.Tensor, index: int | Iterable[int], *, min: int | None = None, max: int | None = None
) -> None:
    """The size of dimension `index` (or of each of several) varies: capture `t` for every size from `min` to `max`.

    UserError while capturing where the program then runs for one size alone.  0 and 1 are always captures of their own.
    """
    for limit in (min, max):
        if limit is not None and (type(limit) is not int or limit < 0):
            raise UserError(f"mark_dynamic(): min and max must be sizes or None, not {limit!r}")
    if min is not None and max is not None and min > max:
        raise UserError(f"mark_dynamic(): min={min} is larger than max={max}")
    _mark(t, index, Mark("dynamic", min, max))


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """As mark_dynamic, but where the program runs for one size alone, it is captured for that one."""
    _mark(t, index, Mark("maybe"))


def mark_static(t: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """The size of dimension `index` (default: of every one) is a constant of each capture, however it varies."""
    _mark(t, range(t.dim()) if index is None else index, Mark("static"))


def mark_unbacked(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """As mark_dynamic, for any size, 0 and 1 included; a branch on the size breaks the graph."""
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
