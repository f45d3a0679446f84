"""Models of list, tuple, `torch.Size` and slice; `SequenceVar` is also the base class of ranges and deques."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

import torch

from ...core.source import Source
from ..codegen import Codegen
from ..protocol import dunder, slots
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, attribute_of_type, constants, fold, make, maker
from ..protocol.number_text import joined_text
from ..protocol.text import TextPlaceholder, hash_of, repr_of, text_argument
from ..tracer import Tracer
from .iterator import ItemsIteratorVar, ReversedVar

_AROUND: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), torch.Size: ("torch.Size([", "])")}


class SequenceVar(Var):
    """A sequence whose items are Vars.  `items` is owned by the Var; `wrap` guards the type and the length."""

    __slots__ = ("items",)
    type: ClassVar[Any] = tuple
    build = "BUILD_TUPLE"

    @property
    def family(self) -> type:
        """The built-in type with which the sequence can be compared and concatenated (tuple for `torch.Size`)."""
        return self.type

    def __init__(self, items: Sequence[Var], source: Source | None = None) -> None:
        super().__init__(source)
        self.items = list(items)

    def python_type(self) -> type:
        return self.type

    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items)

    def constant(self) -> Any:
        return self.type(constants(self.items))

    def plain(self) -> Any:
        return self.type([item.plain() for item in self.items])

    def describe(self) -> str:
        return str(self.source) if self.source else f"a {self.python_type().__name__}"

    def repr_(self, tx: Tracer) -> Var | None:
        if (varying := self._text_of_numbers(tx)) is not None:
            return varying
        return fold(tx, repr, self.type([TextPlaceholder(tx, item) for item in self.items]))

    def _text_of_numbers(self, tx: Tracer) -> Var | None:
        """The text of numbers some of which vary, made at run time; None if it has to be made now."""
        around = _AROUND.get(self.type)
        if around is None or not self.items or not all(item.python_type() in (int, float) for item in self.items):
            return None
        texts: list[Var] = [ConstVar(around[0])]
        for item in self.items:
            texts += [repr_of(tx, item), ConstVar(", ")]
        if self.type is not tuple or len(self.items) > 1:
            texts.pop()
        else:
            texts[-1:] = [ConstVar(",")]
        return joined_text(tx, [*texts, ConstVar(around[1])])

    def hash_(self, tx: Tracer) -> Var | None:
        if self.family is not tuple:
            tx.raise_(TypeError, f"unhashable type: {self.python_type().__name__!r}")
        return fold(tx, hash, tuple(_Hashed(hash_of(tx, item).constant()) for item in self.items))

    def like(self, items: Sequence[Var]) -> Var:
        """A new sequence of the type that slicing and `+` return."""
        return TupleVar(items)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if lookup(self.python_type(), name) is MISSING:
            tx.raise_(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")
        if name == "__class__":
            return make(self.python_type())
        return attribute_of_type(tx, self, name)

    def getitem(self, tx: Tracer, key: Var) -> Var:
        if isinstance(key, SliceVar) or isinstance(slots.constant_or(key, None), slice):
            return self.like(self.native(tx, "__getitem__", key.constant()))
        return self.items[self._place(tx, key, "{} index out of range")]

    def _place(self, tx: Tracer, key: Var, out_of_range: str) -> int:
        """`key` as an index into `items`, possibly negative; raises IndexError in the traced program."""
        if slots.has_type(key, object) and not slots.has_method(key, "__index__"):
            kind, wrong = self.family.__name__, slots.type_name(key)
            tx.raise_(TypeError, f"{kind} indices must be integers or slices, not {wrong}")
        at = slots.index(tx, key)
        if not -len(self.items) <= at < len(self.items):
            tx.raise_(IndexError, out_of_range.format(self.family.__name__))
        return at

    def native(self, tx: Tracer, method: str, *args: Any) -> Any:
        """Run a list method on the list of Vars; only for methods that do not compare items."""
        try:
            return getattr(self.items, method)(*args)
        except (IndexError, ValueError, TypeError) as error:
            return tx.raise_(type(error), *error.args)

    def repeated(self, tx: Tracer, count: Var) -> Sequence[Var]:
        """The items repeated `count` times."""
        times = slots.index(tx, count)
        tx.limit_size(len(self.items) * times, f"a {self.type.__name__}")
        return self.items * times

    def and_items(self, tx: Tracer, more: Sequence[Var]) -> Sequence[Var]:
        """`more`; breaks the graph if the sequence with these items would exceed config.size_limit."""
        tx.limit_size(len(self.items) + len(more), f"a {self.type.__name__}")
        return more

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def length(self, tx: Tracer) -> Var:
        return ConstVar(len(self.items))

    def contains(self, tx: Tracer, item: Var) -> bool:
        tx.spend(len(self.items))
        return any(slots.equal(tx, each, item) for each in self.items)

    def iterate(self, tx: Tracer) -> Var:
        return ItemsIteratorVar(self.items, self)

    def unpack(self, tx: Tracer) -> list[Var]:
        return list(self.items)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op == "+" and not reflected:
            if isinstance(other, SequenceVar) and other.family is self.family:
                return self.like([*self.items, *self.and_items(tx, other.items)])
        if op == "*" and slots.has_type(other, int):
            return self.like(self.repeated(tx, other))
        return None

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, SequenceVar) or other.family is not self.family:
            return None
        if op in ("==", "!=") and len(self.items) != len(other.items):
            return ConstVar(op == "!=")
        tx.spend(len(self.items))
        for place, (a, b) in enumerate(zip(self.items, other.items, strict=False)):
            if slots.equal(tx, a, b):
                continue
            if place >= min(len(self.items), len(other.items)):  # `__eq__` of an item shortened a list
                break
            return ConstVar(op == "!=") if op in ("==", "!=") else slots.compare(tx, op, a, b)
        return slots.compare(tx, op, ConstVar(len(self.items)), ConstVar(len(other.items)))

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in ("index", "count"):
            tx.spend(len(self.items))
        if name == "index" and args:
            start, stop = [*(slots.index(tx, arg) for arg in args[1:3]), None, None][:2]
            for position in range(len(self.items))[start:stop]:
                if position >= len(self.items):  # `__eq__` of an item shortened the list
                    break
                if slots.equal(tx, self.items[position], args[0]):
                    return ConstVar(position)
            return fold(tx, self.type().index, text_argument(tx, args[0]))  # raises
        if name == "count" and len(args) == 1:
            return ConstVar(sum(slots.equal(tx, item, args[0]) for item in self.items))
        if name == "__reversed__" and self.family in (list, tuple):
            return ReversedVar(self.items, self)
        if name == "__getnewargs__":
            return TupleVar([TupleVar(self.items)])
        found = dunder.call(tx, self, name, args)
        return self.unsupported(tx, f"method {name!r}") if found is None else found

    def reconstruct(self, cg: Codegen) -> None:
        cg.sequence(self.build, self.items)


class _Hashed:
    """Placeholder for an item in the hash of a tuple: an object with the item's hash."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value


