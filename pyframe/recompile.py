"""Decides about a call that no entry fits: whether it is captured again, runs eagerly or is an error, and which values
the next capture must not treat as constants."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from inductor.log.stages import show
from inductor.log.warnings import warn

from . import _C, config, stance
from .core import guard_explain, weak_codes
from .core.source import Source
from .core.weak_codes import WeakCodes
from .emit.function_names import place
from .emit.resume import continuation
from .entries import GuardExplanation
from .errors import RecompileError, RecompileLimitExceeded
from .metrics import counters
from .options import Options
from .vars.torch_objects import loop_varying

_OF_VALUES = ("EQUALS", "LEN", "DICT_KEYS")  # kinds of guards that specialize on a value


class RecompilePolicy:
    """The decisions of one compiler. `owner`: what its entries have as owner; `always`: the compiled functions
    themselves, as opposed to the functions that they call."""

    def __init__(self, owner: object, options: Options, always: set[types.CodeType]) -> None:
        self.owner, self.options, self.always = owner, options, always
        self.warns = True  # when a function reaches the recompile limit
        self.called: WeakCodes = {}  # compiled functions called once under a stance that has a rule for first calls
        self.called_again: WeakCodes = {}
        self.first_codes: WeakCodes = {}  # code that was generated for first calls only
        self.limited: WeakCodes = {}  # code objects that reached the recompile limit
        self.skipped: weakref.WeakKeyDictionary[types.CodeType, int] = weakref.WeakKeyDictionary()  # captures skipped

    def runs_eagerly(self, code: types.CodeType, state: _C.CodeState) -> bool:
        """Whether to run this call eagerly because the function, or one of its callers, reached the recompile limit.
        Capturing the callees of such a caller would take as many captures again, so they use only their existing ones.
        """
        if not self.limited or self._misses_are_errors():
            return False
        if id(code) in self.limited and len(state.entries) >= self.options.recompile_limit:
            return sum(entry.owner is self.owner for entry in state.entries) >= self.options.recompile_limit
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and id(frame.f_code) not in self.limited:
            frame = frame.f_back
        return frame is not None

    def _misses_are_errors(self) -> bool:
        """Whether a call that fits no capture, or reaching the recompile limit, may raise."""
        return (
            self.options.fullgraph
            or config.error_on_recompile
            or config.fail_on_recompile_limit_hit
            or stance.current() == "fail_on_recompile"
        )

    def allows(self, func: types.FunctionType, locals_: tuple[Any, ...], entries: list[_C.Entry]) -> bool:
        """Whether the stance permits capturing this call. With `fullgraph`, only the compiled functions themselves are
        captured: other frames run only after an exception has left the graph."""
        if self.options.fullgraph and func.__code__ not in self.always:
            return False
        now = stance.current()
        if now == "fail_on_recompile" or (entries and config.error_on_recompile):
            why = _why_missed(func, locals_, entries[0]) if entries else "it has not been captured yet"
            by = "config.error_on_recompile" if now == "default" else f"the stance {now!r}"
            raise RecompileError(
                f"{place(func)} would have to be captured, which {by} forbids: {why}. "
                f"Make the call like one that was captured, or make it once before captures are forbidden."
            )
        return now not in ("force_eager", "eager_on_recompile")

    def is_first_call(self, code: types.CodeType) -> bool:
        """Under the stances that have a rule for first calls: whether this is the first call of a compiled function, or
        a call that such a first call makes."""
        if stance.current() not in ("eager_then_compile", "aot_eager_then_compile"):
            return False
        if code in self.always:
            first = id(code) not in self.called
            weak_codes.add(self.called if first else self.called_again, code)
            return first
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and id(frame.f_code) not in self.first_codes and frame.f_code not in self.always:
            frame = frame.f_back
        if frame is None or id(frame.f_code) in self.first_codes:
            return frame is not None
        return id(frame.f_code) in self.called and id(frame.f_code) not in self.called_again

    def may_recompile(self, func: types.FunctionType, locals_: tuple[Any, ...], entries: list[_C.Entry]) -> bool:
        """Whether to capture again a call that fits none of `entries`, of which there is at least one. At the recompile
        limit a warning is given once, or RecompileLimitExceeded is raised."""
        with torch._C.DisableTorchFunction():
            reason = _why_missed(func, locals_, entries[0])
            show("recompiles", _all_reasons, func, locals_, entries)
        if self.skipped.get(func.__code__, 0) >= self.options.recompile_limit and not self.options.fullgraph:
            return False
        if len(entries) < self.options.recompile_limit:
            counters["recompiles"] += 1
            _generalize(func, locals_, entries, self.options.recompile_limit // 2)
            return True
        if self.options.fullgraph or config.fail_on_recompile_limit_hit:
            raise RecompileLimitExceeded(
                f"{place(func)} reached the recompile limit ({self.options.recompile_limit}). The guard that "
                f"failed last: {reason}. Pass the changing value as a tensor, or raise pyframe.config.recompile_limit."
            )
        code = func.__code__
        known = id(code) in self.limited
        weak_codes.add(self.limited, code)
        if self.warns and not known:
            warn(
                f"pyframe: {place(func)} reached the recompile limit ({self.options.recompile_limit}); "
                f"calls whose guards match none of its captures run eagerly. "
                f"The guard that failed last: {reason}. Pass the changing value as a tensor, "
                f"or raise pyframe.config.recompile_limit."
            )
        return False


def _all_reasons(func: types.FunctionType, locals_: tuple[Any, ...], entries: list[_C.Entry]) -> str:
    """Why no entry serves a call: the reason for the entry used last, then a line for each different reason of others,
    of which any may have been meant to serve it."""
    first, *others = dict.fromkeys(_why_missed(func, locals_, entry) for entry in entries)
    return "\n".join([f"{place(func)}: {first}", *(f"    another capture: {reason}" for reason in others)])


def _why_missed(func: types.FunctionType, locals_: tuple[Any, ...], entry: _C.Entry) -> str:
    """Which guard of an entry failed in its last check, and why."""
    described: list[str | Callable[..., str]] | None = entry.tag
    index = entry.last_failed
    if described is None or not 0 <= index < len(described):
        return "unknown guard"
    why = described[index]
    return why if isinstance(why, str) else why(func, locals_)


def _generalize(func: types.FunctionType, locals_: tuple[Any, ...], entries: list[_C.Entry], limit: int) -> None:
    """For code that runs once per loop iteration: values that changed since the last capture are not constants in
    the next one, and those that `limit` captures had as symbols are none."""
    known = continuation(func.__code__)
    if known is None or not known.loops:
        return
    changed: dict[Source, None] = {}
    for described in entries[0].tag:
        guard = described.guard if isinstance(described, GuardExplanation) else None
        if guard is None or guard.source is None or type(guard.payload) is bool:
            continue
        symbol = known.is_symbol(guard.source)
        if guard.kind not in _OF_VALUES and not (symbol and guard.kind == "RELATION"):
            continue
        if symbol and guard.kind == "EQUALS" and guard.payload in (0, 1):  # these have captures of their own
            continue
        if guard_explain.evaluate([guard], func, locals_) is not None:
            changed[guard.source] = None
    for source in changed:
        there, owner = _owner(source, guard_explain.CallContext(func, locals_))
        if there:
            known.generalize(source, (*loop_varying.VALUES, *loop_varying.CONTAINERS), owner, limit)


def _owner(source: Source, context: guard_explain.CallContext) -> tuple[bool, weakref.ref[Any] | None]:
    """Whether `source` exists in this call, and the object that the value is read from, through its dict or containers
    of it; None for a variable."""
    holder = source.base
    try:
        guard_explain.read(source, context)
        while holder is not None:
            obj = guard_explain.read(holder, context)
            if type(obj).__weakrefoffset__:
                return True, weakref.ref(obj)
            holder = holder.base
    except Exception:  # noqa: BLE001  the program's code runs here; what it raises is raised when the frame runs
        return False, None
    return True, None
