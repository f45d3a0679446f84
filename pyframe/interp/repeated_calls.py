"""Traces calls of equal modules once, such as the layers of a network.

A trace is right for all objects that satisfy its guards. So a call of a second module need not be traced if it gets
arguments with the metadata of those of a traced call, and if all guards on the module of that call hold for the second
module, too: its operators are added to the graph again, on the other module's tensors, and its guards are added for the
other module. The operators run on fake tensors as always; only bytecode is not interpreted again.

A call is repeated only where that is certain: neither call may change objects that existed before it, and whatever else
a trace depends on (modes, handlers of exceptions, what the program has changed) has to be the same. `RepeatedCalls`
compares this; a module with another attribute that the traced call read fails a guard.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from inductor.autocast import autocast_state

from ..core.effects import Effect
from ..core.source import Source
from ..emit.graph import Operation
from ..vars.containers.mapping import DictVar
from ..vars.containers.sequence import ListVar, SizeVar, SliceVar, TupleVar
from ..vars.objects.functions import CellVar
from ..vars.objects.instances import InstanceVar
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.torch_objects.nnmodule import NNModuleVar
from ..vars.torch_objects.tensor import TensorVar
from .entry_values import EntryValues
from .replayed_call import Items, NotRepeatable, OfModule, Replay, TracedCall, is_in, sources_of, tensor_sources

if TYPE_CHECKING:
    from .trace import Trace

enabled = True  # for tests and for debugging
replayed_calls = 0  # in this process
UNKNOWN = Var()
LEAST = 300  # instructions of a call; to compare modules takes longer than to trace a shorter one
FAILURES = 3  # a traced call that so many others did not equal is not compared with further ones
_PLAIN = (type(None), bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_FIXED = frozenset({*_PLAIN, float, torch.Size, TensorVar, ConstVar})  # types of arguments that do not change
_TARGETS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class _Begun:
    """A call that is being traced, and how many operations, nodes, inputs, unfinished generators and instructions
    (`work`: of all frames; `steps`: of inlined ones) there were before it. `counts`: what it must not change."""

    key: Any
    module: NNModuleVar
    given: tuple[Var, ...]
    counts: Any
    operations: int
    nodes: int
    inputs: int
    work: int
    steps: int
    generators: int


class RepeatedCalls:
    """The calls of modules in one trace. `replayed`: Vars of objects in modules whose calls were traced, each with the
    source of its counterpart in a module whose call was not."""

    def __init__(self, trace: Trace) -> None:
        self._trace: Trace = trace
        self._calls: dict[Any, list[TracedCall]] = {}
        self._operations: list[Operation] = []
        self._siblings: dict[Source, bool] = {}
        self._depth = 0
        self._kept: dict[int, Var] = {}  # objects that are compared by their id
        self._unknown = 0  # operations that cannot be added again
        self._values = EntryValues(trace.func, trace.entry_locals)
        self.replayed: list[tuple[Var, Source]] = []

    def read(self, source: Source) -> Any:
        """The value of a source when the frame began; exceptions of the reads propagate."""
        return self._values.read(source)

    def begin(self, module: NNModuleVar, args: Sequence[Var], kwargs: Mapping[str, Var]) -> tuple[Var | None, Any]:
        """As `Tracer.begin_module_call`."""
        given = (*args, *kwargs.values())
        key = self._key(module, given, tuple(kwargs))
        if key is None:
            return None, None
        for call in self._calls.get(key, ()):
            if call.failures < FAILURES:
                try:
                    replay = Replay(self._trace, self._values, call, self._of_module(call), module, given)
                except NotRepeatable:
                    call.failures += 1
                    continue
                return self._made(replay), None
        tx, graph = self._trace, self._trace.graph
        if not self._depth:
            graph.note_operation = self._note
        self._depth += 1
        return None, _Begun(
            key, module, given, self._counts(), len(self._operations), _count(graph.graph), len(graph.inputs.sources),
            tx.budget.spent, tx.inner_steps, tx.generators.count_unfinished,
        )  # fmt: skip

    def _made(self, replay: Replay) -> Var:
        global replayed_calls
        result = replay.make()
        self.replayed += replay.objects
        replayed_calls += 1
        return result

    def _key(self, module: NNModuleVar, given: Sequence[Var], names: tuple[str, ...]) -> Any:
        """Equal for calls of one class of modules with arguments of the same metadata, in the same state of the trace
        and the thread. None for calls that are not repeated: of modules without others in them, whose calls take no
        longer to trace, with other arguments than tensors and constants, or after changes."""
        value = module.value
        if not enabled or module.source is None or not isinstance(value, nn.Module) or not vars(value).get("_modules"):
            return None
        if not self._has_siblings(module.source, value) or self._has_changes():
            return None
        try:
            return module.cls, names, tuple(map(self._described, given)), _identities(given), self._state()
        except NotRepeatable:
            return None

    def _has_siblings(self, source: Source, module: nn.Module) -> bool:
        """Whether a module, or one that it is in, is one of several of its class in another module."""
        found = self._siblings.get(source)
        if found is None:
            above, owner = source.base, None
            while above is not None and not isinstance(owner := self.read(above), nn.Module):
                above = above.base
            found = False
            if above is not None and isinstance(owner, nn.Module):
                alike = [each for each in vars(owner)["_modules"].values() if type(each) is type(module)]
                found = len(alike) > 1 or self._has_siblings(above, owner)
            self._siblings[source] = found
        return found

    def _has_changes(self) -> bool:
        """Whether the program has changed anything, or the trace depends on more than guards, so that calls of equal
        modules may have different traces."""
        tx, graph = self._trace, self._trace.graph
        modes, numbers = graph.modes, graph.numbers
        return bool(
            tx.breaks.planned or tx.opaque or tx.varying or tx.placeholder_objects or tx.class_writes
            or tx.draws or tx.rng_branches or tx.warning_contexts or tx.logs or tx.overrides.modes
            or tx.outside_reads is not None or graph.stack.is_nested or numbers.has_shapes or numbers.values
            or graph.history.varied or not graph.history.repeats_calls or graph.required is not None
            or graph.ran_backward or graph.registered_hooks or graph.removes_hooks or graph.pushed_hooks
            or modes.written or modes.switched or modes.patched or modes.has_device or tx.inner_tensors
            or tx.weak_references or tx.rewritten
        )  # fmt: skip

    def _state(self) -> Any:
        """Equal if operators and guards have the same effect on the trace."""
        tx, graph = self._trace, self._trace.graph
        return (
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), autocast_state(),
            graph.modes.entered, tx.error_is_observable, tx.program_handles_errors, tx.is_in_block,
            any(frame.handling for frame in tx.frames), tx.error_on_break, tx.overrides.state,
            len(graph.modes.restores), len(tx.effects), self._new_objects(),
        )  # fmt: skip

    def _new_objects(self) -> Any:
        """What the objects hold that the program created and that called functions reach, through objects that existed
        before the frame and that the program changed. If that is not known: how many changes there were."""
        found: dict[int, Any] = {}
        stack: list[Any] = [held for effect in self._trace.effects for held in _written(effect)]
        while stack:
            var = stack.pop()
            if var is None or id(var) in found:
                continue
            self._kept[id(var)] = var
            if var is UNKNOWN:
                return self._trace.effects.changes
            if type(var) in (ConstVar, TensorVar) or var.source is not None:
                found[id(var)] = ()
                continue
            held = list(_held(var))
            found[id(var)] = tuple([id(each) if isinstance(each, Var) else each for each in held])
            stack += [each for each in held if isinstance(each, Var)]
        return tuple(found.items())

    def _described(self, var: Any) -> Any:
        """Equal for arguments that no trace can tell from each other."""
        cls = type(var)
        if cls is ConstVar and type(var.value) in _PLAIN:
            return type(var.value), var.value
        if cls is ConstVar and type(var.value) is float:
            return float, var.value.hex()
        if cls is TupleVar and var.source is None:
            return tuple, *map(self._described, var.items)
        if cls is not TensorVar or var.owner is not None or var.own or var.hooks or var.grad is not None:
            raise NotRepeatable
        if var.source is not None:  # only the same one
            return TensorVar, id(var), var.node
        fake = var.fake
        if var.function is not None or type(fake) is not torch._subclasses.FakeTensor or fake.constant is not None:
            raise NotRepeatable
        if fake.layout != torch.strided or fake.is_inference():
            raise NotRepeatable
        if self._trace.graph.known.is_known(var):  # only the same one, with the same value
            self._kept[id(var)] = var
            return TensorVar, id(var), fake._version, self._trace.graph.count_changes()
        return (
            TensorVar, var.cls, tuple(fake.shape), fake.stride(), fake.storage_offset(), fake.dtype, fake.device,
            fake.requires_grad, fake.is_leaf, fake._version, fake._is_view(), torch._C._dispatch_keys(fake).raw_repr(),
        )  # fmt: skip

    # ---- tracing ----
    def end(self, begun: _Begun, result: Var | None) -> None:
        """As `Tracer.end_module_call`: notes the call, if it can be repeated."""
        self._depth -= 1
        if not self._depth:
            self._trace.graph.note_operation = None
        call = None if result is None else self._traced(begun, result)
        if call is not None:
            self._calls.setdefault(begun.key, []).append(call)

    def _traced(self, begun: _Begun, result: Var) -> TracedCall | None:
        """A call that was traced; None if it cannot be repeated."""
        tx, graph, root = self._trace, self._trace.graph, begun.module.source
        work = tx.budget.spent - begun.work
        if work < LEAST or self._has_changes() or begun.counts != self._counts() or begun.key[-1] != self._state():
            return None
        operations, sources = tuple(self._operations[begun.operations :]), tuple(graph.inputs.sources[begun.inputs :])
        added = sum(len(each.nodes) for each in operations) + len(sources)
        if added != _count(graph.graph) - begun.nodes or not _is_result(result, begun.given):
            return None
        if root is None or tx.generators.count_unfinished != begun.generators:
            return None
        used = {*tensor_sources(result), *(x for each in operations for x in tensor_sources((each.args, each.kwargs)))}
        if any(is_in(x, root) for x in used.difference(sources)):  # the trace already had it
            return None
        return TracedCall(
            root, graph.stack.place(), begun.given, operations, sources, result, len(tx.guards), work,
            tx.inner_steps - begun.steps,
        )  # fmt: skip

    def _note(self, operation: Operation) -> None:
        """Note what a call that is being traced adds to the graph, with the arguments as they are now."""
        try:
            args = [_frozen(x) for x in operation.args]
            kwargs = {name: _frozen(x) for name, x in operation.kwargs.items()}
            depends = bool(operation.nodes) and not _is_plain(operation.target)
        except NotRepeatable:
            depends = True
        if depends:
            self._unknown += 1
        else:
            self._operations.append(dataclasses.replace(operation, args=args, kwargs=kwargs))

    def _counts(self) -> Any:
        """What a call that can be repeated leaves as it is, besides what `_has_changes` tests."""
        tx, graph = self._trace, self._trace.graph
        return (
            len(tx.deleted_values), len(tx.fields_of), len(tx.identity_keys),
            sum(exc.source is not None for exc in tx.raised), graph.checks_sizes, graph.guesses_sizes,
            graph.choices, self._unknown,
        )  # fmt: skip

    def _of_module(self, call: TracedCall) -> OfModule:
        """The guards on the module of a call, and the Vars of its objects."""
        if call.found is None:
            tx, root = self._trace, call.source
            known = itertools.islice(tx.guards, call.guards)
            guards = [each for each in known if any(is_in(source, root) for source in sources_of(each))]
            objects = {source: var for var, source in self.replayed if is_in(source, root)}
            for var in tx.memo.values():
                if var.source is not None and is_in(var.source, root):
                    objects[var.source] = var
            call.found = OfModule(tuple(guards), objects)
        return call.found

def _written(effect: Effect) -> Sequence[Var | None]:
    """What the object that an effect changed holds."""
    target = effect.target
    if effect.kind == "ATTR" and isinstance(target, InstanceVar):
        return [target.written(effect.detail)]
    if effect.kind == "CELL" and isinstance(target, CellVar):
        return [target.content]
    if effect.kind in ("LIST", "DICT") and type(target) in (ListVar, DictVar):
        return [var for var in _held(target) if isinstance(var, Var)]
    return [UNKNOWN]


def _held(var: Var) -> Iterator[Any]:
    """What an object that the program created holds: Vars and constants."""
    if type(var) in (ListVar, TupleVar):
        yield from var.items  # type: ignore[attr-defined]  # a sequence
    elif type(var) is DictVar:
        for key, value in var.items.items():
            yield from (key, value)
    else:
        yield UNKNOWN


def _identities(given: Sequence[Var]) -> tuple[int, ...]:
    """Which arguments, and which items of tuples among them, are the same object."""
    flat: list[Var] = []
    stack = [*given]
    while stack:
        flat.append(stack.pop())
        if type(flat[-1]) is TupleVar:
            stack += flat[-1].items
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(var), k) for k, var in enumerate(flat) if type(var) is not ConstVar)


def _count(graph: fx.Graph) -> int:
    return len(graph.nodes)


def _is_result(var: Var, given: Sequence[Var]) -> bool:
    """Whether the result of a call can be made again of those of other operators."""
    if type(var) is TensorVar or any(var is each for each in given):
        return True
    if type(var) in (TupleVar, ListVar) and var.source is None:
        return all(_is_result(item, given) for item in var.items)  # type: ignore[attr-defined]  # a sequence
    return type(var) is ConstVar and type(var.value) in (*_PLAIN, float)


def _is_plain(target: Any) -> bool:
    """Whether an operator depends on nothing but its arguments."""
    if isinstance(target, (str, *_TARGETS)):
        return True
    cells = getattr(target, "__closure__", None) or ()
    functions = (types.FunctionType, types.BuiltinFunctionType)
    return isinstance(target, types.FunctionType) and all(
        isinstance(cell.cell_contents, (*functions, *_PLAIN)) for cell in cells
    )


def _frozen(x: Any) -> Any:
    """An argument of an operator as it is now; NotRepeatable for values that can be something else later."""
    cls = type(x)
    if cls in _FIXED:
        return x
    if cls is tuple:
        return tuple(map(_frozen, x))
    if cls in (ListVar, TupleVar, SizeVar):
        return Items(cls, tuple(map(_frozen, x.items)))
    if cls is SliceVar and all(type(part) is ConstVar for part in x.parts):
        return x
    raise NotRepeatable
