"""Decides how much of a chain of inlined calls a graph break can suspend (see `emit/suspended_frames.py`).

The chain starts at the root frame. An inlined frame belongs to it if the frame above is at a call of exactly this
function, whose result is the result of the call, and if a resume function can continue it. The last frame runs code of
the user: what torch or the standard library does between two calls of the user's code is not captured in parts. If the
frame of the break does not belong to the chain, the break is made before the call in the last frame that does.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from ..core.break_reason import BreakReason
from ..core.files import our_file, skipped_file
from ..core.source import FuncPartSource
from ..emit.graph_break import cells_of_comprehensions, reads_all_locals
from ..emit.resume import keyword_names, super_argument
from ..emit.suspended_frames import SuspendedFrameVar, call_stack
from ..emit.varying_values import VaryingValues
from ..vars.objects.functions import BoundMethodVar, FunctionVar, PartialVar
from ..vars.objects.instances import InstanceVar
from ..vars.objects.lookup import lookup
from ..vars.protocol.base import Var
from ..vars.registry import call_model
from ..vars.torch_objects.contexts import enters_mode, modes_switched
from .frame import Frame
from .limits import KIND as TOO_LONG

_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_SUSPENDING = 0x20 | 0x80 | 0x200  # flags of generators and coroutines
_NOT_WITHIN = (TOO_LONG, "inline-depth")  # the call as a whole is the reason


class InnerPlace(NamedTuple):
    """Where within a step of the root frame the graph breaks: before instruction `number` of those that inlined frames
    execute in the step. There are then `depth` frames, and the last one runs `code` and is at `pc`."""

    number: int
    depth: int
    code: types.CodeType
    pc: int


def place_within(frames: Sequence[Frame], kind: str) -> InnerPlace | None:
    """Where a break of a kind that was found in the last frame can happen; None if only in the root frame."""
    if kind in _NOT_WITHIN or any(frames[0].at in members for members in frames[0].loops.values()):
        return None
    depth = 1
    while depth < len(frames) and _is_direct(frames[depth - 1], frames[depth]) and _can_resume(frames[depth]):
        depth += 1
        if frames[depth - 1].resumable_place()[0] != frames[depth - 1].number:  # the frames below do not exist there
            break
    while depth > 1 and skipped_file(frames[depth - 1].file):
        depth -= 1
    last = frames[depth - 1]
    number, at = last.resumable_place()
    return InnerPlace(number, depth, last.code, at) if depth > 1 else None


def is_at(frames: Sequence[Frame], place: InnerPlace) -> bool:
    """Whether the trace is at `place`, and can break there."""
    found = place_within(frames, "")
    return found is not None and len(frames) == place.depth and found == place


def suspended_stack(frames: Sequence[Frame], reason: BreakReason, varying: VaryingValues, loops: bool) -> list[Var]:
    """The stack of the root frame before its call, if what it calls continues the frames below."""
    callee: Var | None = None
    for frame in reversed(frames):
        stack = list(frame.stack)
        if callee is not None:
            instrs = frame.flow.instrs
            names = keyword_names(instrs, frame.at) if frame.instr.op == "CALL_KW" else ()
            stack = call_stack(stack, frame.instr, names, callee)
        if frame.is_root:
            return stack
        if isinstance(frame.globals_source, FuncPartSource):
            frame.tx.guard(frame.globals_source, "ID", frame.globals)
        callee = SuspendedFrameVar(frame, stack, reason, varying, loops)
    raise ValueError("no root frame")


def _is_direct(caller: Frame, callee: Frame) -> bool:
    """Whether `caller` is at a call of the function of `callee`, whose result it will push."""
    called, function = caller.calling, callee.function
    if caller.instr.op not in _CALLS or not isinstance(function, FunctionVar):
        return False
    while isinstance(called, BoundMethodVar | PartialVar):
        called = called.fn
    if not isinstance(called, InstanceVar):
        return called is function and call_model(function.code) is None
    known = [lookup(called.cls, "__call__")]
    if issubclass(called.cls, nn.Module):
        known += [lookup(called.cls, "forward"), nn.Module.__dict__["_call_impl"]]
    return function.fn is not None and function.fn in known


def _can_resume(frame: Frame) -> bool:
    """Whether a resume function can continue this inlined frame at its current instruction."""
    if our_file(frame.file) or frame.code.co_flags & _SUSPENDING or frame.names is not None:
        return False
    if reads_all_locals(frame.cc) or cells_of_comprehensions(frame.cc) or not {*frame.cc.cellvars} <= {*frame.cells}:
        return False
    first = super_argument(frame.cc)
    if first is not None and first not in frame.locals:
        return False
    return not (modes_switched(frame.tx) and any(map(enters_mode, frame.stack)))
