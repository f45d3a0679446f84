"""Handlers of the instructions for jumps, loops, returns and generators."""

from __future__ import annotations

from typing import Any

from ..vars.containers.iterator import ResumableVar
from ..vars.objects.instances import InstanceVar
from ..vars.protocol import slots
from ..vars.protocol.base import Raised, Var
from ..vars.protocol.const import ConstVar
from . import asserts
from .frame import Frame, Outcome, op


@op("JUMP", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(frame: Frame, label: Any) -> None:
    frame.jump(label)


@op("POP_JUMP_IF_TRUE")
def jump_if_true(frame: Frame, label: Any) -> None:
    if asserts.outcome(frame, frame.pop(), label, True):
        frame.jump(label)


@op("POP_JUMP_IF_FALSE")
def jump_if_false(frame: Frame, label: Any) -> None:
    if not asserts.outcome(frame, frame.pop(), label, False):
        frame.jump(label)


@op("TO_BOOL")
def to_bool(frame: Frame, arg: None) -> None:
    """From CPython 3.13 on, computing the truth value for a jump is a separate instruction right before the jump."""
    after = frame.flow.instrs[frame.pc]
    if after.op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        jumps = after.op == "POP_JUMP_IF_TRUE"
        frame.push(ConstVar(asserts.outcome(frame, frame.pop(), after.arg, jumps, frame.pc + 1)))
    else:
        frame.push(ConstVar(frame.pop().truth(frame.tx)))


def _is_none(frame: Frame) -> bool:
    tested = frame.pop()
    if isinstance(tested, ConstVar) and tested.varies:
        return tested.python_type() is type(None)
    return slots.constant_or(tested, 0) is None


@op("POP_JUMP_IF_NONE")
def jump_if_none(frame: Frame, label: Any) -> None:
    if _is_none(frame):
        frame.jump(label)


@op("POP_JUMP_IF_NOT_NONE")
def jump_if_not_none(frame: Frame, label: Any) -> None:
    if not _is_none(frame):
        frame.jump(label)


@op("GET_ITER", "GET_YIELD_FROM_ITER")
def get_iter(frame: Frame, arg: None) -> None:
    frame.push(frame.pop().iterate(frame.tx))


@op("FOR_ITER")
def for_iter(frame: Frame, label: Any) -> None:
    item = frame.stack[-1].next_(frame.tx)
    if item is None:
        frame.jump(label)
    else:
        frame.push(item)


@op("RETURN_VALUE")
def return_value(frame: Frame, arg: None) -> Outcome:
    return Outcome(frame.pop())


@op("RETURN_GENERATOR")
def return_generator(frame: Frame, arg: None) -> None:
    frame.push(ConstVar(None))  # the value that the first resume sends


@op("YIELD_VALUE")
def yield_value(frame: Frame, arg: Any) -> Outcome:
    return Outcome(frame.pop(), yielded=True)


@op("SEND")
def send(frame: Frame, label: Any) -> None:
    receiver, value = frame.stack[-2], frame.pop()
    tx = frame.tx
    item: Var | None
    returned: Var | None = None
    if isinstance(receiver, ResumableVar):
        item = receiver.send(tx, value)
        returned = receiver.returned
    elif value.is_constant() and value.constant() is None and not isinstance(receiver, InstanceVar):
        item = receiver.next_(tx)
    else:
        plain = value.is_constant() and value.constant() is None
        try:
            item = receiver.call_method(tx, "__next__" if plain else "send", [] if plain else [value], {})
        except Raised as raised:
            if not issubclass(raised.exc.python_type(), StopIteration):
                raise
            item, returned = None, tx.getattr(raised.exc, "value")
    if item is None:
        frame.push(returned or ConstVar(None))
        frame.jump(label)
    else:
        frame.push(item)


@op("END_SEND")
def end_send(frame: Frame, arg: None) -> None:
    value = frame.pop()
    frame.pop()
    frame.push(value)
