"""Keeps captures in the disk cache and finds them there."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor.cache.file_store import shared_cache
from inductor.cache.process_key import operators_are_overridden
from inductor.errors import CompileError
from inductor.log import stages
from inductor.log.stages import show
from inductor.process.thread_state import restored_on_error

from .. import _C
from ..graph_retry import Undo, none_on_error
from ..metrics import counters
from . import record as records
from .context import is_plain_context
from .described import NotKept
from .key import frame_key
from .load import Bound, Differs
from .record import ENTRY, SUFFIX, FrameRecord, Texts

Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def load_graph(data: tuple[Any, ...], inputs: Sequence[Any], backend: Callable[[], Backend]) -> Any:
    """The callable of a graph. One that is an entry of the graph cache is made of that; None if it is gone. Another one
    is compiled for these inputs by what `backend` returns."""
    from inductor import kept_graph  # deferred: most of what it imports is needed only if there is an entry

    kind, *parts = data
    if kind == ENTRY:
        return kept_graph.loaded(tuple(parts))
    gm = kept_graph.rebuilt(tuple(parts))
    with torch._C._EnableTorchFunction():  # type: ignore[attr-defined, unused-ignore]  # not in torch's stubs
        try:
            return restored_on_error(lambda: backend()(gm, inputs))
        except CompileError:  # with the option `strict`: a miss, so that the traced frame raises it where it belongs
            return None


def find(
    func: types.FunctionType, locals_: tuple[Any, ...], settings: tuple[Any, ...], owner: object,
    backend: Callable[[], Backend],
) -> tuple[_C.Entry, FrameRecord] | None:
    """The entry that an earlier process kept for this call; None if there is none, or if it depends on something that
    is different in this process. `backend` returns what compiles graphs that were kept as nodes."""
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
        entry = _entry(record, func, locals_, owner, backend)
    except Differs as error:
        why = str(error)
        counters["frames_refused"] += 1
        show("cache", lambda: f"frame {func.__qualname__}: kept by an earlier process, but {why}")
        return None
    if entry is None:
        return None
    counters["frames_loaded"] += 1
    counters["graphs"] += 1  # each kept capture has one
    show("cache", lambda: f"frame {func.__qualname__}: loaded")
    return entry, record


def _entry(
    record: FrameRecord, func: types.FunctionType, locals_: tuple[Any, ...], owner: object,
    backend: Callable[[], Backend],
) -> _C.Entry | None:
    bound = Bound(record, func, locals_, _C.GlobalState.capture())
    with torch._C.DisableTorchFunctionSubclass():
        ops = bound.bind()
        bound.check_facts()
        code = bound.code()
    program = _C.GuardProgram(ops, record.registers, record.inputs)
    if program.check(func, locals_, False)[0] >= 0:
        return None
    stages.count_in(counters)
    compiled = load_graph(record.graph, [bound.values[each] for each in record.input_registers], backend)
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
