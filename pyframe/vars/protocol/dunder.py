"""Explicit calls of special methods on values of built-in types.

`[1].__len__()`, `dict.__setitem__(d, k, v)` and `super().__getitem__(k)` are mapped to the Var method that implements
the slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tracer import Tracer
from .base import Var
from .const import ConstVar, make
from .text import format_of, hash_of, repr_of, str_of

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
_COMPARE = {"__lt__": "<", "__le__": "<=", "__eq__": "==", "__ne__": "!=", "__gt__": ">", "__ge__": ">="}


def _next(tx: Tracer, obj: Var) -> Var:
    item = obj.next_(tx)
    if item is None:
        return getattr(obj, "stop", lambda tx: tx.raise_(StopIteration))(tx)
    return item


def _store(tx: Tracer, obj: Var, key: Var, value: Var | None = None) -> Var:
    obj.setitem(tx, key, value)
    return ConstVar(None)


def _setattr(tx: Tracer, obj: Var, name: Var, value: Var | None = None) -> Var:
    obj.setattr_(tx, name.constant(), value)
    return ConstVar(None)


_METHODS: dict[str, Callable[..., Var]] = {
    "__len__": lambda tx, obj: obj.length(tx),
    "__bool__": lambda tx, obj: ConstVar(obj.truth(tx)),
    "__iter__": lambda tx, obj: obj.iterate(tx),
    "__next__": _next,
    "__getitem__": lambda tx, obj, key: obj.getitem(tx, key),
    "__setitem__": _store,
    "__delitem__": _store,
    "__contains__": lambda tx, obj, item: ConstVar(obj.contains(tx, item)),
    "__getattribute__": lambda tx, obj, name: obj.getattr_(tx, name.constant()),
    "__setattr__": _setattr,
    "__delattr__": _setattr,
    "__call__": lambda tx, obj, *args: tx.call(obj, args, {}),
    "__repr__": repr_of,
    "__str__": str_of,
    "__format__": format_of,
    "__hash__": hash_of,
    "__neg__": lambda tx, obj: obj.unary(tx, "-"),
    "__pos__": lambda tx, obj: obj.unary(tx, "+"),
    "__invert__": lambda tx, obj: obj.unary(tx, "~"),
}


def add(name: str, method: Callable[..., Var]) -> None:
    """Register `method(tx, obj, *args)` as the implementation of `obj.name(*args)`."""
    _METHODS[name] = method


def call(tx: Tracer, obj: Var, name: str, args: Sequence[Var]) -> Var | None:
    """The result of `obj.name(*args)` if a slot implements the special method `name`; None for other names."""
    if name in _METHODS:
        return _METHODS[name](tx, obj, *args)
    if len(args) != 1 or not (name.startswith("__") and name.endswith("__")):
        return None
    if name in _COMPARE:
        return _or_not_implemented(obj.compare(tx, _COMPARE[name], args[0]))
    plain = name[2:-2]
    for prefix, suffix, reflected in (("", "", False), ("i", "=", False), ("r", "", True)):
        symbol = _BINARY.get(plain.removeprefix(prefix)) if plain.startswith(prefix) else None
        if symbol is not None and (not prefix or plain not in _BINARY):
            return _or_not_implemented(obj.binary(tx, symbol + suffix, args[0], reflected))
    return None


def name_of(op: str, reflected: bool) -> str:
    """The name of the special method of a binary operator: `__iadd__` for `+=`, `__radd__` for a reflected `+`."""
    plain = next(name for name, symbol in _BINARY.items() if symbol == op.removesuffix("="))
    return f"__{'i' if op.endswith('=') else 'r' if reflected else ''}{plain}__"


def comparison(op: str) -> str:
    """The name of the special method of a comparison operator."""
    return next(name for name, symbol in _COMPARE.items() if symbol == op)


def _or_not_implemented(result: Var | None) -> Var:
    return make(NotImplemented) if result is None else result