class TupleVar(SequenceVar):
    """A tuple."""

    __slots__ = ()

    def as_index(self, tx: Tracer) -> Var:
        items = [item.as_index(tx) for item in self.items]
        return self if all(new is item for new, item in zip(items, self.items, strict=True)) else TupleVar(items)


class SizeVar(TupleVar):
    """`torch.Size`."""

    __slots__ = ()
    type: ClassVar[Any] = torch.Size

    @property
    def family(self) -> Any:
        return tuple

    def repr_(self, tx: Tracer) -> Var | None:
        return self._text_of_numbers(tx)

    def like(self, items: Sequence[Var]) -> Var:
        return SizeVar(items)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "numel":
            total: Var = ConstVar(1)
            for item in self.items:
                total = slots.binary(tx, "*", total, item)
            return total
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(torch.Size)
        cg.call_top(lambda: cg.sequence("BUILD_TUPLE", self.items))


class ListVar(SequenceVar):
    """A list."""

    __slots__ = ()
    type: ClassVar[Any] = list
    build = "BUILD_LIST"

    def like(self, items: Sequence[Var]) -> Var:
        return ListVar(items)

    def is_constant(self) -> bool:
        return False

    def constant(self) -> Any:
        raise NotConstant("list")

    def changed(self, tx: Tracer) -> None:
        tx.effects.change("LIST", self, None, tx.user_line)

    def setitem(self, tx: Tracer, key: Var, value: Var | None) -> None:
        sliced = isinstance(key, SliceVar) or isinstance(slots.constant_or(key, None), slice)
        at = key.constant() if sliced else self._place(tx, key, "{} assignment index out of range")
        if value is None:
            self.native(tx, "__delitem__", at)
        else:
            self.native(tx, "__setitem__", at, value.unpack(tx) if sliced else value)
        self.changed(tx)

    def load_contents(self, cg: Codegen) -> None:
        """Push a new list of the items."""
        cg.sequence("BUILD_LIST", self.items)

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op == "+=" and not reflected:
            self._extend(tx, other)
            self.changed(tx)
            return self
        if op == "*=" and not reflected and slots.has_type(other, int):
            self.items[:] = self.repeated(tx, other)
            self.changed(tx)
            return self
        return super().binary(tx, op, other, reflected)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        mutate = getattr(self, f"_{name}", None) if name in _LIST_METHODS else None
        if mutate is None:
            if name == "copy":
                return self.like(self.items)
            return super().call_method(tx, name, args, kwargs)
        result = mutate(tx, *args, **kwargs)
        self.changed(tx)
        return ConstVar(None) if result is None else result

    def _append(self, tx: Tracer, item: Var) -> None:
        self.items.append(item)

    def _extend(self, tx: Tracer, items: Var) -> None:
        if type(items).unpack is not Var.unpack:
            self.items.extend(self.and_items(tx, items.unpack(tx)))
            return
        self.changed(tx)
        iterator = items.iterate(tx)
        while (item := iterator.next_(tx)) is not None:  # `next_` may read the partly extended list
            self.items.append(item)

    def _insert(self, tx: Tracer, at: Var, item: Var) -> None:
        self.items.insert(slots.index(tx, at), item)

    def _pop(self, tx: Tracer, at: Var | None = None) -> Var:
        return self.native(tx, "pop", *([] if at is None else [slots.index(tx, at)]))

    def _clear(self, tx: Tracer) -> None:
        self.items.clear()

    def _reverse(self, tx: Tracer) -> None:
        self.items.reverse()

    def _remove(self, tx: Tracer, item: Var) -> None:
        tx.spend(len(self.items))
        for place, each in enumerate(self.items):
            if slots.equal(tx, each, item):
                del self.items[place]
                return
        fold(tx, self.type().remove, text_argument(tx, item))  # raises

    def _sort(self, tx: Tracer, *, key: Var | None = None, reverse: Var | None = None) -> None:
        self.items[:] = sorted_items(tx, self.items, key, reverse)


