"""Vars for instances of classes written in Python.

Attribute access, operators and special methods follow CPython's rules: descriptors, slots, `__getattr__` and so on.
Writes are kept in the Var while tracing and replayed on the real object after the graph.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.source import DictItemSource, Source
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import Raised, Var
from ..protocol.class_reads import MISSING, lookup, reads_attributes_itself, wins_over_fields
from ..protocol.const import ConstVar, make
from ..tracer import Tracer
from .binding import bind, has_attribute_hook, read_source, set_through
from .functions import BoundMethodVar, FunctionVar
from .index_iterator import ByIndexVar
from .instance_dict import (
    FieldsVar,
    delete_from_dict,
    dict_source,
    empty_slot_message,
    fields_of,
    has_dict,
    is_hidden,
    no_slot_message,
    set_in_dict,
)
from .lookup import FUNCTIONS, class_source, guarded_lookup, reads_before_fields, written_in_class
from .object_methods import object_method

_METHOD_OF = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
_COMPARE_OF = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
# CPython's TypeError message for a missing special method.
_LACKING = {
    "__len__": "object of type {!r} has no len()",
    "__getitem__": "{!r} object is not subscriptable",
    "__setitem__": "{!r} object does not support item assignment",
    "__delitem__": "{!r} object doesn't support item deletion",
    "__neg__": "bad operand type for unary -: {!r}",
    "__pos__": "bad operand type for unary +: {!r}",
    "__invert__": "bad operand type for unary ~: {!r}",
    "__next__": "{!r} object is not an iterator",
    "__reversed__": "{!r} object is not reversible",
    "__enter__": "{!r} object does not support the context manager protocol",
    "__exit__": "{!r} object does not support the context manager protocol (missed __exit__ method)",
}
# A generator or coroutine that has already started cannot be traced.
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
# What `unsupported` reports as a problem of a context manager.
_OF_CONTEXT = ("method '__enter__'", "method '__exit__'")
_UNARY_OF = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}


def _is_empty(slot: types.MemberDescriptorType, obj: Any) -> bool:
    """Whether a slot of an object holds nothing."""
    try:
        slot.__get__(obj)
    except AttributeError:
        return True
    return False


class InstanceVar(Var):
    """An object of a class written in Python.  `value` is the object if it existed before the frame, else MISSING;
    `attrs` holds the attributes that were read or written (None: deleted)."""

    __slots__ = ("attrs", "cls", "dropped", "value")

    def __init__(self, value: Any, source: Source | None = None, cls: type | None = None) -> None:
        super().__init__(source)
        self.cls = type(value) if cls is None else cls
        self.value = value
        self.attrs: dict[str, Var | None] = {}
        self.dropped: set[str] = set()  # names that were deleted at any time, even if set again

    @classmethod
    def fresh(cls, type_: type) -> InstanceVar:
        """A new instance that the traced program creates."""
        return cls(MISSING, None, type_)

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.cls.__qualname__}"

    # ---- attributes ----
    def _function(self, tx: Tracer, fn: Callable[..., Any], name: str) -> Var:
        return tx.wrap(fn, class_source(self.cls, name))

    def _instance_attr(self, tx: Tracer, name: str) -> Var | None:
        if name in self.attrs:
            return self.attrs[name]
        if self.value is MISSING:
            return None
        fields = fields_of(self.value)
        if fields is None:
            return None
        place = dict_source(self.source, self.cls)
        if name not in fields:
            tx.guard(place, "DICT_LACKS", name)
            return None
        var = tx.wrap(fields[name], DictItemSource(place, name) if place else None)
        self.attrs[name] = var
        return var

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if not reads_attributes_itself(self.cls):
            return self.generic_getattr(tx, name)
        custom = lookup(self.cls, "__getattribute__")
        try:
            return tx.call(bind(tx, self, "__getattribute__", custom), [ConstVar(name)], {})
        except Raised as raised:
            fallback = lookup(self.cls, "__getattr__")
            if not issubclass(raised.exc.python_type(), AttributeError) or fallback is MISSING:
                raise
            return tx.call(bind(tx, self, "__getattr__", fallback), [ConstVar(name)], {})

    def generic_getattr(self, tx: Tracer, name: str, fallback: bool = True) -> Var:
        """`object.__getattribute__`, then `__getattr__` where the class has no `__getattribute__` of its own."""
        if name == "__class__" and lookup(self.cls, name) is object.__dict__[name]:
            return make(self.cls)
        if name == "__dict__" and has_dict(self.cls):
            raw = lookup(self.cls, name)
            if raw is MISSING or isinstance(raw, types.GetSetDescriptorType | types.MemberDescriptorType):
                return FieldsVar.of(self, tx)
        try:
            return self._found(tx, name)
        except Raised as raised:
            method = lookup(self.cls, "__getattr__") if fallback else MISSING
            if method is MISSING or not slots.has_type(raised.exc, AttributeError):
                raise
            if reads_attributes_itself(self.cls):
                raise
        return tx.call(bind(tx, self, "__getattr__", method), [ConstVar(name)], {})

    def _found(self, tx: Tracer, name: str) -> Var:
        raw = lookup(self.cls, name)
        if raw is MISSING or not reads_before_fields(type(raw)):
            own = self._instance_attr(tx, name)
            if own is not None:
                return own
        written = written_in_class(tx, self.cls, name)
        if written is not MISSING and written is not None:
            return BoundMethodVar(written, self) if isinstance(written, FunctionVar) else written
        raw = guarded_lookup(tx, self.cls, name) if written is MISSING else MISSING
        if raw is MISSING:
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return bind(tx, self, name, raw)

    def read_computed(self, tx: Tracer, name: str, raw: types.GetSetDescriptorType) -> Var:
        """The value of an attribute that the descriptor `raw`, written in C, computes."""
        if self.value is MISSING:
            return self.unsupported(tx, f"attribute {name!r}, computed in C,")
        try:
            found = raw.__get__(self.value)
        except (AttributeError, TypeError, ValueError) as error:
            tx.raise_(type(error), *error.args)
        return tx.wrap(found, read_source(self, name, raw))

    def read_slot(self, tx: Tracer, name: str, raw: types.MemberDescriptorType) -> Var:
        """The content of the slot that the class defines as `raw`; raises AttributeError if it is empty."""
        self._check_slot(tx, raw)
        if name not in self.attrs and self.value is not MISSING:
            try:
                found = raw.__get__(self.value, self.cls)
            except AttributeError:
                if has_attribute_hook(self.cls):
                    tx.guard(self.source, "PREDICATE", (functools.partial(_is_empty, raw), (), f"has no {name!r}"))
                else:
                    tx.guard(self.source, "NO_ATTR", name)
            else:
                self.attrs[name] = tx.wrap(found, read_source(self, name, raw))
        var = self.attrs.get(name)
        if var is None:
            tx.raise_(AttributeError, empty_slot_message(self.cls, name))
        return var

    def _check_slot(self, tx: Tracer, raw: types.MemberDescriptorType) -> None:
        """Raise TypeError unless the object is an instance of the class that defines the slot `raw`."""
        owner = raw.__objclass__
        if not slots.derives(self.cls, owner):
            what = f"descriptor {raw.__name__!r} for {owner.__name__!r} objects"
            tx.raise_(TypeError, f"{what} doesn't apply to a {self.cls.__name__!r} object")

    def fields(self, tx: Tracer) -> dict[str, Var]:
        """The current content of `__dict__`; guards the keys of the real one."""
        names = dict.fromkeys(fields_of(self.value) or {})
        if self.value is not MISSING and self.source is not None:
            tx.guard(dict_source(self.source, self.cls), "DICT_KEYS", tuple(names))
        for name in self.dropped:
            names.pop(name, None)
        slotted = types.MemberDescriptorType
        more = [name for name in self.attrs if name not in names]
        names.update(dict.fromkeys(name for name in more if not isinstance(lookup(self.cls, name), slotted)))
        found = {name: self._instance_attr(tx, name) for name in names}
        return {name: var for name, var in found.items() if var is not None}

    def field(self, tx: Tracer, name: str) -> Var | None:
        """An item of `fields`, which has been called before; None if there is none."""
        held = name in (fields_of(self.value) or ()) and name not in self.dropped
        if not held and (name not in self.attrs or isinstance(lookup(self.cls, name), types.MemberDescriptorType)):
            return None
        return self._instance_attr(tx, name)

    def set_field(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`__dict__[name] = value` (None deletes)."""
        raw = lookup(self.cls, name)
        if isinstance(raw, types.MemberDescriptorType | types.GetSetDescriptorType):
            self.unsupported(tx, f"writing {name!r}, a descriptor of the class, into __dict__")
        if is_hidden(self.cls, name):
            self._keep(tx, name, value, raw)
        else:
            InstanceVar.store(self, tx, name, value)

    def setattr_(self, tx: Tracer, name: str, value: Var | None) -> None:
        method = "__setattr__" if value is not None else "__delattr__"
        special = lookup(self.cls, method)
        if isinstance(special, types.FunctionType):
            args = [self, ConstVar(name)] + ([value] if value is not None else [])
            tx.call(self._function(tx, special, method), args, {})
            return
        if getattr(special, "__name__", None) != method:  # for example `__setattr__ = dict.__setitem__`
            args = [ConstVar(name)] + ([value] if value is not None else [])
            tx.call(bind(tx, self, method, special), args, {})
            return
        self.store(tx, name, value)

    def store(self, tx: Tracer, name: str, value: Var | None) -> None:
        """`object.__setattr__` (or `__delattr__` for None)."""
        raw = lookup(self.cls, name)
        if name in ("__class__", "__dict__"):
            self.unsupported(tx, f"setting {name}")
        if wins_over_fields(type(raw)) and not isinstance(raw, types.MemberDescriptorType):
            self._set_through(tx, name, value)
            return
        if isinstance(raw, types.MemberDescriptorType):
            self._check_slot(tx, raw)
        else:
            self._check_dict(tx, name, raw)
        self._keep(tx, name, value, raw)

    def _keep(self, tx: Tracer, name: str, value: Var | None, raw: Any) -> None:
        """Put an attribute, which the class defines as `raw`, into a slot or the `__dict__`; None deletes it."""
        if value is None:
            self._delete(tx, name, raw)
        else:
            if self.attrs.get(name, self) is None:
                del self.attrs[name]  # a name that is set again becomes the last key
            self.attrs[name] = value
        tx.effects.change("ATTR", self, name, tx.user_line)

    def _check_dict(self, tx: Tracer, name: str, raw: Any) -> None:
        """Raise AttributeError if objects of the class have no `__dict__`: only slots can be set."""
        if has_dict(self.cls):
            return
        if raw is MISSING:
            tx.raise_(AttributeError, no_slot_message(self.cls, name))
        else:
            tx.raise_(AttributeError, f"{self.cls.__name__!r} object attribute {name!r} is read-only")

    def _set_through(self, tx: Tracer, name: str, value: Var | None) -> None:
        """Set (delete, if None) through a data descriptor of the class."""
        set_through(tx, self, name, value)

    def _delete(self, tx: Tracer, name: str, raw: Any) -> None:
        slotted = isinstance(raw, types.MemberDescriptorType)
        if slotted:
            try:
                self.read_slot(tx, name, raw)
            except Raised:
                tx.raise_(AttributeError, name)
        elif self._instance_attr(tx, name) is None:
            tx.raise_(AttributeError, self._no_attribute(name))
        self.attrs.pop(name, None)
        if self.value is not MISSING:
            self.attrs[name] = None
            self.dropped.add(name)

    def _no_attribute(self, name: str) -> str:
        return f"{self.cls.__name__!r} object has no attribute {name!r}"

    def written(self, name: str) -> Var | None:
        """The current value of an attribute that was assigned; None: deleted."""
        return self.attrs.get(name)

    def setter(self, special: str, name: str) -> Any:
        """The function that replays an assignment after the graph; `special` is `__setattr__` or `__delattr__`.

        None means an ordinary statement.  A class that overrides `special` gets the method of `object`, because the
        override itself was traced; so does a name that a data descriptor of the class hides in the `__dict__`."""
        if is_hidden(self.cls, name):
            return set_in_dict if special == "__setattr__" else delete_from_dict
        return getattr(object, special) if isinstance(lookup(self.cls, special), types.FunctionType) else None

    # ---- special methods ----
    def special(self, tx: Tracer, name: str) -> Var | None:
        """The bound special method `name`; None if the class has none, or one written in C."""
        raw = guarded_lookup(tx, self.cls, name)
        get = lookup(type(raw), "__get__")
        known = isinstance(raw, (*FUNCTIONS, staticmethod, classmethod, property, functools.partialmethod))
        if raw is MISSING or not (known or get is MISSING or isinstance(get, types.FunctionType)):
            return None
        return bind(tx, self, name, raw)

    def _invoke(self, tx: Tracer, name: str, *args: Var) -> Var:
        method = self.special(tx, name)
        if method is not None:
            return tx.call(method, args, {})
        self.needs(tx, name)
        return self.c_method(tx, name, args, {})

    def needs(self, tx: Tracer, name: str) -> None:
        """Raise the TypeError of a class without the special method `name`."""
        raw = lookup(self.cls, name)
        if raw is MISSING or raw is None:
            tx.raise_(TypeError, _LACKING.get(name, "{!r} object has no " + name).format(self.cls.__name__))

    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """Call the method `name` of the C class that the instance's class derives from, bypassing overrides."""
        return object_method(tx, self, name, args, kwargs)

    def contents(self, tx: Tracer) -> tuple[Var | None, Var | None]:
        """Iterators over the items of a list, and over those of a dict, for `__reduce_ex__`."""
        return None, None

    def hash_(self, tx: Tracer) -> Var | None:
        if lookup(self.cls, "__hash__") is None:
            tx.raise_(TypeError, f"unhashable type: {self.cls.__name__!r}")
        return self._invoke(tx, "__hash__")

    def repr_(self, tx: Tracer) -> Var | None:
        return self._invoke(tx, "__repr__")

    def str_(self, tx: Tracer) -> Var | None:
        return self._invoke(tx, "__str__")

    def format_(self, tx: Tracer, spec: Var) -> Var | None:
        return self._invoke(tx, "__format__", spec)

    def unsupported(self, tx: Tracer, what: str) -> Any:
        kind = "generator-frame" if issubclass(self.cls, _SUSPENDED) else "unsupported-object"
        if what in _OF_CONTEXT:
            kind = "unsupported-context-manager"
        return tx.graph_break(kind, f"{what} on {self.describe()} of type {self.cls.__qualname__}")

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        method = self.special(tx, "__call__")
        if method is None and lookup(self.cls, "__call__") is MISSING:
            tx.raise_(TypeError, f"{self.cls.__name__!r} object is not callable")
        return self.unsupported(tx, "a call") if method is None else tx.call(method, args, kwargs)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        return self._invoke(tx, "__getitem__", key)

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        if value is None:
            self._invoke(tx, "__delitem__", key)
        else:
            self._invoke(tx, "__setitem__", key, value)

    def _result(self, tx: Tracer, method: Var | None, *args: Var) -> Var | None:
        if method is None:
            return None
        result = tx.call(method, args, {})
        return None if slots.constant_or(result, None) is NotImplemented else result

    def unary(self, tx: Tracer, op: str) -> Var:
        return self._invoke(tx, _UNARY_OF[op])

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        base = _METHOD_OF[op.removesuffix("=")]
        prefix = "i" if op.endswith("=") else "r" if reflected else ""
        name = f"__{prefix}{base}__"
        if isinstance(lookup(self.cls, name), types.WrapperDescriptorType) and not hasattr(self, "base"):
            return self.unsupported(tx, op)
        return self._result(tx, self.special(tx, name), other)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        name = _COMPARE_OF[op]
        try:
            method = self.special(tx, name)
        except Raised:  # as in CPython: an error while reading the method counts as no method
            return None
        if method is not None:
            return self._result(tx, method, other)
        if op == "!=" and self.special(tx, "__eq__") is not None:
            same = self._result(tx, self.special(tx, "__eq__"), other)
            return None if same is None else ConstVar(not same.truth(tx))
        result = self.c_method(tx, name, [other], {})
        return None if slots.constant_or(result, None) is NotImplemented else result

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            if guarded_lookup(tx, self.cls, name) is not MISSING:
                if name == "__len__":
                    return self.length(tx).truth(tx)
                result = self._invoke(tx, name)
                if not slots.has_type(result, bool):
                    tx.raise_(TypeError, f"__bool__ should return bool, returned {slots.type_name(result)}")
                return result.truth(tx)
        return True

    def length(self, tx: Tracer) -> Var:
        result = ConstVar(slots.index(tx, self._invoke(tx, "__len__")))
        if result.value < 0:
            tx.raise_(ValueError, "__len__() should return >= 0")
        return result

    def contains(self, tx: Tracer, item: Var) -> bool:
        raw = guarded_lookup(tx, self.cls, "__contains__")
        if raw is None:
            tx.raise_(TypeError, f"{self.cls.__name__!r} object is not a container")
        if raw is not MISSING:
            return self._invoke(tx, "__contains__", item).truth(tx)
        iterator = self.iterate(tx)
        while (each := iterator.next_(tx)) is not None:
            if slots.equal(tx, each, item):
                return True
        return False

    def iterate(self, tx: Tracer) -> Var:
        raw = guarded_lookup(tx, self.cls, "__iter__")
        if raw is not MISSING and raw is not None:
            return slots.checked_iterator(tx, self._invoke(tx, "__iter__"))
        if raw is None or guarded_lookup(tx, self.cls, "__getitem__") is MISSING:
            tx.raise_(TypeError, f"{self.cls.__name__!r} object is not iterable")
        return ByIndexVar(self)

    def next_(self, tx: Tracer) -> Var | None:
        if guarded_lookup(tx, self.cls, "__next__") is MISSING:
            tx.raise_(TypeError, f"{self.cls.__name__!r} object is not an iterator")
        method = self.special(tx, "__next__")
        return self.unsupported(tx, "next()") if method is None else tx.call_next(method)

    def enter(self, tx: Tracer) -> Var:
        return self._invoke(tx, "__enter__")

    def exit(self, tx: Tracer, *args: Var) -> Var:
        return self._invoke(tx, "__exit__", *(args or (ConstVar(None),) * 3))

    def reconstruct(self, cg: Codegen) -> None:
        if self.value is not MISSING and self.source is None:
            cg.load_const(self.value)
            return
        self.rebuild_empty(cg)
        cg.remember(self)  # before the contents, which may refer back to this object
        self.refill(cg)
        for name, value in self.attrs.items():
            if value is not None:
                plain = lookup(self.cls, "__setattr__") is object.__setattr__
                setter = None if plain else object.__setattr__
                cg.set_attr_of_top(name, value, set_in_dict if is_hidden(self.cls, name) else setter)

    def rebuild_empty(self, cg: Codegen) -> None:
        """Push a new object of the class, without attributes."""
        cg.load_call(object.__new__, self.cls)

    def refill(self, cg: Codegen) -> None:
        """Fill the object on top of the stack with its contents other than attributes; subclasses override this."""
