"""Lowers guards to the flat program that C evaluates.

Each distinct Source is read once: one accessor and one register, shared by all guards on it, all sources derived
from it, and the graph inputs. `SOURCE_ROWS` and `KIND_ROWS` map kinds of sources and guards to operations; both are
checked against the C table when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyframe import _C

from . import expr
from .guard import KINDS, Guard, TensorMeta
from .guard_reference import device_numbers
from .source import DictItemSource, InstanceDictSource, Source

# One operation, without its destination, with Sources in place of registers: (name, *operands).
Row = tuple[Any, ...]

OPERANDS: dict[str, str] = {name: operands for name, _, operands, _ in _C.op_table()}
# The operands of each operation without its destination: "r" a source, "R" a tuple of sources, others as they are.
_LETTERS = {name: operands.removeprefix("d") for name, operands in OPERANDS.items()}
ACCESSOR_NAMES = {name for name, kind, _, _ in _C.op_table() if kind == "accessor"}

FUNCTION_PARTS = {
    "__code__": "FUNC_CODE",
    "__defaults__": "FUNC_DEFAULTS",
    "__kwdefaults__": "FUNC_KWDEFAULTS",
    "__closure__": "FUNC_CLOSURE",
    "__globals__": "FUNC_GLOBALS",
}


def _root(source: Source) -> Row:
    return (source.accessor,)


def _root_with_payload(source: Source) -> Row:
    return (source.accessor, source.payload())


def _step(source: Source) -> Row:
    return (source.accessor, source.base)


def _step_with_payload(source: Source) -> Row:
    return (source.accessor, source.base, source.payload())


def _module_item(source: Source) -> Row:
    where, attribute = source.payload()
    assert source.base is not None
    return ("DICT_GET", DictItemSource(InstanceDictSource(source.base), where), attribute)


def _function_part(source: Source) -> Row:
    return (FUNCTION_PARTS[source.payload()], source.base)


def _call(source: Source) -> Row:
    return ("CALL", source.payload(), (source.base,))


SOURCE_ROWS: dict[str, Callable[[Source], Row]] = {
    "LOCAL": _root_with_payload,
    "CLOSURE": _root_with_payload,
    "GLOBAL": _root_with_payload,
    "GLOBALS": _root,
    "FUNC": _root,
    "CONST": _root_with_payload,
    "ATTR": _step_with_payload,
    "INSTANCE_DICT": _step,
    "DICT_GET": _step_with_payload,
    "MODULE_ITEM": _module_item,
    "SEQ_ITEM": _step_with_payload,
    "DICT_KEY_AT": _step_with_payload,
    "TYPE": _step,
    "FUNC_PART": _function_part,
    "CELL_CONTENTS": _step,
    "CALL": _call,
    "TENSOR_SIZE": _step_with_payload,
    "TENSOR_STRIDE": _step_with_payload,
}


def tensor_payload(meta: TensorMeta) -> _C.TensorPayload:
    """The operand of the TENSOR check for a TensorMeta."""
    kind, index = device_numbers(meta.device)
    sizes, strides = tuple(meta.sizes), tuple(meta.strides)
    return (
        meta.type,
        meta.dtype,
        kind,
        index,
        len(sizes),
        sizes,
        strides,
        meta.requires_grad,
        meta.dispatch_keys,
    )


def _predicate(guard: Guard) -> Row:
    function, further, _ = guard.payload
    first = () if guard.source is None else (guard.source,)
    return ("PREDICATE", function, (*first, *further))


def _relation(guard: Guard) -> Row:
    known = isinstance(guard.payload, expr.Holds)
    tree = guard.payload.tree if known else guard.payload
    inputs = expr.sources(tree)
    steps = None if known else expr.program(tree, {source: i for i, source in enumerate(inputs)})
    return ("PREDICATE", expr.Holds(tree), inputs) if steps is None else ("RELATION", steps, inputs)


def _class_finds(guard: Guard) -> Row:
    reads = guard.payload
    return ("CLASS_FINDS", guard.source, (reads.metaclass, reads.method_order, reads.entries))


KIND_ROWS: dict[str, Callable[[Guard], Row]] = {
    "TYPE": lambda g: ("TYPE_IS", g.source, g.payload),
    "ID": lambda g: ("IS", g.source, g.payload),
    "NOT_ID": lambda g: ("IS_NOT", g.source, g.payload),
    "EQUALS": lambda g: ("EQUALS", g.source, g.payload),
    "LEN": lambda g: ("LEN_EQ", g.source, g.payload),
    "DICT_KEYS": lambda g: ("DICT_KEYS", g.source, tuple(g.payload)),
    "DICT_HAS": lambda g: ("HAS_KEY", g.source, g.payload),
    "DICT_LACKS": lambda g: ("NO_KEY", g.source, g.payload),
    "HAS_ATTR": lambda g: ("HAS_ATTR", g.source, g.payload),
    "NO_ATTR": lambda g: ("NO_ATTR", g.source, g.payload),
    "CLASS_FINDS": _class_finds,
    "TENSOR": lambda g: ("TENSOR", g.source, tensor_payload(g.payload)),
    "GLOBAL_STATE": lambda g: ("GLOBAL_STATE", g.payload),
    "SAME": lambda g: ("SAME", g.source, g.payload),
    "DISTINCT": lambda g: ("DISTINCT", tuple(g.payload)),
    "RELATION": _relation,
    "PREDICATE": _predicate,
}

NEEDS_TORCH = {"TENSOR", "GLOBAL_STATE"}


def source_row(source: Source) -> Row:
    """The accessor operation that reads `source`; its base is still a Source, not a register."""
    return SOURCE_ROWS[source.accessor](source)


def guard_row(guard: Guard) -> Row:
    """The check operation for `guard`, with Sources in place of registers."""
    return KIND_ROWS[guard.kind](guard)


@dataclass(frozen=True, slots=True)
class LoweredGuards:
    """A guard program, with the meaning of its operations and registers.

    ``guard_of_op[i]`` is the index of the guard that operation ``i`` serves, or None for one that only fetches
    a graph input. ``registers`` gives the register of every source that the program reads; graph inputs have the
    first ones.
    """

    program: _C.GuardProgram
    ops: tuple[tuple[Any, ...], ...]
    guard_of_op: tuple[int | None, ...]
    registers: dict[Source, int]


class _Lowering:
    def __init__(self, inputs: Iterable[Source]) -> None:
        self.ops: list[tuple[Any, ...]] = []
        self.guard_of_op: list[int | None] = []
        self.registers: dict[Source, int] = {source: i for i, source in enumerate(dict.fromkeys(inputs))}
        self.written: set[Source] = set()
        self.guard: int | None = None

    def register(self, source: Source) -> int:
        if source not in self.written:
            name, *operands = self._with_registers(source_row(source))
            self.written.add(source)
            self._emit((name, self.registers.setdefault(source, len(self.registers)), *operands))
        return self.registers[source]

    def check(self, row: Row) -> None:
        self._emit(self._with_registers(row))

    def _with_registers(self, row: Row) -> tuple[Any, ...]:
        found = [row[0]]
        for letter, value in zip(_LETTERS[row[0]], row[1:], strict=True):
            if letter == "r":
                value = self.register(value)
            elif letter == "R":
                value = tuple([self.register(source) for source in value])
            found.append(value)
        return tuple(found)

    def _emit(self, op: tuple[Any, ...]) -> None:
        self.ops.append(op)
        self.guard_of_op.append(self.guard)


def lower(guards: Iterable[Guard], inputs: Iterable[Source] = ()) -> LoweredGuards:
    """Lower `guards`, in order, and load every source of `inputs` into a register.

    Raises ValueError or TypeError if a guard's payload does not fit its kind.
    """
    inputs = tuple(inputs)
    lowering = _Lowering(inputs)
    n_inputs = len(lowering.registers)
    for index, guard in enumerate(guards):
        lowering.guard = index
        if guard.kind in NEEDS_TORCH:
            _C.bind_torch()
        lowering.check(guard_row(guard))
    lowering.guard = None
    for source in inputs:
        lowering.register(source)
    program = _C.GuardProgram(lowering.ops, len(lowering.registers), n_inputs)
    return LoweredGuards(program, tuple(lowering.ops), tuple(lowering.guard_of_op), lowering.registers)


def _check_tables() -> None:
    def accessors_of(base: type[Source]) -> set[str]:
        here = {base.accessor} if base.accessor else set()
        return here.union(*(accessors_of(derived) for derived in base.__subclasses__()))

    if accessors_of(Source) != set(SOURCE_ROWS):
        raise ImportError(
            f"sources without a row, or rows without a source: {accessors_of(Source) ^ set(SOURCE_ROWS)}"
        )
    if set(KINDS) != set(KIND_ROWS):
        raise ImportError(f"guard kinds without a row, or rows without a kind: {set(KINDS) ^ set(KIND_ROWS)}")
    if not set(FUNCTION_PARTS.values()) <= ACCESSOR_NAMES:
        raise ImportError("the C table lacks an accessor of function parts")


_check_tables()
