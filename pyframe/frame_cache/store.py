"""Keeps captures in the disk cache and finds them there."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from inductor.cache.file_store import shared_cache
from inductor.cache.process_key import operators_are_overridden
from inductor.log import stages
from inductor.log.stages import show

from .. import _C
from ..graph_retry import Undo, none_on_error
from ..metrics import counters
from . import record as records
from .context import is_plain_context
from .described import NotKept
from .key import frame_key
from .load import Bound, Differs
from .record import SUFFIX, FrameRecord, Texts


def load_graph(data: tuple[Any, ...]) -> Callable[..., Any] | None:
    from inductor import kept_graph  # deferred: most of what it imports is needed only if there is an entry

    return kept_graph.loaded(data)


def find(
    func: types.FunctionType, locals_: tuple[Any, ...], settings: tuple[Any, ...], owner: object
) -> tuple[_C.Entry, FrameRecord] | None:
    """The entry that an earlier process kept for this call; None if there is none, or if it depends on something that
    is different in this process."""
    if not is_plain_context():
        return None
    try:
        key = frame_key(func, locals_, settings)
    except NotKept:
        return None
    data = shared_cache().get(key, SUFFIX)
    record = None if data is None else records.load(data)
    if record is None or operators_are_overridden():
        return None
    try:
        entry = _entry(record, func, locals_, owner)
    except Differs as error:
        why = str(error)
        counters["frames_refused"] += 1
        show("cache", lambda: f"frame {func.__qualname__}: kept by an earlier process, but {why}")
        return None
    if entry is None or entry.guards.check(func, locals_, False)[0] >= 0:
        return None
    counters["frames_loaded"] += 1
    show("cache", lambda: f"frame {func.__qualname__}: loaded")
    return entry, record


def _entry(
    record: FrameRecord, func: types.FunctionType, locals_: tuple[Any, ...], owner: object
) -> _C.Entry | None:
    bound = Bound(record, func, locals_, _C.GlobalState.capture())
    with torch._C.DisableTorchFunctionSubclass():
        ops = bound.bind()
        bound.check_facts()
        code = bound.code()
    program = _C.GuardProgram(ops, record.registers, record.inputs)
    stages.count_in(counters)
    compiled = load_graph(record.graph)
    if compiled is None:
        return None
    if record.undo is not None:
        compiled = none_on_error(compiled, func.__qualname__, Undo(*record.undo))
    elif not getattr(compiled, "returns_tuple", False):
        compiled = _C.run_disabled(compiled)
    direct = _C.DirectCall(compiled, record.input_registers, record.output)
    return _C.Entry(owner, program, code, direct, Texts(record.texts, len(record.ops)))


def keep(
    func: types.FunctionType, locals_: tuple[Any, ...], settings: tuple[Any, ...], make: Callable[[], FrameRecord]
) -> str | None:
    """Store the record of a capture for a call; None, or the reason why it is not kept."""
    try:
        key = frame_key(func, locals_, settings)
        shared_cache().put(key, records.dump(make()), SUFFIX)
    except NotKept as why:
        reason = str(why)
        counters["frames_not_kept"][reason] += 1
        show("cache", lambda: f"frame {func.__qualname__}: not kept: {reason}")
        return reason
    counters["frames_kept"] += 1
    return None
