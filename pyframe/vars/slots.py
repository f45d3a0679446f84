"""CPython's slot protocols over Vars: what the opcode handlers and the builtins call."""

from __future__ import annotations

import operator
from typing import Any

from ..core.tracer import Tracer
from .base import NotConstant, Var
from .const import ConstVar

_SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}


def type_name(value: Var) -> str:
    try:
        return value.python_type().__name__
    except NotConstant:
        return value.describe()


def binary(tx: Tracer, op: str, left: Var, right: Var) -> Var:
    """`left op right`; `op` may be an in-place one, which falls back to the plain one."""
    ops = (op, op[:-1]) if op.endswith("=") else (op,)
    for attempt in ops:
        result = left.binary(tx, attempt, right, False)
        if result is None and not attempt.endswith("="):
            result = right.binary(tx, attempt, left, True)
        if result is not None:
            return result
    return tx.raise_(
        TypeError, f"unsupported operand type(s) for {op}: {type_name(left)!r} and {type_name(right)!r}"
    )


def identical(tx: Tracer, left: Var, right: Var) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if left.is_constant() and right.is_constant():
        a, b = left.constant(), right.constant()
        if isinstance(a, (int, float, str, bytes, complex)) and type(a) is type(b):
            return bool(a == b)
        return a is b
    if left.is_constant() != right.is_constant():
        return False
    if left.source is not None and right.source is not None:
        if left.source == right.source:
            return True
        tx.guard(None, "DISTINCT", (left.source, right.source))
    return False


def compare(tx: Tracer, op: str, left: Var, right: Var) -> Var:
    """`left op right` of a comparison."""
    result = left.compare(tx, op, right)
    if result is None:
        result = right.compare(tx, _SWAPPED[op], left)
    if result is not None:
        return result
    if op in ("==", "!="):
        return ConstVar(identical(tx, left, right) == (op == "=="))
    return tx.raise_(
        TypeError,
        f"{op!r} not supported between instances of {type_name(left)!r} and {type_name(right)!r}",
    )


def equal(tx: Tracer, left: Var, right: Var) -> bool:
    """The truth of `left is right or left == right`, as containers compare items."""
    return identical(tx, left, right) or compare(tx, "==", left, right).truth(tx)


def index(tx: Tracer, value: Var) -> int:
    """`operator.index` of a known integer."""
    try:
        return operator.index(value.constant())
    except NotConstant:
        return int(value.unsupported(tx, "use as an index"))
    except TypeError as error:
        return tx.raise_(TypeError, *error.args)


def has_type(value: Var, *types: type) -> bool:
    """Whether the exact type is known and a subclass of one of `types`."""
    try:
        return issubclass(value.python_type(), types)
    except NotConstant:
        return False


def constant_or(value: Var, default: Any) -> Any:
    return value.constant() if value.is_constant() else default
