"""Adds the operators and guards of a traced call of a module for a call of another one that `repeated_calls` found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..core.guard import Guard
from ..core.source import Source
from ..emit.graph import Operation
from ..emit.graph_stack import module_path
from ..errors import Restart
from ..vars.containers.sequence import ListVar, TupleVar
from ..vars.protocol.base import Var
from ..vars.protocol.const import ConstVar
from ..vars.torch_objects.nnmodule import NNModuleVar
from ..vars.torch_objects.tensor import TensorVar
from .entry_values import EntryValues

if TYPE_CHECKING:
    from .trace import Trace


class NotRepeatable(Exception):
    """A call that cannot be repeated, or that differs from the one that was traced."""


@dataclasses.dataclass(frozen=True)
class Items:
    """A list or tuple among the arguments of an operator, with the items that it had then."""

    kind: type
    items: tuple[Any, ...]


@dataclasses.dataclass(eq=False)
class TracedCall:
    """A traced call of the module at `source`. `place`: what nodes record of the frames around it. `given`: the Vars of
    its arguments, in order. `operations`: what it added to the graph. `inputs`: the sources of inputs that it added.
    `guards`: how many guards there were after it. `work`, `steps`: instructions, of all frames and of inlined ones."""

    source: Source
    place: tuple[str, dict[str, tuple[str, type]]]
    given: tuple[Var, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[Source, ...]
    result: Var
    guards: int
    work: int
    steps: int
    failures: int = 0
    found: OfModule | None = None  # computed at the first comparison


@dataclasses.dataclass(frozen=True)
class OfModule:
    """What a trace knows of a module: its guards, and Vars of the objects in it, by source."""

    guards: tuple[Guard, ...]
    objects: Mapping[Source, Var]
    _outside: dict[frozenset[Source], tuple[Guard, ...]] = dataclasses.field(default_factory=dict)

    def guards_outside(self, shared: frozenset[Source]) -> tuple[Guard, ...]:
        """The guards on none of some objects in the module, nor on what is in these."""
        found = self._outside.get(shared)
        if found is None:
            kept = [guard for guard in self.guards if not any(is_in(guard.source, source) for source in shared)]
            found = self._outside[shared] = tuple(kept)
        return found


class Replay:
    """The call of another module than that of a traced call. Creating it changes nothing of the trace; NotRepeatable
    if the modules differ. `known`: of the traced module. `given`: the arguments of the other call. `objects`: Vars of
    objects in the traced module, except tensors and objects that both modules share, each with the source of its
    counterpart."""

    def __init__(
        self, trace: Trace, values: EntryValues, call: TracedCall, known: OfModule, module: NNModuleVar,
        given: tuple[Var, ...],
    ) -> None:
        assert module.source is not None
        self._trace: Trace = trace
        self._values, self._call = values, call
        self._from, self._to, self._given = call.source, module.source, given
        self._module_paths = module_path(self._from), module_path(self._to)
        self._moved: dict[Source, Source] = {}
        self._paths: dict[int, dict[str, tuple[str, type]]] = {}
        self._place: tuple[str, dict[str, tuple[str, type]]] = "", {}
        self._vars: dict[int, Var] = {}
        known_before = [effect.target.source for effect in trace.effects if effect.target is not None]
        known_before += [*tensor_sources(given), *tensor_sources(call.given)]
        if self._from == self._to or any(is_in(x, self._from) or is_in(x, self._to) for x in known_before):
            raise NotRepeatable
        self.guards: list[Guard] = []
        self.objects: list[tuple[Var, Source]] = []
        shared = frozenset(self._compare_objects(known.objects))
        self.guards += [self._guard(guard) for guard in known.guards_outside(shared)]
        self.tensors = [(source, self.source(source)) for source in call.inputs if is_in(source, self._from)]

    def source(self, source: Source) -> Source:
        """The source in the other module for one in the traced module; others as they are."""
        found = self._moved.get(source)
        if found is None:
            parent = source.base
            if source == self._from:
                found = self._to
            elif parent is None:
                found = source
            else:
                moved = self.source(parent)
                found = source if moved is parent else _with_parent(source, moved)
            self._moved[source] = found
        return found

    def _guard(self, guard: Guard) -> Guard:
        """A guard for the other module; NotRepeatable if it does not hold."""
        payload = guard.payload
        if guard.kind == "SAME":
            payload = self.source(payload)
        elif guard.kind == "PREDICATE":
            payload = (payload[0], tuple(map(self.source, payload[1])), payload[2])
        elif guard.kind in ("DISTINCT", "RELATION", "GLOBAL_STATE") or guard.source is None:
            raise NotRepeatable
        assert guard.source is not None
        moved = Guard(self.source(guard.source), guard.kind, payload, guard.line)
        if not self._values.holds(moved):
            raise NotRepeatable
        return moved

    def _compare_objects(self, objects: Mapping[Source, Var]) -> list[Source]:
        """Find the counterparts of all objects with Vars. NotRepeatable unless these are as many different objects,
        which the trace has not seen from another source. Objects other than tensors may be shared by both modules: they
        need no other guards. Returns the sources of these in the traced module."""
        tx, seen = self._trace, set()
        shared: list[Source] = []
        for source, var in objects.items():
            there = self.source(source)
            old, new = self._read(source), self._read(there)
            if id(new) in seen or type(new) is not type(old):
                raise NotRepeatable
            seen.add(id(new))
            known = tx.traced(new)
            if isinstance(var, TensorVar):
                if known is not None or new is old or new._is_view():
                    raise NotRepeatable
            elif new is old:
                if known is None or known.source is None:
                    raise NotRepeatable
                if known.source != there:
                    self.guards.append(Guard(there, "SAME", known.source, tx.user_line()))
                    shared.append(source)
            elif known is not None and known.source != there:
                raise NotRepeatable
            if not isinstance(var, TensorVar) and new is not old:  # tensors get Vars; what is shared has one
                self.objects.append((var, there))
        return shared

    def _read(self, source: Source) -> Any:
        try:
            return self._values.read(source)
        except Exception:  # noqa: BLE001  reading a value of the program may raise anything
            raise NotRepeatable from None

    # ---- changing the trace ----
    def make(self) -> Var:
        """Add what the call adds to the trace, and return its result."""
        tx, call = self._trace, self._call
        try:
            self._place = tx.graph.stack.place()
            for old, new in zip(call.given, self._given, strict=True):
                self._note(old, new)
            for guard in self.guards:
                tx.guards.add(guard)
                self._note_number(guard)
            for source, there in self.tensors:
                self._note(self._input(source), self._wrapped(source, there))
            for operation in call.operations:
                self._add(operation)
            tx.breaks.inlined_in_step = True
            tx.inner_steps += call.steps
            result = self._result(call.result)
        except NotRepeatable:  # not foreseen: trace all calls
            tx.graph.history.repeats_calls = False
            raise Restart from None
        tx.spend(call.work)
        return result

    def _note_number(self, guard: Guard) -> None:
        """Note a number for later captures, as reading it does."""
        numbers = self._trace.graph.history.numbers
        if guard.kind == "EQUALS" and guard.source is not None and type(guard.payload) in (int, float):
            numbers.setdefault(guard.source, guard.payload)

    def _input(self, source: Source) -> Var:
        var = self._trace.traced(self._trace.graph.inputs.originals[source])
        if var is None:
            raise NotRepeatable
        return var

    def _wrapped(self, source: Source, there: Source) -> Var:
        """The Var of a tensor of the other module, a new input."""
        tx = self._trace
        count = len(tx.graph.inputs.sources)
        var = tx.wrap(self._values.read(there), there)
        new = len(tx.graph.inputs.sources) == count + 1 and tx.graph.inputs.sources[-1] == there
        if not new or tx.graph.numbers.has_shapes:
            raise NotRepeatable
        return var

    def _note(self, old: Any, new: Any) -> None:
        """Use the Var `new` in the place of `old` from here on."""
        if type(old) is not type(new):
            raise NotRepeatable
        if isinstance(old, TensorVar):
            if not _alike(old.fake, new.fake):
                raise NotRepeatable
        elif isinstance(old, ListVar | TupleVar):
            if len(old.items) != len(new.items):
                raise NotRepeatable
            for a, b in zip(old.items, new.items, strict=True):
                self._note(a, b)
        elif isinstance(old, ConstVar):
            return
        else:
            raise NotRepeatable
        self._vars[id(old)] = new

    def _var(self, x: Any) -> Any:
        """An argument of an operator for the other module."""
        if type(x) is Items:
            return x.kind([self._var(item) for item in x.items])
        if type(x) is tuple:
            return tuple(map(self._var, x))
        if not isinstance(x, TensorVar):
            return x
        found = self._vars.get(id(x))
        if found is None:
            if x.source is None or is_in(x.source, self._from):
                raise NotRepeatable
            return x
        return found

    def _add(self, operation: Operation) -> None:
        graph = self._trace.graph
        if not operation.nodes:
            return
        args = [self._var(x) for x in operation.args]
        kwargs = {name: self._var(x) for name, x in operation.kwargs.items()}
        made = graph.add(operation.kind, operation.target, operation.run, args, kwargs)
        if len(made.nodes) != len(operation.nodes):
            raise NotRepeatable
        self._note(operation.result, made.result)
        for old, new in zip(operation.nodes, made.nodes, strict=True):
            text: str = old.meta["stack_trace"]
            there, here = self._call.place[0], self._place[0]
            new.meta["stack_trace"] = here + text[len(there) :] if text.startswith(there) else text
            new.meta["nn_module_stack"] = self._modules(old.meta.get("nn_module_stack", {}))

    def _modules(self, modules: dict[str, tuple[str, type]]) -> dict[str, tuple[str, type]]:
        """The modules that a node is in, by path."""
        found = self._paths.get(id(modules))
        if found is None:
            there, here = self._module_paths
            found = dict(self._place[1])
            for path, (_, cls) in modules.items():
                if path == there or path.startswith(f"{there}."):
                    found[here + path[len(there) :]] = here + path[len(there) :], cls
                elif path not in self._call.place[1]:
                    found[path] = path, cls
            self._paths[id(modules)] = found
        return found

    def _result(self, var: Var) -> Var:
        if id(var) in self._vars:
            return self._vars[id(var)]
        if isinstance(var, ListVar | TupleVar):
            return type(var)([self._result(item) for item in var.items])
        return self._var(var)


def tensor_sources(x: Any) -> Iterator[Source]:
    """The sources of tensors among arguments, or in a result."""
    if isinstance(x, TensorVar):
        if x.source is not None:
            yield x.source
    elif isinstance(x, dict):
        yield from tensor_sources(list(x.values()))
    elif isinstance(x, list | tuple):
        for each in x:
            yield from tensor_sources(each)
    elif isinstance(x, ListVar | TupleVar | Items):
        yield from tensor_sources(list(x.items))


def sources_of(guard: Guard) -> Iterator[Source]:
    """The sources of which a guard says something."""
    if guard.source is not None:
        yield guard.source
    if guard.kind == "SAME":
        yield guard.payload
    elif guard.kind == "PREDICATE":
        yield from guard.payload[1]
    elif guard.kind == "DISTINCT":
        yield from guard.payload


def is_in(source: Source | None, root: Source) -> bool:
    """Whether a source leads to a module or to something in it."""
    kind, wanted = type(root), hash(root)
    while source is not None:
        if type(source) is kind and hash(source) == wanted and source == root:
            return True
        source = source.base
    return False


_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields_of(source: Source) -> tuple[str, ...]:
    found = _FIELDS.get(type(source))
    if found is None:
        found = _FIELDS[type(source)] = tuple(field.name for field in dataclasses.fields(source))
    return found


def _with_parent(source: Source, parent: Source) -> Source:
    """A step from another source."""
    values = {name: getattr(source, name) for name in _fields_of(source)}
    values["parent"] = parent
    return type(source)(**values)


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride() and a.requires_grad == b.requires_grad
        and a.device == b.device and a.is_leaf == b.is_leaf and a.storage_offset() == b.storage_offset()
    )  # fmt: skip
