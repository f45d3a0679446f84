"""What the driver keeps of a capture, and the check that a kept capture is the one that tracing would make."""

from __future__ import annotations

import dataclasses
import functools
import marshal
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from inductor.cache.graph_data import NotData
from inductor.dynamic.dispatch import is_symbolic
from inductor.kept_graph import kept, kept_nodes

from ..core.guard_program import LoweredGuards
from ..core.source import DictItemSource, LocalSource, SeqItemSource, Source
from ..errors import InternalError
from .described import NotKept
from .load import OPERANDS
from .record import ENTRY, NODES, NONE, ORIGINAL, SIZED, WHOLE, FrameRecord
from .save import Finished, make_record

if TYPE_CHECKING:
    from ..emit.output import TraceResult
    from ..interp.trace import Trace


def record_of(
    func: types.FunctionType, locals_: tuple[Any, ...], result: TraceResult, trace: Trace, lowered: LoweredGuards,
    counted: Sequence[bool], eager: bool,
) -> FrameRecord:
    """A finished capture as data. NotKept, which says why, if another process could not use it. `counted`: for each of
    its graph breaks whether the counters count it; `eager`: there is nothing to compile."""
    _refuse(result, trace)
    graph = _graph_data(result, trace)
    registers = tuple(lowered.registers[source] for source in result.graph_inputs)
    undo = None if result.undo is None else dataclasses.astuple(result.undo)
    finished = Finished(
        func, locals_, list(result.guards), lowered, registers, result.code, result.output, graph, undo,
        _varied(trace.graph.history.varied), _breaks(func, result, counted), eager,
    )
    return make_record(finished, trace.reliances)


def _breaks(
    func: types.FunctionType, result: TraceResult, counted: Sequence[bool]
) -> tuple[tuple[str, str, str, bool], ...]:
    lines = (str(each.stack[-1]) if each.stack else func.__qualname__ for each in result.breaks)
    return tuple(
        (each.kind, line, each.detail, count) for each, line, count in zip(result.breaks, lines, counted, strict=True)
    )


def _varied(found: Iterable[tuple[Source, int | None]]) -> tuple[Any, ...]:
    """What `FrameRecord.varied` holds of the sizes and numbers that vary: those of arguments and of what is in them."""
    paths = ((_path(source), dim) for source, dim in found)
    return tuple(sorted(((path, dim) for path, dim in paths if path is not None), key=repr))


def _path(source: Source) -> tuple[Any, ...] | None:
    steps: list[Any] = []
    while isinstance(source, SeqItemSource | DictItemSource):
        step = source.index if isinstance(source, SeqItemSource) else source.key
        if type(step) not in (int, str):
            return None
        steps.append(step)
        source = source.parent
    return (source.index, *reversed(steps)) if isinstance(source, LocalSource) else None


def _graph_data(result: TraceResult, trace: Trace) -> tuple[Any, ...]:
    """What `FrameRecord.graph` holds of a compiled graph."""
    if result.compiled is None:
        return (NONE,)
    (gm,) = result.gms
    report = gm.meta.get("compile_report")
    if report is not None and report.fallback is not None:
        raise NotKept("a graph that runs with ATen")
    inputs = [trace.graph.inputs.originals.get(source) for source in trace.graph.inputs.sources]
    examples = trace.graph.inputs.examples_before_run(trace.graph.fake_mode)
    try:
        if report is None:  # `driver` did not have it compiled
            return (WHOLE, *kept_nodes(gm, inputs))
        if is_symbolic(examples):
            from inductor.kept_sizes import sized  # deferred: imports sympy, which symbolic sizes have imported

            return (SIZED, *sized(gm, examples))
        return (ENTRY, *kept(report.entry, inputs)) if report.entry is not None else (NODES, *kept_nodes(gm, inputs))
    except NotData as why:
        raise NotKept(str(why)) from why


