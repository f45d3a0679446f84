"""Loads a kept capture: compares what its guards refer to with the objects of this process, and builds the guard
program, the code and the compiled graph of the entry from them.

The operations of the guard program are evaluated once in order, in Python. Where one compares a value with an object,
that object is the value itself, if its description is the one that was stored. An operation that fails ends the load:
a miss.
"""

from __future__ import annotations

import inspect
import marshal
import types
from collections.abc import Callable
from typing import Any

from .. import _C
from ..core.guard_reference import ACCESSORS, CHECKS, CallContext, found_along
from ..core.same_answer import SameAnswer
from ..graph_retry import as_it_is
from .class_digest import class_digest
from .described import Description, NotKept, dataclass_fields, describe, resolve
from .record import ORIGINAL, FrameRecord

OPERANDS: dict[str, tuple[str, str]] = {name: (kind, operands) for name, kind, operands, _ in _C.op_table()}
_UNBOUND: Any = object()
_mro = type.__dict__["__mro__"].__get__
# Descriptions of values that have no identity of their own.
_VALUES = frozenset(("=", "float", "complex", "tuple", "slice", "frozenset", "device", "size", "torch", "range"))


class Differs(Exception):
    """This process is not in the state that the capture depends on. The text says how."""


class Bound:
    """The objects of this process that a record refers to, and the operations of its guard program with them."""

    def __init__(
        self, record: FrameRecord, func: types.FunctionType, locals_: tuple[Any, ...], state: Any = None
    ) -> None:
        """`state`: the GlobalState of the call, if it is not that of this thread now."""
        self.record = record
        self.objects: list[Any] = [_UNBOUND] * len(record.objects)
        self._numbers: dict[int, int] = {}  # those of objects with an identity, by id
        self.context = CallContext(func, locals_)
        self.values: list[Any] = [_UNBOUND] * record.registers
        self.state: Any = state

    def object(self, number: int) -> Any:
        """The object with this number, found by its name or bound before."""
        found = self.objects[number]
        if found is _UNBOUND:
            description = self.record.objects[number]
            try:
                found = resolve(description)
            except (NotKept, KeyError) as error:
                raise Differs(f"{_short(description)} is not in this process") from error
            self._bind(number, found)
        return found

    def _bind(self, number: int, value: Any) -> None:
        """Note which object has this number. Objects that were different ones stay so: code may rely on that."""
        if self.record.objects[number][0] not in _VALUES and self._numbers.setdefault(id(value), number) != number:
            raise Differs(f"{_short(self.record.objects[number])} was another object than one that it now is")
        self.objects[number] = value

    def take(self, number: int, value: Any) -> Any:
        """`value`, if it has the description of the object with this number, which it becomes."""
        known, description = self.objects[number], self.record.objects[number]
        if known is value:
            return value
        if known is not _UNBOUND and description[0] not in _VALUES:
            raise Differs(f"{_short(description)} is another object")
        try:
            same = describe(value) == description
        except NotKept:
            same = False
        if not same:
            raise Differs(f"{_short(description)} has changed")
        self._bind(number, value)
        return value

    def bind(self) -> list[tuple[Any, ...]]:
        """The operations of the guard program with objects of this process; all of them hold. Differs if one fails."""
        ops = []
        for op in self.record.ops:
            name, *given = op
            kind, letters = OPERANDS[name]
            try:
                ops.append(self._accessor(name, letters, given) if kind == "accessor" else self._check(name, given))
            except Differs:
                raise
            except Exception as error:  # noqa: BLE001  user code runs here; as in C, a guard that raises fails
                raise Differs(f"{name} raised {type(error).__name__}") from error
        return ops

    def _accessor(self, name: str, letters: str, given: list[Any]) -> tuple[Any, ...]:
        to, *rest = given
        operands, arguments = [], []
        for letter, operand in zip(letters[1:], rest, strict=True):
            if letter == "o":
                operand = self.object(operand)
            operands.append(operand)
            arguments.append(self._read(letter, operand))
        self.values[to] = ACCESSORS[name](self.context, *arguments)
        return (name, to, *operands)

    def _read(self, letter: str, operand: Any) -> Any:
        if letter == "r":
            return self.values[operand]
        return tuple(self.values[each] for each in operand) if letter == "R" else operand

    def _check(self, name: str, given: list[Any]) -> tuple[Any, ...]:
        special = _CHECKS.get(name)
        if special is not None:
            return special(self, *given)
        _, letters = OPERANDS[name]
        operands = [self.object(each) if letter == "o" else each for letter, each in zip(letters, given, strict=True)]
        arguments = [self._read(letter, each) for letter, each in zip(letters, operands, strict=True)]
        if not CHECKS[name](*arguments):
            raise Differs(f"{name} does not hold")
        return (name, *operands)

    # ---- checks whose objects are those of this process

    def is_(self, register: int, number: int) -> tuple[Any, ...]:
        return ("IS", register, self.take(number, self.values[register]))

    def type_is(self, register: int, number: int) -> tuple[Any, ...]:
        return ("TYPE_IS", register, self.take(number, type(self.values[register])))

    def class_finds(self, register: int, metaclass: int, order: tuple[int, ...], entries: Any) -> tuple[Any, ...]:
        """`entries`: triples as in ClassReads, or a digest of what is found under given names."""
        cls = self.values[register]
        if not issubclass(type(cls), type):
            raise Differs("a class is no class")
        self.take(metaclass, type(cls))
        found_order = _mro(cls)
        if len(found_order) != len(order):
            raise Differs(f"the bases of {cls.__qualname__} have changed")
        for number, base in zip(order, found_order, strict=True):
            self.take(number, base)
        found: list[Any] = []
        if entries and len(entries) == 2:
            digest, names = entries
            try:
                now, found = class_digest(cls, names)
            except NotKept as error:
                raise Differs(str(error)) from error
            if now != digest:
                raise Differs(f"an attribute of {cls.__qualname__} has changed")
        else:
            for name, how, number in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
                found += (name, how, self._found(cls, found_along(found_order, name), name, how, number))
        return ("CLASS_FINDS", register, (type(cls), found_order, tuple(found)))

    def _found(self, cls: type, raws: list[Any], name: str, how: int, number: int) -> Any:
        if bool(raws) is not bool(how):
            raise Differs(f"{cls.__qualname__}.{name} has changed")
        if how == 0:
            return None
        return self.take(number, raws[0] if how == 1 else type(raws[0]))

    def tensor(self, register: int, cls: int, dtype: int, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        full = (self.object(cls), self.object(dtype), *payload)
        if not CHECKS["TENSOR"](self.values[register], full):
            raise Differs("the metadata of a tensor differs")
        return ("TENSOR", register, full)

    def predicate(self, function: Any, registers: tuple[int, ...]) -> tuple[Any, ...]:
        """`function`: the number of one, or the parts of a SameAnswer."""
        if type(function) is tuple:
            *asked, answer = function
            found: Any = SameAnswer(*map(self.object, asked))
            if found.answer is not answer:
                raise Differs("the answer of an abstract base class has changed")
        else:
            found = self.object(function)
        if not CHECKS["PREDICATE"](found, self._read("R", registers)):
            raise Differs("a predicate does not hold")
        return ("PREDICATE", found, registers)

    def relation(self, steps: tuple[Any, ...], registers: tuple[int, ...]) -> tuple[Any, ...]:
        if not CHECKS["RELATION"](steps, self._read("R", registers)):
            raise Differs("a relation between sizes does not hold")
        return ("RELATION", steps, registers)

    def global_state(self, expected: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.state is None:
            self.state = _C.GlobalState.capture()
        now = self.state.as_dict()
        if now.pop("modes") or tuple(now.items()) != expected:
            raise Differs("torch's modes differ")
        return ("GLOBAL_STATE", self.state)

    # ---- the rest of an entry

    def check_facts(self) -> None:
        for name, *operands in self.record.facts:
            if not _FACTS[name](self, *operands):
                raise Differs(f"the {name} of an object has changed")

    def code(self) -> types.CodeType:
        """The replacement code, with constants of this process."""
        code, consts = self.record.code
        loaded: types.CodeType = marshal.loads(code)
        return loaded.replace(
            co_consts=tuple(marshal.loads(each) if isinstance(each, bytes) else self._const(each) for each in consts)
        )

    def _const(self, const: Any) -> Any:
        original = self.context.function.__code__
        if type(const) is not tuple:
            return as_it_is(original) if const == ORIGINAL else self.object(const)
        from .made_constants import remade  # deferred: imports what reads and writes bytecode

        return remade(const, original, self.object)


def _signature(bound: Bound, number: int, kwargs: Any, expected: str) -> bool:
    return str(inspect.signature(bound.object(number), **dict(kwargs))) == expected


def _fields(bound: Bound, number: int, names: tuple[str, ...]) -> bool:
    return tuple(dataclass_fields(bound.object(number))) == names


_CHECKS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "IS": Bound.is_, "TYPE_IS": Bound.type_is, "CLASS_FINDS": Bound.class_finds, "TENSOR": Bound.tensor,
    "GLOBAL_STATE": Bound.global_state, "RELATION": Bound.relation, "PREDICATE": Bound.predicate,
}  # fmt: skip
_FACTS: dict[str, Callable[..., bool]] = {"signature": _signature, "fields": _fields}


def _short(description: Description) -> str:
    return " ".join(str(part) for part in description[:3])[:200]
