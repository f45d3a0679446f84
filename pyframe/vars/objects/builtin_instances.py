"""Vars for instances of subclasses of built-in types such as `class MyList(list)`.

Such an instance has the contents of the built-in type, modelled by a Var of that type, and the attributes of an
ordinary instance.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import Source
from ..codegen import Codegen
from ..containers.mapping import DictVar, var_of
from ..containers.sequence import ListVar, TupleVar
from ..containers.sets import SetVar
from ..protocol import arity, dunder
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, make
from ..protocol.text import str_of
from ..tracer import Tracer
from .instances import InstanceVar
from .namedtuple import FIELD

SCALARS = (str, int, float, complex, bytes)
KINDS = (collections.OrderedDict, dict, list, tuple, set, frozenset, *SCALARS)


def kind_of(cls: type) -> type | None:
    """The built-in type of which `cls` is a subclass; None if there is none among `KINDS`."""
    return next((kind for kind in KINDS if issubclass(cls, kind)), None)


class BuiltinInstanceVar(InstanceVar):
    """An instance of a subclass of the built-in type `kind`; `base` is the Var of its contents, a value of that type.

    Methods written in Python are traced; those of the built-in type act on `base`.  If the object existed before the
    frame, `base` has the same source, so that changes to it are logged as effects.
    """

    __slots__ = ("base", "kind")

    def __init__(self, value: Any, source: Source | None, cls: type, kind: type, base: Var) -> None:
        super().__init__(value, source, cls)
        self.kind, self.base = kind, base

    def plain(self) -> Any:
        raise NotConstant(self.cls.__name__)

    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Call the method `name` of the built-in type itself, bypassing overrides in the class."""
        arity.of_kind(tx, self.kind, self, name, args, kwargs)
        if name == "__init__":
            arity.check(tx, self.kind, args, kwargs)
            return self._init(tx, args, kwargs)
        if name == "__getitem__" and self.kind in (dict, collections.OrderedDict):
            return self._get_or_missing(tx, args[0])
        own = lookup(self.kind, name)
        if own is MISSING or own is lookup(object, name) or name in ("__getattribute__", "__reduce_ex__"):
            return super().c_method(tx, name, args, kwargs)
        if name == "__hash__" and own is None:
            tx.raise_(TypeError, f"unhashable type: {self.cls.__name__!r}")
        if name == "copy" and self.kind is not dict:
            return self.unsupported(tx, "copy()")
        if name == "__repr__" and self.kind is collections.OrderedDict:
            return self.unsupported(tx, "repr()")
        if name == "__format__" and self._has_own_text() and args[0].is_constant() and args[0].constant() == "":
            return str_of(tx, self)
        result = dunder.call(tx, self.base, name, _operands(name, args)) if not kwargs else None
        if result is None:
            result = self.base.call_method(tx, name, _operands(name, args, self.kind), kwargs)
        return self if result is self.base else result

    def _has_own_text(self) -> bool:
        """Whether `str(obj)` runs a method written in Python."""
        text = lookup(self.cls, "__str__")
        if text is lookup(self.kind, "__str__"):
            text = lookup(self.cls, "__repr__") if text is object.__str__ else text
        return isinstance(text, types.FunctionType)

    def _init(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if isinstance(self.base, DictVar):
            if self.kind is collections.OrderedDict:
                self._update(tx, args, kwargs)
            else:
                self.base.call_method(tx, "update", args, kwargs)
        elif isinstance(self.base, ListVar) and args:
            self.base.call_method(tx, "clear", [], {})
            self.base.call_method(tx, "extend", args, {})
        elif isinstance(self.base, SetVar) and args and self.kind is set:
            self.base.call_method(tx, "update", args, {})
        return ConstVar(None)

    def _update(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> None:
        """`OrderedDict.update`, which stores through `__setitem__`; the class may override that."""
        for key, value in [*(_pairs(tx, args[0]) if args else ()), *((make(k), v) for k, v in kwargs.items())]:
            self.setitem(tx, key, value)

    def _get_or_missing(self, tx: Tracer, key: Var) -> Var:
        missing = self.special(tx, "__missing__")
        if missing is not None and not self.base.contains(tx, key):
            return tx.call(missing, [key], {})
        return self.base.getitem(tx, key)

    def contents(self, tx: Tracer) -> tuple[Var | None, Var | None]:
        if isinstance(self.base, ListVar):
            return self.base.iterate(tx), None
        if isinstance(self.base, DictVar):
            return None, self.base.call_method(tx, "items", [], {}).iterate(tx)
        return self.unsupported(tx, "a copy")

    # ---- operators and C attributes of the built-in type ----
    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        found = super().binary(tx, op, other, reflected)
        if found is not None:
            return found
        name = dunder.name_of(op, reflected)
        if isinstance(lookup(self.cls, name), type(_python)) or not hasattr(self.kind, name):
            return None
        if op == "|" and self.kind in (collections.OrderedDict, collections.defaultdict):
            return self.unsupported(tx, "| of instances of a subclass")
        result = self.base.binary(tx, op, _base(other), reflected)
        return self if result is self.base else result

    def unary(self, tx: Tracer, op: str) -> Var:
        return self._invoke(tx, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[op])

    def truth(self, tx: Tracer) -> bool:
        if self.special(tx, "__bool__") is not None or self.special(tx, "__len__") is not None:
            return super().truth(tx)
        return self.base.truth(tx)

    def getattr_c(self, tx: Tracer, name: str) -> Var | None:
        """A C attribute of a number, such as `real`, or a field of a namedtuple; None for anything else."""
        raw = lookup(self.cls, name)
        if isinstance(raw, type(int.real)) and self.kind in SCALARS:
            return self.base.getattr_(tx, name)
        if isinstance(raw, FIELD) and isinstance(self.base, TupleVar):
            reduced: Any = raw.__reduce__()
            return self.base.items[reduced[1][0]]
        return None

    def _found(self, tx: Tracer, name: str) -> Var:
        return self.getattr_c(tx, name) or super()._found(tx, name)

    # ---- reconstruction ----
    def rebuild_empty(self, cg: Codegen) -> None:
        cg.load_const(self.kind.__new__)
        if self.kind in (*SCALARS, tuple, frozenset):
            exact = _exact(self.base)
            cg.call_top(lambda: cg.load_const(self.cls), lambda: cg.load(exact))
        else:
            cg.call_top(lambda: cg.load_const(self.cls))

    def refill(self, cg: Codegen) -> None:
        base = self.base
        if not isinstance(base, DictVar | ListVar | SetVar) or self.kind is frozenset:
            return
        temp = cg.temps[id(self)]
        cg.load_const(fill)
        cg.call_top(
            lambda: cg.asm.load_fast(temp), lambda: cg.load_const(self.kind), lambda: base.load_contents(cg)
        )
        cg.emit("POP_TOP")


def fill(obj: Any, kind: Any, items: Any, set_again: Sequence[Any] | None = ()) -> None:
    """Set the contents of `obj` to `items` with methods of the built-in type `kind`, bypassing overrides. What stays
    where it is is not taken out, because an iterator over `obj` may be in use, such as that of a loop around.
    `set_again`: keys of a dict that the program deleted before it set them; None if it deleted all at once."""
    if kind is list:
        list.__setitem__(obj, slice(None), items)
    elif kind is collections.deque:
        kind.clear(obj)
        kind.extend(obj, items)
    elif kind is set:
        kind.difference_update(obj, set(obj) - items)
        kind.update(obj, items)
    else:
        _fill_dict(obj, kind, items, set_again)


def _fill_dict(obj: Any, kind: Any, items: Mapping[Any, Any], set_again: Sequence[Any] | None) -> None:
    if set_again is None:
        kind.clear(obj)
    for key in set_again or ():
        kind.pop(obj, key, None)
    old, new = list(kind.keys(obj)), list(items)
    if old != new[: len(old)]:
        kept = 0
        for key in old:
            if kept < len(new) and (key is new[kept] or key == new[kept]):
                kept += 1
            else:
                kind.__delitem__(obj, key)
    for key, value in items.items():  # unlike `update`, this does not close gaps
        kind.__setitem__(obj, key, value)


def set_items(obj: collections.deque[Any], kind: Any, items: Sequence[Any]) -> None:
    """Set the items of a deque one by one, which an iterator over it does not notice, unlike other changes."""
    for at, item in enumerate(items):
        kind.__setitem__(obj, at, item)


def _python() -> None: ...


def _exact(base: Var) -> Var:
    if isinstance(base, SetVar):
        return SetVar(base.items, None, base.cls)
    return TupleVar(base.items) if isinstance(base, TupleVar) else ConstVar(base.constant())


# Methods that store or return one argument as it is, and its position; other arguments are replaced by their base.
_KEPT = {"append": 0, "add": 0, "__setitem__": 1, "setdefault": 1, "get": 1, "pop": 1, "insert": 1}


def _operands(name: str, args: Sequence[Var], kind: type | None = None) -> list[Var]:
    return [arg if at == _KEPT.get(name) else _base(arg, kind) for at, arg in enumerate(args)]


def _base(var: Var, kind: type | None = None) -> Var:
    if isinstance(var, BuiltinInstanceVar) and (kind is None or var.kind is kind):
        return var.base
    return var


def _pairs(tx: Tracer, var: Var) -> list[tuple[Var, Var]]:
    from_dict = _base(var)
    if isinstance(from_dict, DictVar):
        return [(var_of(key), value) for key, value in from_dict.items.items()]
    pairs = [item.unpack(tx) for item in var.unpack(tx)]
    for pair in pairs:
        if len(pair) != 2:
            tx.raise_(ValueError, f"need more than {len(pair)} value to unpack")
    return [(pair[0], pair[1]) for pair in pairs]


def fresh(tx: Tracer, cls: type, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
    """`kind.__new__(cls, *args, **kwargs)`."""
    kind = kind_of(cls)
    assert kind is not None
    base: Var
    if kind in (dict, collections.OrderedDict):
        base = DictVar({}, None, kind)
    elif kind is list:
        base = ListVar([])
    elif kind in (set, frozenset):
        base = tx.call(make(frozenset), args, {}) if kind is frozenset else SetVar([])
    elif kind is tuple:
        base = TupleVar(args[0].unpack(tx) if args else [])
    else:
        base = tx.call(make(kind), args, kwargs)
        if not base.is_constant():
            return base.unsupported(tx, f"as the value of a {cls.__name__}")
    return BuiltinInstanceVar(MISSING, None, cls, kind, base)
