"""CPython's operator protocols on Vars: binary operators, comparisons, identity, iteration and indexing.

Opcode handlers and models of builtins call these functions.  They try the operands' methods in CPython's order
(reflected methods, fallbacks of in-place operators) and raise CPython's TypeErrors in the traced program.
"""

from __future__ import annotations

import collections
import operator
import types
from typing import Any

from ...core.python_compat import class_name
from ..tracer import Tracer
from .base import NotConstant, Var
from .class_reads import MISSING, lookup
from .const import BINARY, ConstVar

_NUMBERS = (int, float, complex)
_DICTS = (collections.OrderedDict, collections.defaultdict)
_is_subclass = type.__dict__["__subclasscheck__"]
_SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}


def derives(kind: type, base: type) -> bool:
    """Whether `kind` is a subclass of `base`; ignores `__subclasscheck__` of a metaclass."""
    return bool(_is_subclass(base, kind))


def type_name(value: Var) -> str:
    """The name of the value's class in CPython's messages: with its module for classes written in C."""
    try:
        return class_name(value.python_type())
    except NotConstant:
        return value.describe()


def binary(tx: Tracer, op: str, left: Var, right: Var) -> Var:
    """`left op right`; an in-place `op` falls back to the plain operator."""
    result = _operate(tx, op, left, right)
    if result is not None:
        return result
    _sequence_error(tx, op, left, right)
    shown = "** or pow()" if op == "**" else op
    return tx.raise_(
        TypeError, f"unsupported operand type(s) for {shown}: {type_name(left)!r} and {type_name(right)!r}"
    )


def _operate(tx: Tracer, op: str, left: Var, right: Var) -> Var | None:
    """The result of `left op right`; None if the operands do not support it."""
    ops = (op, op[:-1]) if op.endswith("=") else (op,)
    for attempt in ops:
        result = None
        reflects = not attempt.endswith("=") and (not _same_type(left, right))
        first = reflects and _overrides(left, right) and _has_own(left, right, attempt)
        if first:
            result = right.binary(tx, attempt, left, True)
        if result is None:
            result = left.binary(tx, attempt, right, False)
        if result is None and reflects and not first:
            result = right.binary(tx, attempt, left, True)
        if result is not None:
            return result
    bases = [getattr(side, "base", side) for side in (left, right)]
    if bases != [left, right] and all(has_type(base, *_NUMBERS) or base in (left, right) for base in bases):
        return _operate(tx, op, *bases)
    return _repeated(tx, op, left, right) if op in ("*", "*=") else None


_SEQUENCES = (str, bytes, list, tuple)


def _repeated(tx: Tracer, op: str, left: Var, right: Var) -> Var | None:
    """The product of a sequence and an object with `__index__`; None for other operands."""
    for sequence, times in ((left, right), (right, left)):
        if has_type(sequence, *_SEQUENCES):
            if not has_type(times, object) or not has_method(times, "__index__"):
                return None
            count = ConstVar(index(tx, times))
            found = sequence.binary(tx, op, count, False) if sequence is left else None
            return found if found is not None else sequence.binary(tx, "*", count, False)
    return None


def _sequence_error(tx: Tracer, op: str, left: Var, right: Var) -> None:
    """Raise CPython's TypeError for `sequence + other` or `sequence * other` with an unsupported operand."""
    name = op.removesuffix("=")
    if name == "*":
        for side, other in ((left, right), (right, left)):
            if has_type(side, *_SEQUENCES):
                tx.raise_(TypeError, f"can't multiply sequence by non-int of type {type_name(other)!r}")
    if name == "+" and has_type(left, *_SEQUENCES):
        kind = type_name(left)
        if kind == "bytes":
            tx.raise_(TypeError, f"can't concat {type_name(right)} to bytes")
        tx.raise_(TypeError, f'can only concatenate {kind} (not "{type_name(right)}") to {kind}')


def _same_type(left: Var, right: Var) -> bool:
    """Whether both are instances of the same Python class; CPython does not try the reflected method then."""
    return hasattr(left, "attrs") and hasattr(right, "attrs") and left.python_type() is right.python_type()


def _overrides(left: Var, right: Var) -> bool:
    """Whether the right operand's class is a proper subclass of the left one's, so that CPython tries it first."""
    if not (hasattr(right, "attrs") or has_type(right, *_DICTS)) or not has_type(left, object):
        return False
    kind, base = right.python_type(), left.python_type()
    return kind is not base and derives(kind, base)


