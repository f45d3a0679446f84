"""Turns a finished capture into a record for other processes, or says why it cannot be kept.

Whatever is not known to be valid in another process is refused: an object without a description, a function in C whose
result the trace has used and that is not known to depend on its arguments alone, a predicate that is no named function.
What was made is loaded once in this process, which must succeed.
"""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import functools
import inspect
import itertools
import marshal
import math
import types
from collections.abc import Sequence
from typing import Any

import torch

from ..core.guard import Guard
from ..core.guard_program import LoweredGuards
from ..core.same_answer import SameAnswer
from ..core.trace_reliances import Reliances
from ..graph_retry import as_it_is
from .class_digest import class_digest
from .described import Description, NotKept, dataclass_fields, describe, field_of, has_name, has_sizes, is_one_of
from .load import OPERANDS, Bound, Differs
from .made_constants import FUNCTION, OBJECT, as_data
from .record import ORIGINAL, FrameRecord, pack_texts

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_MOST_ITEMS, _DEEPEST = 64, 3  # of containers among the arguments, whose sizes and numbers are noted
_PLAIN_CONSTS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
# Builtins whose results depend on their arguments alone, in every process.
_PURE_BUILTINS = """abs all any bool bytes callable chr complex dict divmod enumerate filter float frozenset getattr
    hasattr int isinstance issubclass iter len list map max min next object ord pow property range reversed round set
    slice sorted staticmethod classmethod str sum super tuple type zip setattr delattr""".split()
_PURE_MODULES = frozenset(("math", "operator", "_operator", "itertools", "cmath"))
_PURE = {
    *(getattr(builtins, name) for name in _PURE_BUILTINS), functools.partial, functools.reduce, collections.OrderedDict,
    collections.defaultdict, collections.deque, copy.copy, dataclasses.fields, inspect.signature, math.prod,
    object.__new__, object.__init__, object.__setattr__, object.__getattribute__, object.__delattr__,
    object.__init_subclass__, type.__call__, type.__init__, type.__instancecheck__,
    torch.Size, torch.Tensor, torch.device, torch.finfo, torch.iinfo, torch.nn.Parameter,
    torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass, torch._C._set_grad_enabled,
    torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic,
    torch.overrides.handle_torch_function, torch.no_grad, torch.enable_grad, torch.set_grad_enabled,
    torch.inference_mode, torch.autocast, torch.autograd.profiler.record_function,
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.is_autocast_enabled,
    torch.is_autocast_cpu_enabled, torch.promote_types, torch.can_cast, torch.broadcast_shapes,
    torch.get_autocast_dtype, torch.are_deterministic_algorithms_enabled, torch._C._get_tracing_state,
    torch._C._is_tracing, torch.jit.is_scripting, torch.jit.is_tracing, torch.get_num_threads,
    torch.compiler.is_exporting, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
}  # fmt: skip
_PURE_IDS = frozenset(map(id, _PURE))
_PURE_ITERTOOLS = frozenset(id(each) for each in vars(itertools).values() if isinstance(each, type))
_OWN = f"{__name__.partition('.')[0]}."
# Models of methods and assignments that only add nodes to the graph.
_PURE_FACTS = frozenset((
    "assignment to Tensor.grad", "assignment to Tensor.requires_grad", "Tensor.requires_grad_", "Tensor.detach_",
    "Tensor.addcmul", "Tensor.addcmul_", "Tensor.addcdiv", "Tensor.addcdiv_",
))  # fmt: skip
_PURE_METHODS = frozenset(("__enter__", "__exit__"))


def check_reliances(found: Reliances) -> None:
    """NotKept if a trace relied on a fact of this process that another may not share."""
    for what in found.facts:
        if what not in _PURE_FACTS:
            raise NotKept(what)
    for target in found.calls.values():
        if not _is_pure(target):
            name = getattr(target, "__qualname__", None) or getattr(target, "co_qualname", None) or repr(target)
            raise NotKept(f"the result of {name}")


