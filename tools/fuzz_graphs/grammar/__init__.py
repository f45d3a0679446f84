"""The operators that random programs consist of, each a function that writes one expression over the generator's
values.

Each module has a table `ROWS` for a group of operators. The order of the rows decides which program a seed gives.
"""

from __future__ import annotations

from ..generate import Grammar
from . import families, indexing, layers, movement, pointwise, reductions, usage, writes

CORE: Grammar = [
    *movement.ROWS, *reductions.ROWS, *indexing.ROWS, *pointwise.ROWS, *writes.ROWS, *layers.ROWS,
]  # fmt: skip
ALL: Grammar = [*CORE, *families.ROWS, *usage.ROWS]
