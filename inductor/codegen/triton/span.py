"""Decides between 32- and 64-bit arithmetic for an index, by bounds of the index and of its intermediate results."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.size import AnySize, Size
from ...schedule.index import Affine, Index
from ...schedule.interval import Bounds
from ..values import Val


def fits_int32(bounds: Bounds) -> bool:
    """Whether both bounds fit in 32-bit integers."""
    return -(2**31) <= bounds[0] and bounds[1] < 2**31


def span(index: Index, sizes: Mapping[str, AnySize], symbols: Mapping[str, Val]) -> Bounds:
    """Lower and upper bound of all intermediate results when an index is computed. `sizes` are those of the loops, and
    `symbols` are the values of indirect variables."""
    ranges: dict[str, Bounds] = {name: (0, size - 1) for name, size in sizes.items()}
    ranges |= {name: (0, value.attrs[0] - 1) for name, value in symbols.items()}
    if not isinstance(index, Affine):
        envs = {end.env for _, end in ranges.values() if isinstance(end, Size) and end.env}
        ranges |= {str(symbol): (symbol, symbol) for env in envs for symbol in env.all()}
    return index.span(ranges)
