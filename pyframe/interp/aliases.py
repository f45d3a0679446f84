"""Adds alias guards: two sources that led to different objects in the traced call must do so in every call.

Each object has a Var of its own, and a change of one object is recorded in its Var only. If the program changes an
object, and another source could lead to the same object in a later call, a guard that the two objects differ is added
at the end of the trace. The same holds for objects that the program used as keys: whether two of them are one key
depends on their identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..core.source import Source, source_of_cell
from ..errors import Restart
from ..vars.containers.mapping import DictVar
from ..vars.objects.instance_dict import dict_source, fields_of, has_dict
from ..vars.objects.instances import InstanceVar
from ..vars.protocol.base import NotConstant, Var
from ..vars.protocol.class_reads import MISSING

if TYPE_CHECKING:
    from .trace import Trace

# Side effects that change one object.
_CHANGES = ("LIST", "DICT", "SET", "DEQUE", "ATTR")


def guard_aliases(tx: Trace) -> None:
    """Guard that an object that the program changed is not also one that it read from another source."""
    _guard_keys_distinct(tx)
    targets = {id(e.target) for e in tx.effects if e.kind in _CHANGES}
    changed = {_type_of(e.target) for e in tx.effects if e.kind in _CHANGES} - {None}
    for var in tx.memo.values() if targets else ():
        if id(getattr(var, "base", None)) in targets:  # the contents of an instance of a subclass of a built-in type
            changed.add(_type_of(var))
    sources: dict[type, list[Source]] = {}
    for var, source in _objects(tx) if changed else ():
        kind = _type_of(var)
        if kind is not None and kind in changed:
            sources.setdefault(kind, []).append(source)
    for same_type in sources.values():
        if len(same_type) > 1:
            tx.guard(None, "DISTINCT", tuple(dict.fromkeys(same_type)))
    if len(tx.effects):
        _guard_dicts_distinct(tx)
    cells = [place for cell in tx.cells.values() if (place := source_of_cell(cell.source)) is not None]
    if len(cells) > 1 and any(effect.kind == "CELL" for effect in tx.effects):
        tx.guard(None, "DISTINCT", tuple(dict.fromkeys(cells)))


def _guard_keys_distinct(tx: Trace) -> None:
    """Guard that objects which were different keys of dicts, or items of sets, are different objects. (Of the tensors
    of a capture this is always guarded.)"""
    sources: dict[type, list[Source]] = {}
    for var in tx.memo.values() if tx.identity_keys else ():
        kind = _type_of(var) if id(var) in tx.identity_keys else None
        if kind is not None and var.source is not None and not issubclass(kind, torch.Tensor):
            sources.setdefault(kind, []).append(var.source)
    for same_type in sources.values():
        if len(same_type) > 1:
            tx.guard(None, "DISTINCT", tuple(dict.fromkeys(same_type)))


def _guard_dicts_distinct(tx: Trace) -> None:
    """Guard that a dict that the program changes is not the `__dict__` of an object whose attributes it also uses,
    and vice versa. If it is one in this call, restart with the dict opaque."""
    owners = [var for var in tx.memo.values() if isinstance(var, InstanceVar) and var.attrs]
    changed = {id(effect.target) for effect in tx.effects}
    replayed = [(var, tx.repeated_calls.read(source)) for var, source in tx.repeated_calls.replayed]
    values = [(owner, owner.value) for owner in owners]
    values += [(var, value) for var, value in replayed if isinstance(var, InstanceVar) and var.attrs]
    for owner, value in values:
        fields = fields_of(value) if value is not MISSING else None
        held = tx.memo.get(id(fields))
        if isinstance(held, DictVar) and not changed.isdisjoint((id(owner), id(held))):
            tx.opaque[id(fields)] = fields
            raise Restart()
    written = [e.target.source for e in tx.effects if e.kind == "DICT" and e.target.python_type() is dict]
    read = [(var, source) for var, source in _objects(tx) if isinstance(var, InstanceVar) and var.attrs]
    sources = [dict_source(source, var.cls) for var, source in read if has_dict(var.cls)]
    if written and sources:
        tx.guard(None, "DISTINCT", tuple(dict.fromkeys([*written, *sources])))


def _objects(tx: Trace) -> list[tuple[Var, Source]]:
    """The Vars of objects that existed before the frame, with their sources, also of those in modules whose calls were
    not traced because they equal others."""
    known = [(var, var.source) for var in tx.memo.values() if var.source is not None]
    return [*known, *tx.repeated_calls.replayed]


def _type_of(var: Var) -> type | None:
    """The exact type of a Var's value, or None if it is unknown."""
    try:
        return var.python_type()
    except NotConstant:
        return None