def _refuse(result: TraceResult, trace: Trace) -> None:
    """NotKept for captures whose code or conditions another process could not build."""
    if trace.library_forwards:
        raise NotKept("a graph break in a module of torch, parts of which are captured on their own")
    if trace.draws or trace.rng_branches:
        raise NotKept("random numbers drawn in Python")
    if trace.overrides.modes_at_entry or trace.graph.inputs.takes_subclasses():
        raise NotKept("__torch_function__ of a mode or a subclass")
    if trace.placeholder_objects:
        raise NotKept("a class or function that the frame creates")


def compare(kept_before: FrameRecord, now: FrameRecord) -> None:
    """InternalError if a capture that was kept differs from the one that tracing makes now. Captures in which other
    sizes vary may serve the same call, and are not compared."""
    if (kept_before.graph[0] == SIZED, kept_before.varied) != (now.graph[0] == SIZED, now.varied):
        return
    for name in ("registers", "inputs", "input_registers", "output", "undo", "facts", "function", "eager"):
        if getattr(kept_before, name) != getattr(now, name):
            raise InternalError(f"frame cache: {name} of {now.function}: kept {getattr(kept_before, name)!r}, traced "
                                f"{getattr(now, name)!r}")  # fmt: skip
    ops = functools.partial(map, repr)
    before, after = list(ops(_named(kept_before))), list(ops(_named(now)))
    for a, b in zip(before, after, strict=False):
        if a != b:
            raise InternalError(f"frame cache: a guard of {now.function}: kept {a:.500}, traced {b:.500}")
    if len(before) != len(after):
        raise InternalError(f"frame cache: {now.function} was kept with {len(before)} guards and has {len(after)}")
    if _graph(kept_before) != _graph(now):
        raise InternalError(f"frame cache: {now.function} was kept with another graph")
    if _code(kept_before) != _code(now):
        raise InternalError(f"frame cache: {now.function} was kept with other code: {_code(kept_before)} {_code(now)}")


def _graph(record: FrameRecord) -> Any:
    """The nodes of the graph, and its key if it has one; equal nodes may have different bytes."""
    kind, *parts = record.graph
    shown = (parts[0], parts[2]) if kind == SIZED else parts[:2]  # not the sizes of the first call
    return kind, [marshal.loads(part) if isinstance(part, bytes) else part for part in shown]


def _named(record: FrameRecord) -> list[Any]:
    """The operations, with descriptions in place of numbers of objects."""
    found = []
    for name, *given in record.ops:
        letters = OPERANDS[name][1]
        if name == "CLASS_FINDS":
            classes = [record.objects[each] for each in (given[1], *given[2])]
            found.append((name, given[0], classes, _entries(record, given[3])))
        elif name == "PREDICATE" and type(given[0]) is tuple:
            *asked, answer = given[0]
            found.append((name, [record.objects[each] for each in asked], answer, given[1]))
        elif name in ("TENSOR", "GLOBAL_STATE", "RELATION"):
            found.append((name, *given))
        else:
            pairs = zip(letters, given, strict=True)
            found.append((name, *(record.objects[each] if letter == "o" else each for letter, each in pairs)))
    return found


def _entries(record: FrameRecord, entries: Any) -> Any:
    if len(entries) == 2:
        return entries
    return [record.objects[each] if at % 3 == 2 and entries[at - 1] else each for at, each in enumerate(entries)]


def _code(record: FrameRecord) -> Any:
    code, consts = record.code
    objects = [record.objects[each] if type(each) is int and each != ORIGINAL else each for each in consts]
    made = [_made(record, each) if type(each) is tuple and each and each[0] in _MADE else each for each in objects]
    return marshal.loads(code), [marshal.loads(each) if isinstance(each, bytes) else each for each in made]


_MADE = ("resume", "raise")


def _made(record: FrameRecord, const: Any) -> Any:
    """What a resume function is made for, with a description in place of the number of an object, and without what is
    known of it, which later captures add to."""
    kind, ((place, where), *key), *_ = const
    return kind, place, record.objects[where] if type(where) is int else where, key
