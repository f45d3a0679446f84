"""Handlers of the instructions of `match` statements, and of the instructions that always break the graph."""

from __future__ import annotations

from typing import Any

from ..vars.containers.sequence import TupleVar
from ..vars.protocol.base import NotConstant, Var
from ..vars.protocol.class_reads import MISSING, lookup
from ..vars.protocol.const import ConstVar
from ..vars.tracer import Tracer
from .frame import Frame, op

# Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING, _Py_TPFLAGS_MATCH_SELF
_SEQUENCE, _MAPPING, _MATCH_SELF = 1 << 5, 1 << 6, 1 << 22

# Instructions that always break the graph, with the kind of break.
BREAKS = {
    **dict.fromkeys(
        (
            "BUILD_INTERPOLATION", "BUILD_TEMPLATE", "DELETE_GLOBAL",
        ),
        "unsupported-instruction",
    ),
}  # fmt: skip


@op(*BREAKS)
def always_break(frame: Frame, arg: object) -> None:
    frame.tx.graph_break(BREAKS[frame.instr.op], frame.instr.op)


def _has_flag(frame: Frame, flag: int) -> bool:
    """Whether the type of the value on top of the stack has the flag that marks sequences or mappings for patterns."""
    subject = frame.stack[-1]
    try:
        return bool(subject.python_type().__flags__ & flag)
    except NotConstant:
        return bool(subject.unsupported(frame.tx, "matching a pattern"))


@op("MATCH_MAPPING")
def match_mapping(frame: Frame, arg: None) -> None:
    frame.push(ConstVar(_has_flag(frame, _MAPPING)))


@op("MATCH_SEQUENCE")
def match_sequence(frame: Frame, arg: None) -> None:
    frame.push(ConstVar(_has_flag(frame, _SEQUENCE)))


@op("MATCH_KEYS")
def match_keys(frame: Frame, arg: None) -> None:
    subject, keys = frame.stack[-2:]
    wanted = keys.unpack(frame.tx)
    if all(subject.contains(frame.tx, key) for key in wanted):
        frame.push(TupleVar([subject.getitem(frame.tx, key) for key in wanted]))
    else:
        frame.push(ConstVar(None))


@op("MATCH_CLASS")
def match_class(frame: Frame, count: int) -> None:
    tx = frame.tx
    subject, cls, names = frame.popn(3)
    kind = cls.constant()
    if not isinstance(kind, type):
        tx.raise_(TypeError, "called match pattern must be a class")
    if not tx.call(tx.wrap(isinstance, None), [subject, cls], {}).truth(tx):
        frame.push(ConstVar(None))
        return
    found: list[Var] = []
    positional = _positional(tx, kind, count)
    if positional is None:
        found.append(subject)
    wanted = (*(positional or ()), *names.constant())
    for place, name in enumerate(wanted):
        if type(name) is not str:
            tx.raise_(TypeError, f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in wanted[:place]:
            tx.raise_(TypeError, f"{kind.__name__}() got multiple sub-patterns for attribute {name!r}")
        absent = ConstVar(None)
        value = tx.call(tx.wrap(getattr, None), [subject, ConstVar(name), absent], {})
        if value is absent:
            frame.push(ConstVar(None))
            return
        found.append(value)
    frame.push(TupleVar(found))


def _positional(tx: Tracer, kind: type, count: int) -> tuple[Any, ...] | None:
    """The attribute names that `count` positional patterns match; None if the pattern matches the subject itself."""
    if not count:
        return ()
    names = lookup(kind, "__match_args__")
    if lookup(type(kind), "__match_args__") is not MISSING or lookup(type(names), "__get__") is not MISSING:
        tx.graph_break("unsupported-object", f"{kind.__name__}.__match_args__, which is computed,")
    itself = names is MISSING and bool(kind.__flags__ & _MATCH_SELF)
    if names is MISSING:
        names = ()
    if not isinstance(names, tuple):
        tx.raise_(TypeError, f"{kind.__name__}.__match_args__ must be a tuple (got {type(names).__name__})")
    allowed = 1 if itself else len(names)
    if count > allowed:
        plural = "" if allowed == 1 else "s"
        tx.raise_(TypeError, f"{kind.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)")
    return None if itself else names[:count]
