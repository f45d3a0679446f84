"""Branches on values that are known only at run time, one side of which raises.

An assertion becomes a check in the graph that raises the program's AssertionError. For any other side that only raises,
the graph returns whether the other side is taken; the frame runs eagerly if it is not, and the program raises its
exception itself. Code before that exception, such as what forms its message, is thus not traced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..bytecode.flow import FlowGraph
from ..core.in_order import in_order
from ..core.symbolic import surely_true
from ..vars.numbers.symint import NumberVar, apply, is_unbacked
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.torch_objects.tensor import TensorVar
from .frame import Frame

if TYPE_CHECKING:
    from .trace import Trace

_READABLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64)
_MAX_RAISING = 200  # instructions of a side of a branch that raises


@in_order
def asserted(condition: bool, required: bool, *message: Any) -> None:
    """The check that the graph runs."""
    if bool(condition) is not required:
        raise AssertionError(*message)


def outcome(frame: Frame, var: Var, label: Any, jumps: bool, after: int | None = None) -> bool:
    """The truth value of `var`, on which the frame branches.

    The frame jumps to `label` if the truth value equals `jumps`, and otherwise continues at `after` (default: the next
    instruction). If one side of the branch fails an assertion and the value is known only at run time, the graph checks
    it and tracing continues on the other side.
    """
    after = frame.pc if after is None else after
    for at, required in ((frame.flow.place[label], not jumps), (after, jumps)):
        message = _message(frame, at)
        if message is not None and _checkable(frame, var):
            return _check(frame.tx, var, required, message)
    if isinstance(var, TensorVar) and _may_be_required(frame.tx, var):
        for at, required in ((frame.flow.place[label], not jumps), (after, jumps)):
            if _only_raises(frame.flow, at):
                frame.tx.graph.require(var, required)
                return required
    return var.truth(frame.tx)


def decides_branch(frame: Frame) -> bool:
    """Whether the next instruction branches on the result of the current one, and neither side fails an assertion."""
    at, instrs = frame.pc, frame.flow.instrs
    while instrs[at].op in ("TO_BOOL", "UNARY_NOT"):
        at += 1
    if instrs[at].op not in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        return False
    return _message(frame, at + 1) is None and _message(frame, frame.flow.place[instrs[at].arg]) is None


def _may_be_required(tx: Trace, var: TensorVar) -> bool:
    """Whether the graph may return the truth value of `var`, to be compared with the assumed one after it has run.

    Nothing of the program may handle the exception: it is then unusual, and the frame seldom runs twice. On other
    devices than the CPU, operators after the branch could fail in ways that end the process.
    """
    if not tx.graph.history.checks_branches or tx.graph.stack.is_nested or tx.draws or tx.error_is_observable:
        return False
    return _is_readable(tx, var) and var.fake.device.type == "cpu" and not tx.overrides.may_override([var])


def _is_readable(tx: Trace, var: TensorVar) -> bool:
    """Whether a tensor has one element, which is not known while tracing."""
    one = isinstance(count := var.fake.numel(), int) and count == 1 and var.fake.dtype in _READABLE
    return one and tx.graph.known.value_of(var) is None


def _only_raises(flow: FlowGraph, start: int) -> bool:
    """Whether the code at `start` ends with a `raise` whatever branches it takes, without a loop."""
    seen: set[int] = set()
    todo = [start]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        op = flow.instrs[at].op
        if op == "RAISE_VARARGS":
            continue
        following = [next_ for next_, _ in flow.normal_successors(at)]
        if not following or min(following) <= at or len(seen) > _MAX_RAISING:
            return False
        todo += following
    return True


def _message(frame: Frame, at: int) -> tuple[Any, ...] | None:
    """The arguments of the AssertionError that the code at `at` raises; None if that code does anything else."""
    instrs = frame.flow.instrs[at : at + 4]
    ops = [instr.op for instr in instrs]
    if ops[:2] == ["LOAD_ASSERTION_ERROR", "RAISE_VARARGS"]:
        return ()
    if ops == ["LOAD_ASSERTION_ERROR", "LOAD_CONST", "CALL", "RAISE_VARARGS"]:
        return (instrs[1].arg,)
    return None


def _checkable(frame: Frame, var: Var) -> bool:
    """Whether an error raised by the graph is equivalent to the program's, and the graph can read `var`."""
    tx = frame.tx
    if not tx.graph_error_is_equivalent:
        return False
    if isinstance(var, TensorVar):
        return tx.graph.numbers.makes_numbers and _is_readable(tx, var)
    return is_unbacked(var)


def _check(tx: Trace, var: Var, required: bool, message: tuple[Any, ...]) -> bool:
    number = var.call_method(tx, "item", [], {}) if isinstance(var, TensorVar) else var
    if isinstance(number, NumberVar) and number.python_type() is not bool:
        number = apply(tx, "!=", number, ConstVar(0))
    if not is_unbacked(number):
        return number.truth(tx)
    assert isinstance(number, NumberVar)
    holds = number.sym if required else torch.sym_not(number.sym)
    if surely_true(torch.sym_not(holds)):
        return not required
    if not surely_true(holds):
        tx.graph.effect(asserted, number, required, *message)
        torch._check(holds)
    return required
