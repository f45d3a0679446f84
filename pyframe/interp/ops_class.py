"""`class` statements: `__build_class__`, and the instructions of a class body, a frame whose names are items of a
mapping."""

from __future__ import annotations

import builtins
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..vars.containers.mapping import DictVar
from ..vars.containers.sequence import TupleVar
from ..vars.objects.class_construction import CONFLICT
from ..vars.objects.classes import ClassVar
from ..vars.objects.functions import BuiltinVar, CellVar, FunctionVar
from ..vars.objects.lookup import defined_in
from ..vars.protocol import slots
from ..vars.protocol.base import Raised, Var
from ..vars.protocol.class_reads import lookup
from ..vars.protocol.const import make
from ..vars.registry import register
from .frame import Frame, op
from .ops_stack import UNBOUND_FREE

if TYPE_CHECKING:
    from .trace import Trace


@op("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, arg: None) -> None:
    frame.push(BuiltinVar(builtins.__build_class__))


def _names(frame: Frame) -> Var:
    if frame.names is None:
        return frame.tx.graph_break("unsupported-instruction", f"{frame.instr.op} outside a class body")
    return frame.names


def _find(frame: Frame, names: Var, name: str) -> Var | None:
    if isinstance(names, DictVar) and type(names) is DictVar and names.factory is None:
        return names.items.get(name)
    try:
        return names.getitem(frame.tx, make(name))
    except Raised as raised:
        if not slots.has_type(raised.exc, KeyError):
            raise
        return None


@op("LOAD_NAME")
def load_name(frame: Frame, name: str) -> None:
    found = None if frame.names is None else _find(frame, frame.names, name)
    frame.push(frame.load_global(name) if found is None else found)


@op("STORE_NAME")
def store_name(frame: Frame, name: str) -> None:
    _names(frame).setitem(frame.tx, make(name), frame.pop())


@op("DELETE_NAME")
def delete_name(frame: Frame, name: str) -> None:
    names = _names(frame)
    if _find(frame, names, name) is None:
        frame.tx.raise_(NameError, f"name {name!r} is not defined")
    names.setitem(frame.tx, make(name), None)


@op("LOAD_LOCALS")
def load_locals(frame: Frame, arg: None) -> None:
    frame.push(_names(frame))


@op("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(frame: Frame, name: str) -> None:
    found = _find(frame, frame.pop(), name) or frame.cell(name).content
    if found is None:
        frame.tx.raise_(NameError, UNBOUND_FREE.format(name))
    frame.push(found)


@op("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(frame: Frame, name: str) -> None:
    frame.push(_find(frame, frame.pop(), name) or frame.load_global(name))


@op("SETUP_ANNOTATIONS")
def setup_annotations(frame: Frame, arg: None) -> None:
    names = _names(frame)
    if _find(frame, names, "__annotations__") is None:
        names.setitem(frame.tx, make("__annotations__"), DictVar({}))


def _resolved(tx: Trace, bases: Sequence[Var]) -> tuple[list[Var], bool]:
    """The bases after `__mro_entries__`, and whether it replaced any."""
    found: list[Var] = []
    for base in bases:
        if isinstance(base, ClassVar):
            found.append(base)
            continue
        if not tx.has_attribute(base, "__mro_entries__"):
            found.append(base)
            continue
        replaced_by = tx.existing(base).__mro_entries__
        function = getattr(replaced_by, "__func__", replaced_by)
        # The program's own `__mro_entries__` would have to be traced.
        if not isinstance(function, types.FunctionType) or not defined_in(function, typing, types):
            base.unsupported(tx, "__mro_entries__()")
        entries = replaced_by(tuple(tx.existing(each) for each in bases))
        found += [tx.wrap(entry, tx.const_source(entry, entry.__name__)) for entry in entries]
    return found, len(found) != len(bases) or any(a is not b for a, b in zip(found, bases, strict=False))


def _metaclass(tx: Trace, metaclass: Var | None, bases: Sequence[Var]) -> Var:
    if metaclass is not None and not isinstance(metaclass, ClassVar):
        return metaclass
    kinds = [metaclass.value if metaclass is not None else type, *(base.python_type() for base in bases)]
    most = kinds[0]
    for kind in kinds[1:]:
        if slots.derives(kind, most):
            most = kind
        elif not slots.derives(most, kind):
            tx.raise_(TypeError, CONFLICT)
    return make(most)


def _namespace(tx: Trace, meta: Var, name: Var, bases: Var, kwargs: Mapping[str, Var]) -> Var:
    """`meta.__prepare__(name, bases, **kwargs)`."""
    if not isinstance(meta, ClassVar):
        return DictVar({})
    prepare = lookup(meta.value, "__prepare__")
    if prepare is type.__dict__["__prepare__"]:
        return DictVar({})
    return tx.call(meta.getattr_(tx, "__prepare__"), [name, bases], kwargs)


@register(builtins.__build_class__)
def build_class(tx: Trace, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`__build_class__(body, name, *bases, metaclass=type, **kwargs)`."""
    body, name, *original_bases = args
    bases, replaced = _resolved(tx, original_bases)
    meta = _metaclass(tx, kwargs.pop("metaclass", None), bases)
    assert isinstance(body, FunctionVar)
    if isinstance(meta, ClassVar) and issubclass(meta.value, enum.EnumMeta):
        tx.graph_break("unsupported-object", f"class {name.constant()}, an enumeration")
    names = _namespace(tx, meta, name, TupleVar(bases), kwargs)
    frame = Frame(tx, body.code, body.globals, body.globals_source)
    frame.free, frame.names = body.cells(tx), names
    cell = frame.run().value
    if replaced:
        names.setitem(tx, make("__orig_bases__"), TupleVar(original_bases))
    cls = tx.call(meta, [name, TupleVar(bases), names], kwargs)
    if isinstance(cell, CellVar) and cell.content is None and isinstance(cls, ClassVar):
        text = f"__class__ not set defining {name.constant()!r} as {cls.value!r}."
        tx.raise_(RuntimeError, f"{text} Was __classcell__ propagated to type.__new__?")
    return cls
