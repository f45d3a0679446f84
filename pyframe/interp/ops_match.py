"""`match` statements, and the instructions that are always a break."""

from __future__ import annotations

from ..vars.base import NotConstant
from ..vars.const import ConstVar
from ..vars.instance import lookup
from ..vars.lookup import class_source
from ..vars.sequence import TupleVar
from .frame import Frame, op

_SEQUENCE, _MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE and Py_TPFLAGS_MAPPING

# Instructions that end the graph, with the kind of break.
BREAKS = {
    **dict.fromkeys(
        (
            "BEFORE_ASYNC_WITH", "CLEANUP_THROW", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE",
        ),
        "generator-frame",
    ),
    **dict.fromkeys(
        (
            "BUILD_INTERPOLATION", "BUILD_TEMPLATE", "CALL_INTRINSIC_2", "CHECK_EG_MATCH", "DELETE_GLOBAL",
        ),
        "unsupported-instruction",
    ),
}  # fmt: skip


@op(*BREAKS)
def always_break(frame: Frame, arg: object) -> None:
    frame.tx.graph_break(BREAKS[frame.instr.op], frame.instr.op)


def _has_flag(frame: Frame, flag: int) -> bool:
    """Whether the type of the value on top is marked as what a pattern takes for a sequence or mapping."""
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
    subject, cls, names = frame.popn(3)
    kind = cls.constant()
    if not issubclass(subject.python_type(), kind):
        frame.push(ConstVar(None))
        return
    if kind in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple) and count:
        frame.push(TupleVar([subject]))
        return
    positional = lookup(kind, "__match_args__") if count else ()
    if count:
        frame.tx.guard(class_source(kind, "__match_args__"), "EQUALS", positional)
    wanted = (*positional[:count], *names.constant())
    frame.push(TupleVar([frame.tx.getattr(subject, name) for name in wanted]))
