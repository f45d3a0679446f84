"""Vars for weak references (`weakref.ref`).

Calling a reference gives its referent, with a guard through the reference.  The graph breaks where the referent may
have been collected by then.
"""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import AttrSource, CallSource, GlobalSource
from ..codegen import Codegen
from ..protocol import slots
from ..protocol.base import HeldVar, Var
from ..protocol.const import ConstVar, attribute_of_type, make
from ..protocol.text import hash_of
from ..registry import register
from ..tracer import Tracer

_MAX_HELD = 1000  # objects that `_may_hold` searches before it gives up


class WeakVar(Var):
    """A weak reference.  Two references are equal if their referents are. An object has one reference without a
    callback."""

    __slots__ = ()

    def is_shared(self, tx: Tracer) -> bool:
        """Whether this is the reference without a callback; a guard checks it."""
        raise NotImplementedError

    def same_object(self, tx: Tracer, other: Var) -> bool | None:
        if not isinstance(other, WeakVar) or (isinstance(self, HeldVar) and isinstance(other, HeldVar)):
            return None
        if not (self.is_shared(tx) and other.is_shared(tx)):
            return None
        return slots.identical(tx, self.referent(tx), other.referent(tx))

    def referent(self, tx: Tracer) -> Var:
        """The referent; breaks the graph where it may have been collected."""
        raise NotImplementedError

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return self.referent(tx)

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if not hasattr(weakref.ref, name):
            tx.raise_(AttributeError, f"'weakref.ReferenceType' object has no attribute {name!r}")
        if name == "__callback__":
            return super().getattr_(tx, name)
        return make(self.python_type()) if name == "__class__" else attribute_of_type(tx, self, name)

    def hash_(self, tx: Tracer) -> Var | None:
        return hash_of(tx, self.referent(tx))

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if op not in ("==", "!=") or not isinstance(other, WeakVar):
            return None
        return ConstVar(slots.equal(tx, self.referent(tx), other.referent(tx)) == (op == "=="))


class WeakRefVar(HeldVar, WeakVar):
    """A reference that existed before the trace."""

    __slots__ = ()

    value: weakref.ReferenceType[Any]

    def is_shared(self, tx: Tracer) -> bool:
        shared = type(self.value) is weakref.ref and self.value.__callback__ is None
        if shared and self.source is not None:
            tx.guard(self.source, "TYPE", weakref.ref)
            tx.guard(AttrSource(self.source, "__callback__"), "ID", None)
        return shared

    def referent(self, tx: Tracer) -> Var:
        value = self.value()
        if value is not None and any(_may_hold(tx.existing(var), value) for var in tx.deleted_values):
            tx.graph_break("unsupported-object", "a weak reference, after a local was deleted,")
        if value is not None and len(tx.effects):  # a changed object may have held the last reference
            held = tx.traced(value)
            if held is None or not _is_local(tx, held):
                tx.graph_break(
                    "unsupported-object",
                    "a weak reference to an object that no local variable refers to, after changes,",
                )
        return tx.wrap(value, CallSource(self.source, follow, "deref") if self.source else None)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


class NewWeakVar(WeakVar):
    """A reference that the traced program creates."""

    __slots__ = ("callback", "target")

    def __init__(self, target: Var, callback: Var | None) -> None:
        super().__init__()
        self.target, self.callback = target, callback

    def is_shared(self, tx: Tracer) -> bool:
        return self.callback is None

    def python_type(self) -> type:
        return weakref.ref

    def describe(self) -> str:
        return f"a weak reference to {self.target.describe()}"

    def referent(self, tx: Tracer) -> Var:
        if not (_outlives(tx, self.target) or _is_local(tx, self.target)):
            tx.graph_break("unsupported-object", f"{self.describe()}, which may be gone,")
        return self.target

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(weakref.ref)
        cg.call_top(*(lambda part=part: cg.load(part) for part in (self.target, self.callback) if part is not None))


def _outlives(tx: Tracer, target: Var) -> bool:
    """Whether something outside the traced program keeps `target` alive, and no effect so far can have removed that."""
    if target.source is None:
        return target.is_constant()
    kinds = {effect.kind for effect in tx.effects}
    if isinstance(target.source, GlobalSource):
        return "GLOBAL" not in kinds
    return not kinds and target not in tx.deleted_values


def _may_hold(holder: Any, value: Any) -> bool:
    """Whether `holder` is `value` or refers to it, directly or indirectly.  True if the search exceeds `_MAX_HELD`."""
    seen = {id(holder)}
    found = [holder]
    for each in found:
        if each is value or len(found) > _MAX_HELD:
            return True
        if not isinstance(each, types.ModuleType | type | types.FunctionType):
            new = [held for held in gc.get_referents(each) if id(held) not in seen]
            seen.update(map(id, new))
            found += new
    return False


def _is_local(tx: Tracer, target: Var) -> bool:
    return any(var is target for frame in tx.frames for var in (*frame.locals.values(), *frame.stack))


def follow(reference: weakref.ReferenceType[Any]) -> Any:
    """The referent, or None once it was collected."""
    return reference()


@register(weakref.ref)
def _ref(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    target, *rest = args
    callback = None if not rest or slots.constant_or(rest[0], 0) is None else rest[0]
    if target.python_type().__weakrefoffset__ == 0:
        tx.raise_(TypeError, f"cannot create weak reference to {slots.type_name(target)!r} object")
    if callback is not None and not _outlives(tx, target):
        tx.graph_break("unsupported-object", "a weak reference with a callback")
    if target.source is not None:
        tx.weak_references.append(weakref.ref(tx.existing(target)))
    return NewWeakVar(target, callback)


