"""Models of dict, OrderedDict and defaultdict, their views, and hashable keys.

A constant key is stored as the value itself; any other key is stored as an `ObjectKey` that wraps its Var.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from ...core.python_compat import NOT_A_PAIR, UNHASHABLE, UNHASHABLE_ELEMENT, UNHASHABLE_KEY, full_name
from ...core.source import AttrSource, InstanceDictSource, Source
from ..codegen import Codegen
from ..protocol import dunder, slots
from ..protocol.base import NotConstant, Raised, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import COMPARE, ConstVar, attribute_of_type, fold, make, maker
from ..protocol.identity import IdVar
from ..protocol.text import TextPlaceholder, hash_of
from ..tracer import Tracer
from .iterator import ItemsIteratorVar, NotRebuilt, SizedIteratorVar
from .sequence import ListVar, TupleVar


class ObjectKey:
    """A dict key or set item that is not a constant.  Without `number`, it is hashed and compared by the identity of
    its Var.  Otherwise `number` is its hash, and `==` is traced.  If the program's own `__hash__` computed the hash,
    `step` is the instruction number in the root frame that called it."""

    __slots__ = ("number", "step", "tx", "var")

    def __init__(self, var: Var, tx: Tracer, number: int | None = None, step: int | None = None) -> None:
        self.var, self.tx, self.number, self.step = var, tx, number, step

    def __hash__(self) -> int:
        return id(self.var) if self.number is None else self.number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ObjectKey) and other.var is self.var:
            return True
        if self.number is None or isinstance(other, ObjectKey) and other.number is None:
            return False
        return slots.equal(self.tx, self.var, var_of(other))

    def lasts(self) -> bool:
        """Whether the key will still have the same hash when the new bytecode rebuilds the container."""
        tx, var = self.tx, self.var
        if any(effect.target is var for effect in tx.effects):  # replayed after the container is rebuilt
            return False
        return tx.speculate(lambda: key_of(tx, var).number) == self.number


def check_keys(keys: Collection[Any]) -> None:
    """Raise NotRebuilt if a container with these keys, rebuilt by the new bytecode, might differ from the original."""
    for key in keys:
        if isinstance(key, ObjectKey) and key.step is not None:
            alone = sum(hash(other) == hash(key) for other in keys) == 1
            if not alone or not key.lasts():
                raise NotRebuilt("a key whose __hash__ is the program's own", key.step, "unsupported-object")


_BY_IDENTITY = (object.__hash__, torch.Tensor.__hash__)
_EQUAL_BY_IDENTITY = (object.__eq__, torch.Tensor.__eq__)


def key_of(tx: Tracer, var: Var, message: str = UNHASHABLE_KEY) -> Any:
    """The key under which `var` is stored; raises TypeError in the traced program if it is unhashable.  `message` is
    the template of that error, see `python_compat.UNHASHABLE_KEY`."""
    if message == UNHASHABLE:
        return _key_of(tx, var)
    try:
        return _key_of(tx, var)
    except Raised as raised:
        args: Any = getattr(raised.exc, "args", ())
        if raised.exc.python_type() is not TypeError or len(args) != 1 or not args[0].is_constant():
            raise
        error = args[0].constant()
    return tx.raise_(TypeError, message.format(kind=full_name(var.python_type()), error=error))


def _key_of(tx: Tracer, var: Var) -> Any:
    try:
        value = var.constant()
    except NotConstant:
        if isinstance(var, TupleVar):
            keys = tuple(_key_of(tx, item) for item in var.items)
            steps = [key.step for key in keys if isinstance(key, ObjectKey) and key.step is not None]
            return ObjectKey(var, tx, hash(keys), max(steps, default=None))
        if (var.var if isinstance(var, IdVar) else var).is_ambiguous:
            var.unsupported(tx, "use as a key")
        if isinstance(var, IdVar):
            tx.identity_keys[id(var.var)] = var.var
            if var.var.is_constant():
                _guard_functions(tx, var.var)
        kind = var.python_type() if hasattr(var, "attrs") else None
        if kind is not None and (lookup(kind, "__hash__") not in _BY_IDENTITY or not _equal_by_identity(kind)):
            return ObjectKey(var, tx, slots.index(tx, hash_of(tx, var)), tx.steps)
        if hasattr(var, "referent"):  # a weak reference hashes and compares as its referent
            target = _key_of(tx, var.referent(tx))
            if isinstance(target, ObjectKey) and (target.step is not None or target.var.source is None):
                var.unsupported(tx, "use as a key")
            return ObjectKey(var, tx, hash(target))
        if slots.has_type(var, int, float, complex, str, bytes, frozenset, types.MethodType):
            var.unsupported(tx, "use as a key")
        if slots.has_type(var, object) and var.python_type().__hash__ is None:
            var.hash_(tx)  # raises
        tx.identity_keys[id(var)] = var
        return ObjectKey(var, tx)
    if isinstance(value, enum.Enum):
        lookup(type(value), "__hash__")
        lookup(type(value), "__eq__")
    try:
        hash(value)
    except TypeError as error:
        tx.raise_(TypeError, *error.args)
    _guard_functions(tx, var)
    return value


def _guard_functions(tx: Tracer, var: Var) -> None:
    """Guard the identity of a function that is a key, or part of one: elsewhere functions are guarded by their code."""
    if isinstance(var, TupleVar):
        for item in var.items:
            _guard_functions(tx, item)
    elif slots.has_type(var, types.FunctionType):
        tx.guard(var.source, "ID", var.constant())


def _equal_by_identity(kind: type) -> bool:
    """Whether instances of `kind` compare by identity; the lookup of `__eq__` is recorded for a guard."""
    return lookup(kind, "__eq__") in _EQUAL_BY_IDENTITY


def var_of(key: Any) -> Var:
    """The Var of a key."""
    return key.var if isinstance(key, ObjectKey) else make(key)


class DictVar(Var):
    """A dict.  `items` maps keys (see `key_of`) to Vars in insertion order; `cls` is the exact type, `factory` the
    default factory of a defaultdict.  `deleted` has the keys that were deleted at any time, even if set again;
    `cleared`: all were, at once."""

    __slots__ = ("cleared", "cls", "deleted", "factory", "fields", "items")

    dropped: frozenset[str] = frozenset()

    def __init__(
        self,
        items: Mapping[Any, Var],
        source: Source | None = None,
        cls: type = dict,
        factory: Var | None = None,
    ) -> None:
        super().__init__(source)
        self.items = dict(items)
        self.deleted: set[Any] = set()
        self.cleared = False
        self.fields: dict[str, Var] = {}  # attributes that the program set on an OrderedDict
        self.cls = cls
        self.factory = factory

    def python_type(self) -> type:
        return self.cls

    def plain(self) -> Any:
        if self.cls is not dict or any(isinstance(key, ObjectKey) for key in self.items):
            raise NotConstant(self.cls.__name__)
        return {key: value.plain() for key, value in self.items.items()}

    def hash_(self, tx: Tracer) -> Var | None:
        return tx.raise_(TypeError, f"unhashable type: {self.cls.__name__!r}")

    def repr_(self, tx: Tracer) -> Var | None:
        items = {_late_key(tx, key): TextPlaceholder(tx, value) for key, value in self.items.items()}
        if self.cls is collections.defaultdict:
            factory: Any = TextPlaceholder(tx, self.factory or ConstVar(None))
            return ConstVar(f"defaultdict({factory!r}, {items!r})")
        return fold(tx, repr, items if self.cls is dict else self.cls(items))

    def changed(self, tx: Tracer) -> None:
        tx.effects.change("DICT", self, None, tx.user_line)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if self.cls is collections.OrderedDict and lookup(self.cls, name) is MISSING:
            if name in self.fields:
                return self.fields[name]
            if self.source is not None:
                held = tx.existing(self).__dict__
                if name in held:
                    return tx.wrap(held[name], AttrSource(self.source, name))
                tx.guard(self.source, "NO_ATTR", name)
        if lookup(self.cls, name) is MISSING:
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if name == "default_factory":
            return self.factory or ConstVar(None)
        return make(self.cls) if name == "__class__" else attribute_of_type(tx, self, name)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        if self.cls is not collections.OrderedDict or lookup(self.cls, name) is not MISSING or value is None:
            super().setattr_(tx, name, value)
        else:
            self.fields[name] = value
            tx.effects.change("ATTR", self, name, tx.user_line)

    def written(self, name: str) -> Var:
        return self.fields[name]

    def setter(self, special: str, name: str) -> None:
        """None: attribute assignments are replayed by plain statements (see `InstanceVar.setter`)."""

    def getitem(self, tx: Tracer, key: Var) -> Var:
        where = key_of(tx, key)
        found = self.find(tx, where)
        if found is not None:
            return found
        if self.factory is None:
            tx.raise_(KeyError, key)
        self.setitem(tx, key, tx.call(self.factory, [], {}))
        return self.items[where]

    def find(self, tx: Tracer, where: Any) -> Var | None:
        """The value of a key, which `key_of` returned; None if there is none."""
        return self.items.get(where)

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        ordered = value is not None and slots.derives(self.cls, collections.OrderedDict)
        where = key_of(tx, key, UNHASHABLE if ordered else UNHASHABLE_KEY)
        if value is not None:
            self.items[where] = value
        elif where in self.items:
            self._delete(where)
        else:
            tx.raise_(KeyError, key)
        self.changed(tx)

    def _delete(self, key: Any) -> Var:
        self.deleted.add(key)
        return self.items.pop(key)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def length(self, tx: Tracer) -> Var:
        return ConstVar(len(self.items))

    def contains(self, tx: Tracer, item: Var) -> bool:
        return self.find(tx, key_of(tx, item)) is not None

    def iterate(self, tx: Tracer) -> Var:
        return DictViewVar(self, "keys").iterate(tx)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, DictVar) or op not in ("==", "!="):
            return None
        ordered = collections.OrderedDict
        if self.cls is ordered and other.cls is ordered and list(self.items) != list(other.items):
            return ConstVar(op == "!=")
        same = len(self.items) == len(other.items)
        sizes = len(self.items), len(other.items)
        for key, value in list(self.items.items()) if same else ():
            found = other.items.get(key)
            same = found is not None and slots.equal(tx, value, found)
            if (len(self.items), len(other.items)) != sizes:
                self.unsupported(tx, "a comparison that changes something")
            if not same:
                break
        return ConstVar(same == (op == "=="))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op == "|=" and not reflected:
            self.update(tx, other)
            return self
        if op != "|" or not slots.has_type(other, dict):
            return None
        first, second = (other, self) if reflected else (self, other)
        items = dict(pairs_of(tx, first))
        items.update(pairs_of(tx, second))
        return DictVar(items, None, self.cls, self.factory)

    def update(self, tx: Tracer, other: Var) -> None:
        """Add the items of a mapping or of an iterable of pairs."""
        for key, value in pairs_of(tx, other):
            self.items[key] = value
        self.changed(tx)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        handler = getattr(self, f"_{name}", None) if name in _DICT_METHODS else None
        if self.cls is collections.OrderedDict and self.source is not None and not name.startswith("__"):
            if name in vars(tx.existing(self)):
                self.unsupported(tx, f"method {name!r}, which the object has replaced,")
            tx.guard(InstanceDictSource(self.source), "DICT_LACKS", name)
        if handler is None:
            found = dunder.call(tx, self, name, args)
            return self.unsupported(tx, f"method {name!r}") if found is None else found
        result = handler(tx, *args, **kwargs)
        return ConstVar(None) if result is None else result

    def ___reversed__(self, tx: Tracer) -> Var:
        return ItemsIteratorVar([var_of(key) for key in reversed(self.items)])

    def ___missing__(self, tx: Tracer, key: Var) -> Var:
        return tx.raise_(KeyError, key) if self.factory is None else self.getitem(tx, key)

    def _fromkeys(self, tx: Tracer, keys: Var, value: Var | None = None) -> Var:
        filled = dict.fromkeys(keys_in(tx, keys), value or ConstVar(None))
        return DictVar(filled, None, self.cls)

    def _keys(self, tx: Tracer) -> Var:
        return DictViewVar(self, "keys")

    def _values(self, tx: Tracer) -> Var:
        return DictViewVar(self, "values")

    def _items(self, tx: Tracer) -> Var:
        return DictViewVar(self, "items")

    def _get(self, tx: Tracer, key: Var, default: Var | None = None) -> Var | None:
        return self.find(tx, key_of(tx, key)) or default

    def _setdefault(self, tx: Tracer, key: Var, default: Var | None = None) -> Var:
        where = key_of(tx, key)
        found = self.items.get(where)
        if found is None:
            found = self.items[where] = default or ConstVar(None)
            self.changed(tx)
        return found

    def _pop(self, tx: Tracer, key: Var, default: Var | None = None) -> Var:
        where = key_of(tx, key)
        if where in self.items:
            value = self._delete(where)
            self.changed(tx)
            return value
        return tx.raise_(KeyError, key) if default is None else default

    def _popitem(self, tx: Tracer, last: Var | None = None) -> Var:
        if not self.items:
            tx.raise_(KeyError, "popitem(): dictionary is empty" if self.cls is dict else "dictionary is empty")
        key = next(reversed(self.items)) if last is None or last.truth(tx) else next(iter(self.items))
        value = self._delete(key)
        self.changed(tx)
        return TupleVar([var_of(key), value])

    def _update(self, tx: Tracer, other: Var | None = None, /, **kwargs: Var) -> None:
        if other is not None:
            self.update(tx, other)
        self.items.update(kwargs)
        self.changed(tx)

    def _clear(self, tx: Tracer) -> None:
        self.cleared = True
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

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is collections.defaultdict:
            cg.load_const(collections.defaultdict)
            cg.call_top(lambda: cg.load(self.factory or ConstVar(None)), lambda: self.load_contents(cg))
        elif self.cls is dict:
            self.load_contents(cg)
        else:
            cg.load_const(self.cls)
            cg.call_top(lambda: self.load_contents(cg))
            cg.remember(self)
            for name, value in self.fields.items():
                cg.set_attr_of_top(name, value)

    def load_contents(self, cg: Codegen) -> None:
        """Push a new dict of the items."""
        if cg.dry:
            check_keys(self.items)
        for key, value in self.items.items():
            cg.load_key(key)
            cg.load(value)
        cg.emit("BUILD_MAP", len(self.items))

    def load_set_again(self, cg: Codegen) -> None:
        """Push a list of the keys that were deleted and then set again; None if all keys were deleted at once."""
        if self.cleared:
            cg.load_const(None)
            return
        again = [key for key in self.items if key in self.deleted]
        for key in again:
            cg.load_key(key)
        cg.emit("BUILD_LIST", len(again))


_DICT_METHODS = frozenset(
    "keys values items get setdefault pop popitem update clear copy move_to_end "
    "__reversed__ __missing__ fromkeys".split()
)


def keys_in(tx: Tracer, var: Var, message: str = UNHASHABLE_KEY) -> list[Any]:
    """The keys of the items of `var`, in order. The hashes that a dict or a set keeps are not computed again."""
    if type(var) is DictVar and var.cls is dict:
        return list(var.items)
    if hasattr(var, "order"):  # a set
        return var.order(tx)
    return [key_of(tx, item, message) for item in var.unpack(tx)]


def some_key(tx: Tracer, var: Var, test: Callable[[Any], bool], message: str) -> bool:
    """Whether the key of an item of `var` passes the test; no item after that is read."""
    iterator = var.iterate(tx)
    while (item := iterator.next_(tx)) is not None:
        if test(key_of(tx, item, message)):
            return True
    return False


def pairs_of(tx: Tracer, var: Var) -> list[tuple[Any, Var]]:
    """The (key, value) pairs of a mapping or of an iterable of pairs."""
    if getattr(var, "kind", None) is dict and getattr(var.python_type(), "__iter__", None) is dict.__iter__:
        var = getattr(var, "base", var)
    if isinstance(var, DictVar):
        return list(var.items.items())
    if not isinstance(var, ListVar | TupleVar) and tx.has_attribute(var, "keys"):
        keys = var.call_method(tx, "keys", [], {}).unpack(tx)
        return [(key_of(tx, key), var.getitem(tx, key)) for key in keys]
    found = []
    for place, item in enumerate(var.unpack(tx)):
        what = f"dictionary update sequence element #{place}"
        if not slots.has_type(item, str, bytes) and slots.has_type(item, object):
            if not slots.has_method(item, "__iter__") and not slots.has_method(item, "__getitem__"):
                _not_a_pair(tx, what)
        pair = item.unpack(tx)
        if len(pair) != 2:
            tx.raise_(ValueError, f"{what} has length {len(pair)}; 2 is required")
        found.append((key_of(tx, pair[0]), pair[1]))
    return found


def _not_a_pair(tx: Tracer, what: str) -> None:
    text, note = (text.format(what=what) for text in NOT_A_PAIR)
    error = tx.exception(TypeError, text)
    if note:
        error.call_method(tx, "add_note", [make(note)], {})
    raise Raised(error)


def _late_key(tx: Tracer, key: Any) -> Any:
    return TextPlaceholder(tx, key.var) if isinstance(key, ObjectKey) else key


class DictViewVar(Var):
    """`d.keys()`, `d.values()` or `d.items()`; reads the dict at each use, so that its changes are visible."""

    __slots__ = ("mapping", "part")

    def __init__(self, mapping: DictVar, part: str) -> None:
        super().__init__()
        self.mapping, self.part = mapping, part

    def python_type(self) -> type:
        return type(getattr(self.mapping.cls(), self.part)())

    def unpack(self, tx: Tracer) -> list[Var]:
        return [self._item(key, value) for key, value in self.mapping.items.items()]

    def iterate(self, tx: Tracer) -> Var:
        held, live = self.mapping.items, None
        if type(self.mapping) is DictVar and self.mapping.cls is not collections.OrderedDict:
            live = (self._item(key, value) for key, value in held.items())
        kind = type(iter(getattr(self.mapping.cls(), self.part)()))
        return SizedIteratorVar(tx, self, self.mapping, self.unpack(tx), "dictionary", kind, live)

    def _item(self, key: Any, value: Var) -> Var:
        if self.part == "items":
            return TupleVar([var_of(key), value])
        return value if self.part == "values" else var_of(key)

    def length(self, tx: Tracer) -> Var:
        return self.mapping.length(tx)

    def truth(self, tx: Tracer) -> bool:
        return bool(self.mapping.items)

    def contains(self, tx: Tracer, item: Var) -> bool:
        if self.part == "keys":
            return self.mapping.contains(tx, item)
        return ListVar(self.unpack(tx)).contains(tx, item)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if self.part == "values" or not (isinstance(other, DictViewVar) or slots.has_type(other, set, frozenset)):
            return None
        if isinstance(other, DictViewVar) and other.part == "values":
            return None
        keys = {key_of(tx, item, UNHASHABLE_ELEMENT) for item in other.unpack(tx)}
        return ConstVar(COMPARE[op](self._keys(tx), keys))

    def _keys(self, tx: Tracer) -> set[Any]:
        return {key_of(tx, item) for item in self.unpack(tx)}

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if self.part == "values" or op not in ("|", "&", "-", "^"):
            return None
        as_set = tx.call(make(set), [self], {})
        other = other if slots.has_type(other, set, frozenset) else tx.call(make(set), [other], {})
        return slots.binary(tx, op, other, as_set) if reflected else slots.binary(tx, op, as_set, other)

    def repr_(self, tx: Tracer) -> Var | None:
        items = {_late_key(tx, key): TextPlaceholder(tx, value) for key, value in self.mapping.items.items()}
        return fold(tx, repr, getattr(items, self.part)())

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "__reversed__":
            return ItemsIteratorVar(self.unpack(tx)[::-1])
        if name == "isdisjoint":
            return ConstVar(not some_key(tx, args[0], self._keys(tx).__contains__, UNHASHABLE_KEY))
        found = dunder.call(tx, self, name, args)
        return self.unsupported(tx, f"method {name!r}") if found is None else found

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if lookup(self.python_type(), name) is MISSING:
            tx.raise_(AttributeError, f"{slots.type_name(self)!r} object has no attribute {name!r}")
        if name == "mapping":
            return tx.call(make(types.MappingProxyType), [self.mapping], {})
        return attribute_of_type(tx, self, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.mapping)
        cg.emit("LOAD_ATTR", self.part)
        cg.call_top()


maker(dict)(lambda value: DictVar({key: make(item) for key, item in value.items()}))
maker(collections.OrderedDict)(
    lambda value: DictVar({key: make(item) for key, item in value.items()}, None, collections.OrderedDict)
)
