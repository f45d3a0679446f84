"""Models of set and frozenset.  Items are stored as keys, see `mapping.key_of`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.python_compat import UNHASHABLE, UNHASHABLE_ELEMENT
from ...core.source import Source
from ...core.trace_reliances import note_fact
from ..codegen import Codegen
from ..protocol import dunder
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import COMPARE, ConstVar, attribute_of_type, fold, make, maker
from ..protocol.text import TextPlaceholder
from ..tracer import Tracer
from .iterator import SizedIteratorVar
from .mapping import DictViewVar, ObjectKey, check_keys, key_of, keys_in, some_key, var_of

_BINARY = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
_IN_PLACE = {
    "update": "union",
    "difference_update": "difference",
    "intersection_update": "intersection",
    "symmetric_difference_update": "symmetric_difference",
}
_TESTS = ("issubset", "issuperset", "isdisjoint")


class _Ordered:
    """Guard predicate: whether a set iterates in this order.  Instances with the same order are equal, so that guards
    are not repeated."""

    def __init__(self, keys: tuple[Any, ...]) -> None:
        self.keys = keys

    def __call__(self, value: Any) -> bool:
        return tuple(value) == self.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered) and self.keys == other.keys


class SetVar(Var):
    """`items` are the keys in the order in which a rebuilt set is filled; `cls` is set or frozenset.  `intact` is true
    until the traced program changes the set."""

    __slots__ = ("cls", "intact", "items")

    def __init__(self, items: Iterable[Any], source: Source | None = None, cls: type = set) -> None:
        super().__init__(source)
        self.items = dict.fromkeys(items)
        self.cls = cls
        self.intact = True

    def python_type(self) -> type:
        return self.cls

    def constant(self) -> Any:
        if self.cls is not frozenset or any(isinstance(key, ObjectKey) for key in self.items):
            raise NotConstant("set")
        return frozenset(self.items)

    def plain(self) -> Any:
        if any(isinstance(key, ObjectKey) for key in self.items):
            raise NotConstant("set")
        return self.cls(self.items)

    def hash_(self, tx: Tracer) -> Var | None:
        if self.cls is set:
            tx.raise_(TypeError, "unhashable type: 'set'")
        return None

    def repr_(self, tx: Tracer) -> Var | None:
        keys = [TextPlaceholder(tx, key.var) if isinstance(key, ObjectKey) else key for key in self.order(tx)]
        return fold(tx, repr, self.cls(keys))

    def order(self, tx: Tracer) -> list[Any]:
        """The keys in CPython's iteration order, if that depends on their hashes only; guarded if the set existed."""
        if len(self.items) < 2 or any(isinstance(key, ObjectKey) for key in self.items):
            return list(self.items)
        note_fact("the order of a set")
        if self.source is None:
            return list(set(self.items))
        if not self.intact:
            self.unsupported(tx, "the iteration order after a change")
        tx.guard(self.source, "PREDICATE", (_Ordered(tuple(self.items)), (), "iterates in the same order"))
        return list(self.items)

    def changed(self, tx: Tracer) -> None:
        self.intact = False
        tx.effects.change("SET", self, None, tx.user_line)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if lookup(self.cls, name) is MISSING:
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return make(self.cls) if name == "__class__" else attribute_of_type(tx, self, name)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def length(self, tx: Tracer) -> Var:
        return ConstVar(len(self.items))

    def contains(self, tx: Tracer, item: Var) -> bool:
        return key_of(tx, item, UNHASHABLE_ELEMENT) in self.items

    def iterate(self, tx: Tracer) -> Var:
        return SizedIteratorVar(tx, self, self, [var_of(key) for key in self.order(tx)], "Set", type(iter(set())))

    def _keys(self, tx: Tracer, other: Var, message: str = UNHASHABLE_ELEMENT) -> set[Any]:
        if isinstance(other, SetVar):
            return set(other.items)
        return set(keys_in(tx, other, message))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        plain = op.removesuffix("=")
        contents = getattr(other, "base", None)  # of an instance of a subclass
        other = contents if isinstance(contents, SetVar) else other
        if not isinstance(other, SetVar | DictViewVar) or reflected or plain not in _BINARY:
            return None
        if isinstance(other, DictViewVar) and (other.part == "values" or op != plain):
            return None
        result = getattr(set(self.items), _BINARY[plain])(self._keys(tx, other))
        if op != plain and self.cls is set:
            self.items = dict.fromkeys(result)
            self.changed(tx)
            return self
        return SetVar(result, None, set if isinstance(other, DictViewVar) else self.cls)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, SetVar):
            return None
        return ConstVar(COMPARE[op](set(self.items), set(other.items)))

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in ("add", "discard", "remove"):
            return self._change_one(tx, name, args[0])
        if name in ("copy", "clear", "pop"):
            if name == "copy" and self.cls is frozenset:
                return self
            if name == "copy":
                return SetVar(self.items, None, self.cls)
            if name == "pop":
                return self._pop(tx)
            self.items.clear()
            self.changed(tx)
            return ConstVar(None)
        if name in ("isdisjoint", "issuperset") and not isinstance(args[0], SetVar):
            found_here = self.items.__contains__
            test = found_here if name == "isdisjoint" else lambda key: not found_here(key)
            return ConstVar(not some_key(tx, args[0], test, UNHASHABLE_ELEMENT))
        if name in _TESTS:
            return ConstVar(getattr(set(self.items), name)(self._keys(tx, args[0])))
        plain = _IN_PLACE.get(name, name)
        if plain not in _BINARY.values():
            found = dunder.call(tx, self, name, args)
            return self.unsupported(tx, f"method {name!r}") if found is None else found
        message = UNHASHABLE if plain == "intersection" else UNHASHABLE_ELEMENT
        result = getattr(set(self.items), plain)(*(self._keys(tx, arg, message) for arg in args))
        if name == plain:
            return SetVar(result, None, self.cls)
        self.items = dict.fromkeys(result)
        self.changed(tx)
        return ConstVar(None)

    def _pop(self, tx: Tracer) -> Var:
        if not self.items:
            tx.raise_(KeyError, "pop from an empty set")
        if len(self.items) > 1:
            return self.unsupported(tx, "pop(), whose result is not known,")
        (key,) = self.items
        self.items.clear()
        self.changed(tx)
        return var_of(key)

    def _change_one(self, tx: Tracer, name: str, item: Var) -> Var:
        key = key_of(tx, item, UNHASHABLE_ELEMENT)
        if name == "add":
            self.items[key] = None
        elif key in self.items:
            del self.items[key]
        elif name == "remove":
            tx.raise_(KeyError, item)
        self.changed(tx)
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is not set:
            cg.load_const(self.cls)
            cg.call_top(lambda: self.load_contents(cg))
        else:
            self.load_contents(cg)

    def load_contents(self, cg: Codegen) -> None:
        """Push a new set of the items."""
        if cg.dry:
            check_keys(self.items)
        for key in self.items:
            cg.load_key(key)
        cg.emit("BUILD_SET", len(self.items))


maker(set)(SetVar)
maker(frozenset)(lambda value: SetVar(value, None, frozenset))
