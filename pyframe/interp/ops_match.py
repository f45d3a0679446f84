"""`match` statements, and the instructions that are always a break."""

from __future__ import annotations

from ..vars.const import ConstVar
from ..vars.instance import lookup
from ..vars.mapping import DictVar
from ..vars.sequence import SequenceVar, TupleVar
from .frame import Frame, op

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
            "LOAD_SPECIAL",
        ),
        "unsupported-instruction",
    ),
}  # fmt: skip


@op(*BREAKS)
def always_break(frame: Frame, arg: object) -> None:
    frame.tx.graph_break(BREAKS[frame.instr.op], frame.instr.op)


@op("MATCH_MAPPING")
def match_mapping(frame: Frame, arg: None) -> None:
    frame.push(ConstVar(isinstance(frame.stack[-1], DictVar)))


@op("MATCH_SEQUENCE")
def match_sequence(frame: Frame, arg: None) -> None:
    frame.push(ConstVar(isinstance(frame.stack[-1], SequenceVar)))


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
    wanted = (*positional[:count], *names.constant())
    frame.push(TupleVar([frame.tx.getattr(subject, name) for name in wanted]))
