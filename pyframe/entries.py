"""Assembles the cache entry of a finished trace: the guards that a trace needs as a whole (its classes, the global
state, inputs that must be distinct), their guard program, the new code, and what explains a guard that fails later."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from inductor.log.stages import is_shown, show

from . import _C
from .core import guard_explain, guard_program
from .core.guard import Guard, TensorMeta
from .core.source import ConstSource
from .emit.output import TraceResult
from .interp.trace import Trace
from .report.logs import disassembly
from .vars.protocol.class_reads import class_reads, with_reads_of_bases
from .vars.torch_objects import tensor_class


def make_entry(
    result: TraceResult, trace: Trace, state: _C.GlobalState, owner: object
) -> tuple[_C.Entry, guard_program.LoweredGuards]:
    """The entry of a finished trace, and its guard program as data. `state`: the global state when the trace began;
    `owner`: what tells the entries of one compiler from those of others."""
    for guard in trace.graph.numbers.relations():
        trace.guards.add(guard)
    _guard_classes(trace, result.compiled is not None)
    trace.guards.add(Guard(None, "GLOBAL_STATE", state, None))
    tensors = [g.source for g in trace.guards if g.kind == "TENSOR"]
    if len(tensors) > 1 and _may_alias(trace.guards):
        trace.guards.add(Guard(None, "DISTINCT", tuple(tensors), None))
    lowered = guard_program.lower(list(trace.guards), result.graph_inputs)
    if is_shown("guards"):
        for guard in trace.guards:
            show("guards", guard)
    show("bytecode", disassembly, result.code)
    explanations = [GuardExplanation(guard) for guard in trace.guards]
    described = ["a graph input" if i is None else explanations[i] for i in lowered.guard_of_op]
    direct = None
    if result.compiled is not None:
        registers = tuple(lowered.registers[s] for s in result.graph_inputs)
        direct = _C.DirectCall(result.compiled, registers, result.output)
    return _C.Entry(owner, lowered.program, result.code, direct, described), lowered


def _guard_classes(trace: Trace, with_graph: bool) -> None:
    """Add guards for the class attributes that a trace looked up. torch.Tensor and Parameter get one guard for the
    whole class."""
    tensors = {guard.payload.type for guard in trace.guards if guard.kind == "TENSOR"}
    if with_graph or torch.Tensor in trace.class_reads:
        tensors.add(torch.Tensor)
    whole = [cls for cls in tensor_class.CLASSES if cls in tensors]
    for cls in whole:
        writes = [trace.class_writes[base].attrs for base in cls.__mro__ if base in trace.class_writes]
        reads = tensor_class.all_reads(cls, [name for attrs in writes for name in attrs])
        trace.guards.add(Guard(ConstSource.of(cls, cls.__name__), "CLASS_FINDS", reads, None))
    for cls, found in with_reads_of_bases(trace.class_reads, trace.placeholder_objects).items():
        if cls in whole:
            found = {name: raw for name, raw in found.items() if not tensor_class.covers(cls, name)}
        if id(cls) not in trace.placeholder_objects and (found or cls not in whole):
            source = ConstSource.of(cls, cls.__name__)
            trace.guards.add(Guard(source, "CLASS_FINDS", class_reads(trace, cls, found), None))


def _may_alias(guards: Any) -> bool:
    """Whether two inputs may be the same object. Identity checks are cheap, so this is true whenever there is a tensor
    guard."""
    return any(isinstance(g.payload, TensorMeta) for g in guards)


class GuardExplanation:
    """Explains why a guard failed: a function of the call that returns text. Keeps no object of the user alive that the
    guard itself would not."""

    def __init__(self, guard: Guard) -> None:
        self.expected = _weakly(guard.payload) if guard.kind in ("ID", "NOT_ID", "TYPE") else None
        if guard.kind == "PREDICATE":  # its description suffices
            guard = Guard(guard.source, guard.kind, (None, *guard.payload[1:]), guard.line)
        elif self.expected is not None:
            guard = Guard(guard.source, guard.kind, None, guard.line)
        self.guard = guard

    def __call__(self, func: types.FunctionType, locals_: tuple[Any, ...]) -> str:
        guard = self.guard
        if self.expected is not None:
            guard = dataclasses.replace(guard, payload=self.expected())
        return guard_explain.explain(guard, func, locals_)


def _weakly(value: Any) -> Callable[[], Any]:
    """A function that returns `value`, or GONE once it has been freed."""
    try:
        ref = weakref.ref(value)
    except TypeError:
        return lambda: value
    return lambda: guard_explain.GONE if ref() is None else ref()