def _is_pure(target: Any) -> bool:
    if id(target) in _PURE_IDS or id(target) in _PURE_ITERTOOLS:
        return True
    if isinstance(target, types.BuiltinFunctionType):
        owner = getattr(target, "__self__", None)
        return (target.__module__ in _PURE_MODULES and target.__name__ != "length_hint") or owner in (
            dict, int, float, tuple)
    if isinstance(target, types.FunctionType) and target.__name__ in _PURE_METHODS:
        return id(torch.autograd.grad_mode) == id(_module_of(target))
    return isinstance(target, types.MethodDescriptorType | types.WrapperDescriptorType) and target.__objclass__ in (
        str, list, dict, tuple, int, float, object, type, collections.OrderedDict, collections.defaultdict,
    )  # fmt: skip


def _module_of(function: types.FunctionType) -> Any:
    grad_mode = torch.autograd.grad_mode
    return grad_mode if function.__globals__ is vars(grad_mode) else None


class Saving:
    """Collects the table of objects of one record."""

    def __init__(self, found: Reliances) -> None:
        self.made = found.made
        parts = [(cls, name, field) for cls in found.fields.values() for name, field in dataclass_fields(cls).items()]
        self.fields = {id(field): field_of(cls, name) for cls, name, field in parts}
        self.descriptions: list[Description] = []
        self.bound: set[int] = set()  # numbers of objects that a guard has bound so far, or that have a name
        self._numbers: dict[int, int] = {}
        self._values: dict[Description, int] = {}
        self._kept: list[Any] = []
        self.state: Any = None  # the GlobalState when the capture began
        self.fresh: set[int] = set()  # registers that hold objects that the trace made, and what is read from them

    def number(self, value: Any) -> int:
        """The number of an object in the table."""
        found = self._numbers.get(id(value))
        if found is None:
            description = self.fields.get(id(value)) or describe(value)
            named = has_name(description)
            found = self._values.get(description) if named else None
            if found is None:
                found = len(self.descriptions)
                self.descriptions.append(description)
                if named:
                    self._values[description] = found
                    self.bound.add(found)
            self._numbers[id(value)] = found
            self._kept.append(value)
        return found

    def known(self, value: Any) -> int:
        """The number of an object that can be found by its name, or that a guard has bound before."""
        found = self.number(value)
        if found not in self.bound:
            raise NotKept(f"an object that has no name: {' '.join(map(str, self.descriptions[found][:3]))}")
        return found

    def binding(self, value: Any) -> int:
        """The number of an object that a guard binds here."""
        found = self.number(value)
        self.bound.add(found)
        return found

    # ---- operations

    def operation(self, op: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """An operation of the guard program as data; None for one on objects that the trace made."""
        name, *given = op
        kind, letters = OPERANDS[name]
        if name == "CONST" and id(given[1]) in self.made or self._reads_made(letters, given):
            if name in ("IS", "TYPE_IS", "IS_NOT") and describe(given[1])[0] not in ("=", "class", "builtin type"):
                raise NotKept("an object that is part of an object made while tracing")
            if kind == "accessor":
                self.fresh.add(given[0])
            return None
        special = _OPERATIONS.get(name)
        if special is not None:
            return (name, *special(self, *given))
        pairs = zip(letters, given, strict=True)
        return (name, *(self.known(each) if letter == "o" else each for letter, each in pairs))

    def _reads_made(self, letters: str, given: Sequence[Any]) -> bool:
        pairs = list(zip(letters, given, strict=True))
        read = [each for letter, each in pairs if letter == "r"]
        read += [each for letter, listed in pairs if letter == "R" for each in listed]
        found = [each in self.fresh for each in read]
        if any(found) and not all(found):
            raise NotKept("a comparison with an object made while tracing")
        return any(found)

    def identity(self, register: int, value: Any) -> tuple[Any, ...]:
        return register, self.binding(value)

    def class_finds(self, register: int, reads: tuple[Any, ...]) -> tuple[Any, ...]:
        metaclass, order, entries = reads
        bases = self.binding(metaclass), tuple(map(self.binding, order))
        cls = order[0]
        if is_one_of(cls, _TENSORS) and len(entries) > 600:
            names = tuple(entries[::3])
            digest, triples = class_digest(cls, names)
            if not all(now is then for now, then in zip(triples, entries, strict=True)):
                raise NotKept(f"attributes of {cls.__name__} that have changed since the capture")
            return (register, *bases, (digest, names))
        found: list[Any] = []
        for name, how, value in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
            found += (name, how, self.binding(value) if how else 0)
        return (register, *bases, tuple(found))

    def tensor(self, register: int, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        cls, dtype, *rest = payload
        if not is_one_of(cls, _TENSORS):
            raise NotKept(f"a tensor of class {cls.__qualname__}")
        return register, self.known(cls), self.known(dtype), tuple(rest)

    def global_state(self, state: Any) -> tuple[Any, ...]:
        self.state = state
        values = state.as_dict()
        if values.pop("modes"):
            raise NotKept("a __torch_function__ mode around the call")
        return (tuple(values.items()),)

    def relation(self, steps: tuple[Any, ...], registers: tuple[int, ...]) -> tuple[Any, ...]:
        return steps, registers

    def predicate(self, function: Any, registers: tuple[int, ...]) -> tuple[Any, ...]:
        if type(function) is SameAnswer:
            asked = (self.known(function.ask), self.known(function.kind), self.known(function.cls))
            return (*asked, function.answer), registers
        if type(function).__module__.startswith(_OWN):  # an object that holds what it evaluates
            raise NotKept("a condition on numbers that is no relation between integers")
        return self.known(function), registers

    # ---- code

    def code(self, code: types.CodeType, original: types.CodeType) -> tuple[Any, ...]:
        consts = tuple(
            ORIGINAL if each is as_it_is(original) else self._const(each, original) for each in code.co_consts
        )
        return marshal.dumps(code.replace(co_consts=())), consts

    def _code_object(self, code: types.CodeType) -> tuple[str, int]:
        """How to find a code object: a function that a guard has compared, or the object itself."""
        for value in self._kept:
            if isinstance(value, types.FunctionType) and value.__code__ is code and self.number(value) in self.bound:
                return FUNCTION, self.number(value)
        return OBJECT, self.known(code)

    def _const(self, value: Any, original: types.CodeType) -> Any:
        made = as_data(value, original, self._code_object)
        if made is not None:
            return made
        if _is_plain(value):
            return marshal.dumps(value)
        found = self.known(value)
        if self.descriptions[found][0] in ("dict",):
            raise NotKept("a dict that the code refers to")
        return found


def _is_plain(value: Any) -> bool:
    """Whether a constant of a code object is one that any code object may have."""
    if is_one_of(type(value), (tuple, frozenset)):
        return all(map(_is_plain, value))
    if isinstance(value, types.CodeType):
        return all(map(_is_plain, value.co_consts))
    return is_one_of(type(value), _PLAIN_CONSTS)


_OPERATIONS: dict[str, Any] = {
    "IS": Saving.identity, "TYPE_IS": Saving.identity, "CLASS_FINDS": Saving.class_finds, "TENSOR": Saving.tensor,
    "GLOBAL_STATE": Saving.global_state, "RELATION": Saving.relation, "PREDICATE": Saving.predicate,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """A finished capture: the call it was made for, its guards, its code, and its compiled graph as data."""

    func: types.FunctionType
    locals: tuple[Any, ...]
    guards: list[Guard]
    lowered: LoweredGuards
    input_registers: tuple[int, ...]
    code: types.CodeType
    output: Any
    graph: tuple[Any, ...]
    undo: tuple[Any, ...] | None
    varied: tuple[Any, ...]
    breaks: tuple[tuple[str, str, str, bool], ...]
    eager: bool


def make_record(capture: Finished, relied_on: Reliances) -> FrameRecord:
    """A capture as data. NotKept, which says why, if another process could not use it."""
    check_reliances(relied_on)
    saving = Saving(relied_on)
    if not _is_plain_template(capture.output):
        raise NotKept("a result that is no plain value")
    ops, texts = [], []
    for op, guard in zip(capture.lowered.ops, capture.lowered.guard_of_op, strict=True):
        data = saving.operation(op)
        if data is not None:
            ops.append(data)
            texts.append("a graph input" if guard is None else _text(capture.guards[guard]))
    if saving.fresh.intersection(capture.input_registers):
        raise NotKept("a graph input that the trace made")
    ops, registers = _renumbered(ops, len(capture.lowered.registers), saving.fresh)
    code = saving.code(capture.code, capture.func.__code__)
    facts = [_fact(saving, *how) for _, how in relied_on.made.values()]
    facts += [("fields", saving.known(cls), tuple(dataclass_fields(cls))) for cls in relied_on.fields.values()]
    record = FrameRecord(
        objects=tuple(saving.descriptions), ops=tuple(ops), registers=registers,
        inputs=len(set(capture.input_registers)), facts=tuple(facts), code=code,
        input_registers=capture.input_registers, output=capture.output, graph=capture.graph, undo=capture.undo,
        texts=pack_texts(texts), arguments=tuple(map(_noted, capture.locals)),
        varied=capture.varied, breaks=capture.breaks, function=capture.func.__qualname__,
        eager=capture.eager,
    )  # fmt: skip
    try:
        bound = Bound(record, capture.func, capture.locals, saving.state)
        bound.bind()
        bound.check_facts()
        bound.code()
    except Differs as error:
        raise NotKept(f"something that is not found again: {error}") from error
    return record


def _renumbered(
    ops: list[tuple[Any, ...]], count: int, left_out: set[int]
) -> tuple[list[tuple[Any, ...]], int]:
    """Operations with the registers that are left numbered without gaps, and how many there are. Registers of graph
    inputs, which come first and are never left out, keep their numbers."""
    if not left_out:
        return ops, count
    number = {each: at for at, each in enumerate(each for each in range(count) if each not in left_out)}

    def operand(letter: str, value: Any) -> Any:
        if letter == "R":
            return tuple(number[each] for each in value)
        return number[value] if letter in "dr" else value

    pairs = ((name, itertools.zip_longest(OPERANDS[name][1], given, fillvalue="o")) for name, *given in ops)
    return [(name, *(operand(letter, each) for letter, each in of_op)) for name, of_op in pairs], len(number)


def _text(guard: Guard) -> str:
    """What to say if a guard fails of which only this text is known."""
    line = f", guard from {guard.line}" if guard.line else ""
    return f"{guard.source or guard.kind} is not as in the process that captured this ({guard.kind}{line})"


def _fact(saving: Saving, name: str, *operands: Any) -> tuple[Any, ...]:
    if name != "signature":
        raise NotKept(f"an object made by {name}")
    target, kwargs = operands
    named = tuple(kwargs.items())
    if not all(is_one_of(type(value), _PLAIN_CONSTS) for _, value in named):
        raise NotKept("the arguments of inspect.signature")
    return name, saving.known(target), named, str(inspect.signature(target, **kwargs))


def _is_plain_template(output: Any) -> bool:
    if isinstance(output, str):
        return True
    kind, value = output
    if kind == "const":
        return _is_plain(value)
    return kind == "out" or all(map(_is_plain_template, value))


def _noted(value: Any, depth: int = 0) -> Any:
    """What a later capture compares an argument with, to find what varies: sizes as a tuple, a number, or those of the
    items of a short container as a list or dict; None for others."""
    if is_one_of(type(value), _TENSORS):
        return tuple(value.shape) if has_sizes(value) else None
    if is_one_of(type(value), (tuple, list, dict)) and len(value) <= _MOST_ITEMS and depth < _DEEPEST:
        if type(value) is dict:
            return {key: _noted(item, depth + 1) for key, item in value.items() if type(key) is str}
        return [_noted(item, depth + 1) for item in value]
    return value if is_one_of(type(value), (int, float)) else None
