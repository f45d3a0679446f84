"""What an exported program returns and changes, read from a finished trace.

`ProgramOutput` takes the place of the builder of bytecode: there is no frame to replace. Each tensor and each number
that the program returns becomes an output of the graph, and the objects around them are built once, with a `Slot` in
the place of each output.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor.modes import SET_GRAD

from ..core.breaks import describe
from ..core.effects import Effect
from ..core.guard import UserLine
from ..emit.finished_trace import End, FinishedTrace, RootFrame
from ..emit.output import OutputBuilder, TraceResult
from ..emit.reconstruct import ValueEmitter
from ..emit.replay import distinct
from ..errors import Unsupported
from ..signature.structure import PLAIN_TYPES, SizeOf
from ..vars.containers.sequence import SizeVar
from ..vars.higher_order.tensor_hooks import follow_changes
from ..vars.numbers.symint import NumberVar
from ..vars.protocol.base import NotRebuildable, Var
from ..vars.torch_objects.nnmodule import NNModuleVar
from ..vars.torch_objects.tensor import TensorVar


class Slot:
    """The place of the graph's `index`-th output in the result of the program."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(f"export: the result is computed from a tensor outside of the graph, with {name!r}")


@dataclass
class Assignment:
    """The program assigned the graph's output `output` to the buffer `name` of `module`, which was `before`."""

    module: torch.nn.Module
    name: str
    before: torch.Tensor
    output: int
    line: UserLine | None


@dataclass
class ProgramResult(TraceResult):
    """`gms` holds the graph, which returns a tuple. `value`: the program's result, with Slots."""

    value: Any = None
    assignments: list[Assignment] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)  # effects that the exported program does not have


@dataclass(frozen=True)
class _Number:
    """A number among the outputs of the graph."""

    node: fx.Node


class ResultEmitter(ValueEmitter):
    """Emits the code that builds the result, in which outputs of the graph are Slots."""

    def load(self, var: Var) -> None:
        if isinstance(var, TensorVar) or isinstance(var, NumberVar) and not var.is_constant():
            self._load_output(var)
        elif isinstance(var, SizeVar) and id(var) not in self.temps:
            self.counts[id(var)] = self.counts.get(id(var), 0) + self.dry
            self.keep.append(var)
            self.load_const(SizeOf)
            self.call_top(lambda: self.sequence("BUILD_TUPLE", var.items))
        else:
            super().load(var)

    def real(self, asm: Any) -> ResultEmitter:
        other = ResultEmitter(asm, self.cells, self.function)
        other.wanted, other.counts, other.dry, other.keep = self.wanted, self.counts, False, self.keep
        return other

    def _load_output(self, var: Var) -> None:
        self.wanted.setdefault(id(var), var)
        self.load_const(Slot(list(self.wanted).index(id(var))))