def _has_own(left: Var, right: Var, op: str) -> bool:
    """Whether the classes of the operands have different reflected methods for `op`."""
    name = f"__r{BINARY[op].__name__.rstrip('_')}__"
    return lookup(left.python_type(), name) is not lookup(right.python_type(), name)


def identical(tx: Tracer, left: Var, right: Var) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if left.may_be(right) or right.may_be(left):
        tx.graph_break("data-dependent-branch", f"`is` on {left.describe()} and {right.describe()}")
    shared = left.same_object(tx, right)
    if shared is not None:
        return shared
    if left.is_constant() and right.is_constant():
        a, b = left.constant(), right.constant()
        if isinstance(a, (int, float, str, bytes, complex)) and type(a) is type(b):
            return bool(a == b)
        if type(a) is types.FunctionType and type(b) is types.FunctionType:
            _guard_identity(tx, left, right, a is b)
        return a is b
    if left.is_constant() != right.is_constant():
        known, other = (left, right) if left.is_constant() else (right, left)
        if type(known.constant()) in (bool, int) and other.python_type() is known.python_type():
            return compare(tx, "==", other, known).truth(tx)  # a bool or int that is known only at run time
        return False
    if left.source is not None and right.source is not None:
        if left.source == right.source:
            return True
        tx.guard(None, "DISTINCT", (left.source, right.source))
    return False


def _guard_identity(tx: Tracer, left: Var, right: Var, same: bool) -> None:
    """Guard whether two functions are the same object: functions are guarded by their code."""
    if left.source is None or right.source is None or left.source == right.source:
        return
    if same:
        tx.guard(left.source, "SAME", right.source)
    else:
        tx.guard(None, "DISTINCT", (left.source, right.source))


def _contents(left: Var, right: Var) -> Var:
    """`right`, or its contents if it is an instance of a subclass of the built-in type of `left`: the methods of the
    built-in type read the contents directly."""
    base = getattr(right, "base", None)
    return base if type(base) is type(left) else right


def compare(tx: Tracer, op: str, left: Var, right: Var) -> Var:
    """`left op right` for a comparison operator."""
    first = _overrides(left, right)
    result = right.compare(tx, _SWAPPED[op], left) if first else left.compare(tx, op, _contents(left, right))
    if result is None:
        result = left.compare(tx, op, _contents(left, right)) if first else right.compare(tx, _SWAPPED[op], left)
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


def checked_iterator(tx: Tracer, found: Var) -> Var:
    """Return `found`, the result of an `__iter__`; raise TypeError in the traced program if it is not an iterator."""
    if not has_type(found, object):
        return found.unsupported(tx, "as the result of iter()")
    if lookup(found.python_type(), "__next__") is MISSING:
        tx.raise_(TypeError, f"iter() returned non-iterator of type {type_name(found)!r}")
    return found


def index(tx: Tracer, value: Var) -> int:
    """`operator.index(value)`; breaks the graph if the integer is not known while tracing."""
    try:
        return operator.index(value.constant())
    except TypeError as error:
        return tx.raise_(TypeError, *error.args)
    except NotConstant:
        pass
    if not has_type(value, object):
        return int(value.unsupported(tx, "use as an index"))
    if not has_method(value, "__index__"):
        tx.raise_(TypeError, f"{type_name(value)!r} object cannot be interpreted as an integer")
    result = value.base if hasattr(value, "base") else value.call_method(tx, "__index__", [], {})
    if not result.is_constant():
        return int(result.unsupported(tx, "use as an index"))
    if not isinstance(result.constant(), int):
        tx.raise_(TypeError, f"__index__ returned non-int (type {type_name(result)})")
    return operator.index(result.constant())


def has_type(value: Var, *types: type) -> bool:
    """Whether the exact type is known and a subclass of one of `types`; ignores `__subclasscheck__` of metaclasses."""
    try:
        kind = value.python_type()
    except NotConstant:
        return False
    return any(derives(kind, each) for each in types)


def has_method(value: Var, name: str) -> bool:
    """Whether the class of a value whose type is known has a special method, for which a guard is recorded."""
    return lookup(value.python_type(), name) is not MISSING


def constant_or(value: Var, default: Any) -> Any:
    return value.constant() if value.is_constant() else default