_LIST_METHODS = frozenset("append extend insert pop clear reverse remove sort".split())


class _SortKey:
    """A sort key that compares Vars by tracing `<`."""

    def __init__(self, tx: Tracer, var: Var) -> None:
        self.tx, self.var = tx, var

    def __lt__(self, other: _SortKey) -> bool:
        self.tx.spend(1)
        return slots.compare(self.tx, "<", self.var, other.var).truth(self.tx)


def sorted_items(tx: Tracer, items: Sequence[Var], key: Var | None, reverse: Var | None) -> list[Var]:
    """`sorted(items, key=key, reverse=reverse)`; stable, as in CPython."""
    if key is not None and slots.constant_or(key, key) is None:
        key = None
    keys = list(items) if key is None else [tx.call(key, [item], {}) for item in items]
    return sorted_by(tx, items, keys, reverse is not None and reverse.truth(tx))


def sorted_by(tx: Tracer, items: Sequence[Var], keys: Sequence[Var], reverse: bool) -> list[Var]:
    """The items sorted by their keys."""
    order = sorted(range(len(items)), key=lambda at: _SortKey(tx, keys[at]), reverse=reverse)
    return [items[at] for at in order]


def is_plain(var: Var) -> TypeGuard[ListVar | TupleVar]:
    """Whether `var` is exactly a list or tuple, not an instance of a subclass."""
    return type(var) in (ListVar, TupleVar)


class SliceVar(Var):
    """A slice object."""

    __slots__ = ("start", "stop", "step")

    def __init__(self, start: Var, stop: Var, step: Var, source: Source | None = None) -> None:
        super().__init__(source)
        self.start, self.stop, self.step = start, stop, step

    def python_type(self) -> type:
        return slice

    @property
    def parts(self) -> tuple[Var, Var, Var]:
        return self.start, self.stop, self.step

    def is_constant(self) -> bool:
        return all(part.is_constant() for part in self.parts)

    def constant(self) -> Any:
        return slice(self.start.constant(), self.stop.constant(), self.step.constant())

    def as_index(self, tx: Tracer) -> Var:
        start, stop, step = (part.as_index(tx) for part in self.parts)
        same = start is self.start and stop is self.stop and step is self.step
        return self if same else SliceVar(start, stop, step)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name in ("start", "stop", "step"):
            return getattr(self, name)
        if not hasattr(slice, name):
            tx.raise_(AttributeError, f"'slice' object has no attribute {name!r}")
        return attribute_of_type(tx, self, name)

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if not isinstance(other, SliceVar):
            return None
        mine, theirs = (TupleVar([var.start, var.stop, var.step]) for var in (self, other))
        return mine.compare(tx, op, theirs)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name == "indices":
            return fold(tx, self.constant().indices, *constants(args))
        found = dunder.call(tx, self, name, args)
        return self.unsupported(tx, f"method {name!r}") if found is None else found

    def reconstruct(self, cg: Codegen) -> None:
        for part in (self.start, self.stop, self.step):
            cg.load(part)
        cg.emit("BUILD_SLICE", 3)


maker(list)(lambda value: ListVar([make(item) for item in value]))
maker(tuple)(lambda value: TupleVar([make(item) for item in value]))
maker(torch.Size)(lambda value: SizeVar([make(item) for item in value]))
maker(slice)(lambda value: SliceVar(make(value.start), make(value.stop), make(value.step)))
