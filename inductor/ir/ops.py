"""The table of loop-IR operations, one row each. The methods of handlers are generated from it, and the tables of code
generation are checked against it.

The dtype of a result is one of: "same" (as the first value), "second" (as the second value), "bool", "int64",
"explicit" (an argument of the op states it).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True)
class OpSpec:
    """One row. `arity` counts the operands that are values; `structured` marks ops that also have other operands."""

    name: str
    arity: int
    dtype: str = "same"
    pure: bool = True
    structured: bool = False


@dataclass(frozen=True)
class ReductionKind:
    """What the op `reduction` or `scan` computes. `position_of`: if that is the position of an extreme element, which
    extreme, "max" or "min"; None if it is a value."""

    name: str
    position_of: str | None = None


# Ops that take tens of instructions each.
EXPENSIVE = {
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "erf", "erfc", "ndtr", "lgamma", "sigmoid", "pow", "atan2", "fmod", "remainder", "asinh", "acosh",
    "atanh",
}

REDUCTIONS = {
    kind.name: kind
    for kind in (
        *map(ReductionKind, ("sum", "prod", "max", "min", "any", "all")),
        ReductionKind("argmax", "max"), ReductionKind("argmin", "min"),
    )
}  # fmt: skip


# What the op `scan` computes: running values along the reduction variables. Of equal elements, and of several NaNs, the
# position is that of the last one.
SCANS = {
    kind.name: kind
    for kind in (
        *map(ReductionKind, ("sum", "prod", "max", "min", "logsumexp")),
        ReductionKind("argmax", "max"), ReductionKind("argmin", "min"),
    )
}  # fmt: skip


# What the op `sort` gives at the k-th point of a row: the k-th element in order, or its position.
SORTS = ("values", "positions")


def _rows(names: str, arity: int, dtype: str = "same") -> list[OpSpec]:
    return [OpSpec(n, arity, dtype) for n in names.split()]


_ROWS = [
    # ops with operands other than values; see handler.Handler for their signatures
    OpSpec("load", 0, "explicit", structured=True),
    OpSpec("store", 1, "same", pure=False, structured=True),
    OpSpec("reduction", 1, "explicit", structured=True),
    OpSpec("scan", 1, "explicit", structured=True),
    OpSpec("sort", 1, "explicit", structured=True),
    OpSpec("constant", 0, "explicit", structured=True),
    OpSpec("index_expr", 0, "explicit", structured=True),
    OpSpec("indirect", 1, "int64", structured=True),
    OpSpec("masked", 1, "explicit", structured=True),
    OpSpec("to_dtype", 1, "explicit", structured=True),
    OpSpec("bitcast", 1, "explicit", structured=True),
    OpSpec("as_stored", 1, "same", structured=True),
    # floating point only
    *_rows("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh", 1),
    *_rows("asinh acosh atanh sigmoid erf erfc ndtr lgamma floor ceil round trunc", 1),
    *_rows("pow atan2 fmod", 2),
    *_rows("isnan isinf", 1, "bool"),
    # any number; `div` is true division, `floordiv` and `remainder` round to minus infinity, `truncdiv` to zero
    *_rows("neg abs sign relu square", 1),
    *_rows("add sub mul div floordiv truncdiv remainder maximum minimum", 2),
    *_rows("eq ne lt le gt ge", 2, "bool"),
    # bool
    *_rows("logical_not", 1, "bool"),
    *_rows("logical_and logical_or logical_xor", 2, "bool"),
    # bool or integer
    *_rows("bitwise_not", 1),
    *_rows("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", 2),
    # int32 only: random_bits(key, stream, counter), see philox.py
    OpSpec("random_bits", 3),
    # where(condition, value, other)
    OpSpec("where", 3, "second"),
]

OPS: dict[str, OpSpec] = {row.name: row for row in _ROWS}



def require_texts(language: str, *tables: Container[str]) -> None:
    """Raises ImportError unless one of `tables` contains each op whose operands are all values, except `where`."""
    missing = [
        name
        for name, row in OPS.items()
        if not row.structured and name != "where" and not any(name in table for table in tables)
    ]
    if missing:
        raise ImportError(f"no {language} text for the loop-IR ops {missing}")