class ProgramOutput(OutputBuilder):
    """Builds the `ProgramResult` of a trace. Raises Unsupported for side effects that a program cannot have."""

    def __init__(self, tx: FinishedTrace, root: RootFrame, end: End) -> None:
        super().__init__(tx, root, end)
        self.dropped: list[str] = []

    def build(self) -> ProgramResult:
        tx = self.tx
        follow_changes(tx.graph)
        if self.end.value is None:
            assert self.end.brk is not None
            raise Unsupported(describe(self.end.brk.kind, self.end.brk.detail, self.end.brk.stack))
        if tx.draws:
            raise Unsupported(
                "export: the program draws random numbers with Python's or numpy's generators, which an exported "
                "program cannot do. hint: draw them with torch, or pass them as arguments"
            )
        assigned = [(effect, var) for effect in distinct(tx.effects) if (var := self.assigned(effect)) is not None]
        dry = ResultEmitter(self.assembler(), self.cells, tx.func)
        try:
            dry.load(self.end.value)
        except NotRebuildable as error:
            raise Unsupported(f"export: the result cannot be built outside of the program: {error}") from error
        for _, var in assigned:
            dry.wanted.setdefault(id(var), var)
        if tx.graph.required is not None:
            tx.graph.effect(torch._assert, tx.graph.required, "for this data the program takes another path or raises")
        order = list(dry.wanted)
        outputs = [self.output(var) for var in dry.wanted.values()]
        gm = tx.graph.finish(outputs) or fx.GraphModule(torch.nn.Module(), _without_operations(tx.graph.graph))
        assignments = [
            Assignment(effect.target.value, effect.detail, _buffer(effect), order.index(id(var)), effect.line)
            for effect, var in assigned
        ]
        inputs = list(tx.graph.inputs.sources)
        code = self.code(dry)
        value = types.FunctionType(code, tx.func.__globals__, "result", None, tx.func.__closure__)(*tx.entry_locals)
        return ProgramResult(
            code, tx.guards, inputs, None, None, [], [gm], value=value, assignments=assignments, dropped=self.dropped
        )

    def code(self, dry: ResultEmitter) -> types.CodeType:
        """The code that builds the result from the arguments of the frame."""
        asm = self.assembler()
        dry.real(asm).load(self.end.value)  # type: ignore[arg-type]  # `build` has checked it
        asm.return_value()
        return asm.finish()

    def output(self, var: Var) -> Any:
        """What `GraphBuilder.finish` takes for an output."""
        if isinstance(var, TensorVar):
            return var
        return _Number(self.tx.graph.values.for_node(var))

    def assigned(self, effect: Effect) -> TensorVar | None:
        """The tensor that an effect assigned to a buffer; None if nothing is to be done for the effect."""
        if effect.kind == "CALL" and effect.detail[0] is not SET_GRAD:  # a warning, or what the user lets be deferred
            called = getattr(effect.detail[0], "func", effect.detail[0])  # of a functools.partial
            name = getattr(called, "__name__", type(called).__name__).lstrip("_")
            self.dropped.append(f"{name}()" + (f" at {effect.line}" if effect.line else ""))
            return None
        if effect.kind == "ATTR" and isinstance(effect.target, NNModuleVar):
            value = effect.target.written(effect.detail)
            before = _value_before(effect)
            if isinstance(value, TensorVar) and before is not None:
                if value.fake is self.example_of(before):
                    return None  # changed in place, which the graph does
                if effect.detail in effect.target.value._buffers:
                    return value
        if self.is_undone(effect):
            return None
        raise Unsupported(_refusal(effect))

    def is_undone(self, effect: Effect) -> bool:
        """Whether an attribute, a global variable or a container is in the end as it was before the frame."""
        target = effect.target
        if effect.kind in ("LIST", "DICT"):
            before, items = self.tx.existing(target), target.items
            if len(before) != len(items):
                return False
            if effect.kind == "LIST":
                return all(self.is_same(var, each) for var, each in zip(items, before, strict=True))
            return list(before) == list(items) and all(self.is_same(items[key], each) for key, each in before.items())
        if effect.kind == "GLOBAL":
            value, held = target.written[effect.detail], target.value
        elif effect.kind == "ATTR":
            value, held = target.written(effect.detail), getattr(getattr(target, "value", None), "__dict__", None)
        else:
            return False
        if not isinstance(held, dict) or effect.detail not in held or value is None:
            return False
        return self.is_same(value, held[effect.detail])

    def is_same(self, var: Var, before: Any) -> bool:
        """Whether a Var represents an object that existed before the frame, or an equal constant."""
        if var.is_constant():
            after = var.constant()
            return after is before or type(after) is type(before) and type(after) in PLAIN_TYPES and after == before
        return var is self.tx.traced(before)

    def example_of(self, tensor: torch.Tensor) -> Any:
        """The fake tensor of an input of the graph; None if the tensor is no input."""
        inputs = self.tx.graph.inputs
        for source, example in zip(inputs.sources, inputs.examples, strict=True):
            if inputs.originals.get(source) is tensor:
                return example
        return None


def _without_operations(traced: fx.Graph) -> fx.Graph:
    """A graph with the inputs of this one, which has no operations and no output, that returns nothing."""
    graph = fx.Graph()
    for node in traced.find_nodes(op="placeholder"):
        graph.node_copy(node)
    graph.output(())
    return graph


def _value_before(effect: Effect) -> torch.Tensor | None:
    module = effect.target.value
    found = getattr(module, effect.detail, None) if isinstance(module, torch.nn.Module) else None
    return found if isinstance(found, torch.Tensor) else None


def _buffer(effect: Effect) -> torch.Tensor:
    found: torch.Tensor = effect.target.value._buffers[effect.detail]
    return found


_DOES = {
    "LIST": "changes a list that existed before the call",
    "DICT": "changes a dict that existed before the call",
    "SET": "changes a set that existed before the call",
    "DEQUE": "changes a deque that existed before the call",
    "GLOBAL": "assigns the global variable {}",
    "CELL": "assigns a variable of an enclosing function",
    "HANDLED": "leaves an exception handled",
}


def _refusal(effect: Effect) -> str:
    """Why a program with this effect is not exported."""
    source = getattr(effect.target, "source", None)
    where = "" if source is None or effect.kind in ("GLOBAL", "CELL") else f" ({source.name})"
    if effect.kind == "ATTR":
        does, where = f"assigns the attribute {effect.detail!r} of an object that existed before the call{where}", ""
    elif effect.kind == "CALL":
        does, where = f"calls {getattr(effect.detail[0], '__name__', effect.detail[0])!r} for its side effect", ""
    else:
        does = _DOES[effect.kind].format(effect.detail)
    at = f"\n  at {effect.line}" if effect.line else ""
    return (
        f"export: the program {does}{where}, which an exported program cannot do{at}\n"
        "  hint: return the new value, or keep a tensor that changes in a buffer (nn.Module.register_buffer)\n"
        "  hint: if only the first call does it, to fill a cache, call the module once before it is exported"
    )
