"""Keeps captures in the disk cache and finds them there."""

from __future__ import annotations

import hashlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from inductor.cache.file_store import content_key, shared_cache
from inductor.cache.process_key import operators_are_overridden
from inductor.errors import CompileError
from inductor.log import stages
from inductor.log.stages import show
from inductor.process.thread_state import restored_on_error

from .. import _C, config
from ..core import break_errors
from ..graph_retry import Undo, none_on_error
from ..metrics import counters
from . import record as records
from .context import is_plain_context
from .described import NotKept
from .key import FrameKeys, frame_keys
from .load import Bound, Differs
from .record import ENTRY, NONE, SIZED, SUFFIX, WHOLE, FrameRecord, Texts

_VARIANTS = 8  # captures under one key
Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def load_graph(data: tuple[Any, ...], inputs: Sequence[Any], backend: Callable[[], Backend]) -> Any:
    """The callable of a graph. One that is an entry of the graph cache is made of that; None if it is gone. Another one
    is compiled for these inputs by what `backend` returns. None, too, if it was kept on other GPUs."""
    from inductor import kept_graph  # deferred: most of what it imports is needed only if there is an entry

    kind, *parts = data
    if kind == ENTRY:
        return kept_graph.loaded(tuple(parts))
    if kind == SIZED:
        from inductor import kept_sizes  # deferred: imports sympy

        with_inputs = kept_sizes.rebuilt(tuple(parts))
        if with_inputs is None:
            return None
        gm, inputs = with_inputs
    else:
        nodes = kept_graph.rebuilt(tuple(parts))
        if nodes is None or kind == WHOLE:
            return nodes and nodes.forward
        gm = nodes
    with torch._C._EnableTorchFunction():  # type: ignore[attr-defined, unused-ignore]  # not in torch's stubs
        try:
            return restored_on_error(lambda: backend()(gm, inputs))
        except CompileError:  # with the option `strict`: a miss, so that the traced frame raises it where it belongs
            return None


class Calls:
    """The calls for which a compiler has captures, by their keys."""

    def __init__(self) -> None:
        self._of: dict[int, list[FrameKeys]] = {}

    def add(self, code: types.CodeType, keys: FrameKeys) -> None:
        """Note that there is a capture for a call of this code."""
        if id(code) not in self._of:
            weakref.finalize(code, self._of.pop, id(code), None).atexit = False
        self._of.setdefault(id(code), []).append(keys)

    def wanted(self, code: types.CodeType, keys: FrameKeys) -> tuple[str, ...]:
        """The keys of captures that may serve a call which fits no capture yet, the best one first. A call that differs
        from earlier ones in its sizes and numbers needs a capture in which they vary, as tracing would make."""
        earlier = self._of.get(id(code), [])
        if not _C.entries(code):  # what there was has been discarded
            earlier.clear()
        alike = [each for each in earlier if each.sized == keys.sized]
        if alike and all(each.exact != keys.exact for each in alike):
            return (keys.sized,)
        return (keys.sized, keys.exact) if earlier else (keys.exact, keys.sized, keys.coarse)


def keys_of(func: types.FunctionType, locals_: tuple[Any, ...], settings: tuple[Any, ...]) -> FrameKeys | None:
    """The keys of a call; None if its captures are not kept."""
    try:
        return frame_keys(func, locals_, settings)
    except NotKept:
        return None


def find(
    func: types.FunctionType, locals_: tuple[Any, ...], settings: tuple[Any, ...], owner: object,
    backend: Callable[[], Backend], calls: Calls, keys: FrameKeys | None = None,
) -> tuple[_C.Entry, FrameRecord] | None:
    """The entry that an earlier process kept for this call; None if there is none, or if it depends on something that
    is different in this process. `backend` returns what compiles graphs that were kept as nodes. `calls`: those for
    which the compiler has captures, among which this one will be. `keys`: those of the call, if they are known."""
    if not is_plain_context() or break_errors.is_error():  # where breaks are errors, tracing finds them
        return None
    keys = keys or keys_of(func, locals_, settings)
    if keys is None:
        return None
    for key in calls.wanted(func.__code__, keys):
        for record in list(_variants(key)):
            if record is None or operators_are_overridden():
                continue
            try:
                entry = _entry(record, func, locals_, owner, backend)
            except Differs as error:
                why = str(error)
                counters["frames_refused"] += 1
                show("cache", lambda why=why: f"frame {func.__qualname__}: kept by an earlier process, but {why}")
                continue
            if entry is not None:
                calls.add(func.__code__, keys)
                _announce(func, record)
                return entry, record
    return None


def _announce(func: types.FunctionType, record: FrameRecord) -> None:
    """Count and log a capture that is loaded, as tracing would."""
    show("cache", lambda: f"frame {func.__qualname__}: loaded")
    counters["frames_loaded"] += not record.eager
    if config.frame_cache == "check":  # it is traced, too
        return
    counters["graphs"] += record.graph[0] not in (NONE, WHOLE)
    for kind, line, detail, counted in record.breaks:
        counters["graph_breaks"][kind] += counted
        show("breaks", f"{kind} at {line}: {detail}")
        if config.verbose:
            print(f"pyframe: graph break in {func.__qualname__}: {detail}, at {line}", file=sys.stderr)


def _variants(key: str) -> Iterator[FrameRecord | None]:
    """The captures under a key, which differ in what only guards test; None for a file that holds something else."""
    for number in range(_VARIANTS):
        data = shared_cache().get(content_key(key, str(number)), SUFFIX)
        if data is None:
            return
        yield records.load(data)


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
    direct = None
    if record.graph[0] != NONE:
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
    func: types.FunctionType, locals_: tuple[Any, ...], settings: tuple[Any, ...], make: Callable[[], FrameRecord],
    calls: Calls, again: bool, keys: FrameKeys | None = None,
) -> str | None:
    """Store the record of a capture for a call; None, or the reason why it is not kept. `again`: the function had other
    captures before, which may be why something varies in this one. `keys`: those that the call had before it was
    traced, which another process looks for; compiling may begin to use a GPU, for instance."""
    try:
        keys = keys or frame_keys(func, locals_, settings)
        calls.add(func.__code__, keys)
        record = make()
        data = records.dump(record)
        varies = again or record.graph[0] == SIZED
        key = keys.coarse if record.eager else keys.sized if varies else keys.exact
        shared_cache().put(_place(key, record, data), data, SUFFIX)
    except NotKept as why:
        reason = str(why)
        counters["frames_not_kept"][reason] += 1
        show("cache", lambda: f"frame {func.__qualname__}: not kept: {reason}")
        return reason
    counters["frames_kept"] += not record.eager
    return None


def _place(key: str, record: FrameRecord, data: bytes) -> str:
    """The key of the file for a record: that of a capture with the same guards, else the first one that is free, else
    one of them, whose capture is lost."""
    guards = record.objects, record.ops
    found = [None if each is None else (each.objects, each.ops) for each in _variants(key)]
    place = next((n for n, each in enumerate(found) if each is None or each == guards), len(found))
    if place == _VARIANTS:
        place = hashlib.sha256(data).digest()[0] % _VARIANTS
    return content_key(key, str(place))
