"""Dicts.  A key is the constant itself, or an `ObjectKey` for an object known by identity."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.source import Source
from ..core.tracer import Tracer
from . import slots
from .base import NotConstant, Var
from .const import ConstVar, MethodVar, make, maker
from .iterator import ViewIteratorVar
from .sequence import ListVar, TupleVar


class ObjectKey:
    """A dict key or set item that hashes by the identity of its Var."""

    __slots__ = ("var",)

    def __init__(self, var: Var) -> None:
        self.var = var

    def __hash__(self) -> int:
        return id(self.var)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectKey) and other.var is self.var


def key_of(tx: Tracer, var: Var) -> Any:
    """The key under which `var` is stored; raises TypeError in the traced program if it is unhashable."""
    try:
        value = var.constant()
    except NotConstant:
        if slots.has_type(var, list, dict, set):
            tx.raise_(TypeError, f"unhashable type: {slots.type_name(var)!r}")
        return ObjectKey(var)
    try:
        hash(value)
    except TypeError as error:
        tx.raise_(TypeError, *error.args)
    return value


def var_of(key: Any) -> Var:
    """The Var of a key."""
    return key.var if isinstance(key, ObjectKey) else make(key)


class DictVar(Var):
    """`items` maps keys (see `key_of`) to Vars in order; `cls` is the exact type."""

    __slots__ = ("cls", "items", "factory")

    def __init__(
        self,
        items: Mapping[Any, Var],
        source: Source | None = None,
        cls: type = dict,
        factory: Var | None = None,
    ) -> None:
        super().__init__(source)
        self.items = dict(items)
        self.cls = cls
        self.factory = factory

    def python_type(self) -> type:
        return self.cls

    def changed(self, tx: Tracer) -> None:
        if self.source is not None:
            tx.effects.add("DICT", self, None, tx.user_line())

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if not hasattr(self.cls, name):
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return make(self.cls) if name == "__class__" else MethodVar(self, name)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        where = key_of(tx, key)
        if where not in self.items:
            if self.factory is not None:
                self.setitem(tx, key, tx.call(self.factory, [], {}))
            else:
                tx.raise_(KeyError, key)
        return self.items[where]

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        where = key_of(tx, key)
        if value is not None:
            self.items[where] = value
        elif where in self.items:
            del self.items[where]
        else:
            tx.raise_(KeyError, key)
        self.changed(tx)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def length(self, tx: Tracer) -> Var:
        return ConstVar(len(self.items))

    def contains(self, tx: Tracer, item: Var) -> bool:
        return key_of(tx, item) in self.items

    def iterate(self, tx: Tracer) -> Var:
        return ViewIteratorVar(tx, DictViewVar(self, "keys"), self)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, DictVar) or op not in ("==", "!="):
            return None
        same = self.items.keys() == other.items.keys() and all(
            slots.equal(tx, value, other.items[key]) for key, value in self.items.items()
        )
        return ConstVar(same == (op == "=="))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if not isinstance(other, DictVar) or reflected:
            return None
        if op == "|":
            return DictVar({**self.items, **other.items}, None, self.cls)
        if op == "|=":
            self.update(tx, other)
            return self
        return None

    def update(self, tx: Tracer, other: Var) -> None:
        """Take over the items of a mapping or of an iterable of pairs."""
        for key, value in pairs_of(tx, other):
            self.items[key] = value
        self.changed(tx)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        handler = getattr(self, f"_{name}", None) if name in _DICT_METHODS else None
        if handler is None:
            return self.unsupported(tx, f"method {name!r}")
        result = handler(tx, *args, **kwargs)
        return ConstVar(None) if result is None else result

    def _keys(self, tx: Tracer) -> Var:
        return DictViewVar(self, "keys")

    def _values(self, tx: Tracer) -> Var:
        return DictViewVar(self, "values")

    def _items(self, tx: Tracer) -> Var:
        return DictViewVar(self, "items")

    def _get(self, tx: Tracer, key: Var, default: Var | None = None) -> Var | None:
        return self.items.get(key_of(tx, key), default)

    def _setdefault(self, tx: Tracer, key: Var, default: Var | None = None) -> Var:
        if not self.contains(tx, key):
            self.setitem(tx, key, default or ConstVar(None))
        return self.items[key_of(tx, key)]

    def _pop(self, tx: Tracer, key: Var, default: Var | None = None) -> Var:
        where = key_of(tx, key)
        if where in self.items:
            value = self.items.pop(where)
            self.changed(tx)
            return value
        return tx.raise_(KeyError, key) if default is None else default

    def _popitem(self, tx: Tracer, last: Var | None = None) -> Var:
        if not self.items:
            tx.raise_(KeyError, "popitem(): dictionary is empty")
        key = next(reversed(self.items)) if last is None or last.truth(tx) else next(iter(self.items))
        value = self.items.pop(key)
        self.changed(tx)
        return TupleVar([var_of(key), value])

    def _update(self, tx: Tracer, other: Var | None = None, /, **kwargs: Var) -> None:
        if other is not None:
            self.update(tx, other)
        self.items.update(kwargs)
        self.changed(tx)

    def _clear(self, tx: Tracer) -> None:
        self.items.clear()
        self.changed(tx)

    def _copy(self, tx: Tracer) -> Var:
        return DictVar(self.items, None, self.cls, self.factory)

    def _move_to_end(self, tx: Tracer, key: Var, last: Var | None = None) -> None:
        where = key_of(tx, key)
        if where not in self.items:
            tx.raise_(KeyError, key)
        value = self.items.pop(where)
        if last is None or last.truth(tx):
            self.items[where] = value
        else:
            self.items = {where: value, **self.items}
        self.changed(tx)

    def ___getitem__(self, tx: Tracer, key: Var) -> Var:
        return self.getitem(tx, key)

    def ___setitem__(self, tx: Tracer, key: Var, value: Var) -> None:
        self.setitem(tx, key, value)

    def ___contains__(self, tx: Tracer, key: Var) -> Var:
        return ConstVar(self.contains(tx, key))

    def reconstruct(self, cg: Any) -> None:
        if self.cls is collections.defaultdict:
            cg.load_const(collections.defaultdict)
            cg.call_top(lambda: cg.load(self.factory or ConstVar(None)), lambda: self._build(cg))
        elif self.cls is dict:
            self._build(cg)
        else:
            cg.load_const(self.cls)
            cg.call_top(lambda: self._build(cg))

    def _build(self, cg: Any) -> None:
        for key, value in self.items.items():
            cg.load_key(key)
            cg.load(value)
        cg.emit("BUILD_MAP", len(self.items))


_DICT_METHODS = frozenset(
    "keys values items get setdefault pop popitem update clear copy move_to_end "
    "__getitem__ __setitem__ __contains__".split()
)


def pairs_of(tx: Tracer, var: Var) -> list[tuple[Any, Var]]:
    """(key, value) of a mapping or of an iterable of pairs."""
    if isinstance(var, DictVar):
        return list(var.items.items())
    pairs = [item.unpack(tx) for item in var.unpack(tx)]
    for pair in pairs:
        if len(pair) != 2:
            tx.raise_(ValueError, f"dictionary update sequence element has length {len(pair)}; 2 is required")
    return [(key_of(tx, key), value) for key, value in pairs]


class DictViewVar(Var):
    """`d.keys()`, `d.values()`, `d.items()`: live, so that changes of the dict show."""

    __slots__ = ("mapping", "part")

    def __init__(self, mapping: DictVar, part: str) -> None:
        super().__init__()
        self.mapping, self.part = mapping, part

    def python_type(self) -> type:
        return type(getattr(self.mapping.cls(), self.part)())

    def unpack(self, tx: Tracer) -> list[Var]:
        items = self.mapping.items
        if self.part == "keys":
            return [var_of(key) for key in items]
        if self.part == "values":
            return list(items.values())
        return [TupleVar([var_of(key), value]) for key, value in items.items()]

    def iterate(self, tx: Tracer) -> Var:
        return ViewIteratorVar(tx, self, self.mapping)

    def length(self, tx: Tracer) -> Var:
        return self.mapping.length(tx)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.mapping.items)

    def contains(self, tx: Tracer, item: Var) -> bool:
        if self.part == "keys":
            return self.mapping.contains(tx, item)
        return ListVar(self.unpack(tx)).contains(tx, item)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if self.part == "keys" and isinstance(other, DictViewVar) and op in ("==", "!="):
            return ConstVar((self.mapping.items.keys() == other.mapping.items.keys()) == (op == "=="))
        return None

    def getattr_(self, tx: Tracer, name: str) -> Var:
        return MethodVar(self, name)

    def reconstruct(self, cg: Any) -> None:
        cg.load(self.mapping)
        cg.emit("LOAD_ATTR", self.part)
        cg.call_top()


maker(dict)(lambda value: DictVar({key: make(item) for key, item in value.items()}))
maker(collections.OrderedDict)(
    lambda value: DictVar({key: make(item) for key, item in value.items()}, None, collections.OrderedDict)
)
