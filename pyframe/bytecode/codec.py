"""Reads and writes the bytes of a code object: `read` splits them into real instructions, `RawAssembler` builds a code
object from such instructions.

This layer knows opcode numbers, inline caches, EXTENDED_ARG, jump distances, and where the line table and the exception
table go (`tables` has their formats), but not what an instruction does. The numbers of the running version come from
the standard `opcode` module. Why it does not use the `bytecode` package: docs/decisions/0001-bytecode-codec.md.
"""

from __future__ import annotations

import opcode
import types
from bisect import bisect_right
from typing import Any, NamedTuple

from .isa import CanonicalCode, Label, Position, TryRegion
from .tables import ExceptionEntry, encode_exception_table, encode_line_table, parse_exception_table

EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]
HAVE_ARGUMENT = opcode.HAVE_ARGUMENT


def _cache_table() -> list[int]:
    """How many inline cache units follow an instruction, by opcode number."""
    entries: Any = vars(opcode)[
        "_inline_cache_entries"
    ]  # a list by opcode number up to 3.12, a dict by name from 3.13
    if isinstance(entries, dict):
        table = [0] * 256
        for name, count in entries.items():
            if opcode.opmap.get(name, 256) < 256:
                table[opcode.opmap[name]] = count
        return table
    return list(entries[:256])


CACHES = _cache_table()
OPNAMES = list(opcode.opname[:256])


class Raw(NamedTuple):
    """One real instruction, EXTENDED_ARG folded in; offsets in bytes."""

    op: str
    arg: int
    offset: int  # of its first EXTENDED_ARG, where jumps to it land
    end: int  # after its caches, where jump distances are counted from
    pos: Position


def read(code: types.CodeType) -> tuple[list[Raw], list[ExceptionEntry]]:
    """Decode instructions (caches dropped) and exception table."""
    data = code.co_code  # the unspecialized form
    positions = list(code.co_positions())
    raws = []
    cache = OPNAMES.index("CACHE")
    size = len(data)
    start = index = 0
    extended = 0
    new = Position._make
    while index < size:
        op = data[index]
        arg = data[index + 1] | extended
        index += 2
        if op == EXTENDED_ARG:
            extended = arg << 8
            continue
        end = index + 2 * CACHES[op]
        if op != cache:
            raws.append(Raw(OPNAMES[op], arg, start, end, new(positions[start >> 1])))
        start = index = end
        extended = 0
    return raws, parse_exception_table(code.co_exceptiontable)


def jump_target(raw: Raw) -> int:
    """Byte offset that a relative jump goes to."""
    return raw.end - 2 * raw.arg if "BACKWARD" in raw.op else raw.end + 2 * raw.arg


class _Unit:
    """One real instruction to be written; the `arg` of a jump to `target` is set by `_layout`.

    `offset`, `words` (with EXTENDED_ARG) and `caches` are in code units of two bytes.
    """

    __slots__ = ("arg", "backward", "caches", "number", "offset", "pos", "target", "words")

    def __init__(self, number: int, arg: int | Label, pos: Position, backward: bool) -> None:
        self.number = number
        self.target: Label | None = None
        self.arg = 0
        if isinstance(arg, Label):
            self.target = arg
        else:
            self.arg = arg
        self.pos = pos
        self.backward = backward
        self.caches = CACHES[number]
        self.words = _words(self.arg)
        self.offset = 0


def _words(arg: int) -> int:
    """Code units that an argument takes: the instruction and its EXTENDED_ARGs."""
    return 1 if arg < 256 else 2 if arg < 65536 else 3 if arg < 1 << 24 else 4


class RawAssembler:
    """Collects real instructions and labels; resolves jumps; encodes bytes and tables."""

    def __init__(self) -> None:
        self.items: list[_Unit | Label] = []

    def put(self, op: str, arg: int | Label, pos: Position) -> None:
        """Append the real instruction `op`."""
        self.items.append(_Unit(opcode.opmap[op], arg, pos, "BACKWARD" in op))

    def label(self, label: Label) -> None:
        """Place `label` before the next instruction."""
        self.items.append(label)

    def _layout(self) -> dict[Label, int]:
        """Assign code-unit offsets, widening jumps until all distances fit; returns the offset of each label."""
        places: dict[Label, int] = {}
        while True:
            offset = 0
            for item in self.items:
                if isinstance(item, Label):
                    places[item] = offset
                else:
                    item.offset = offset
                    offset += item.words + item.caches
            grown = False
            for item in self.items:
                if isinstance(item, Label) or item.target is None:
                    continue
                end = item.offset + item.words + item.caches
                distance = places[item.target] - end
                item.arg = -distance if item.backward else distance
                if item.arg < 0:
                    raise ValueError(f"{OPNAMES[item.number]} cannot reach {item.target} behind it")
                words = _words(item.arg)
                if words > item.words:
                    item.words = words
                    grown = True
            if not grown:
                return places

    def _exception_entries(self, regions: list[TryRegion], places: dict[Label, int]) -> list[ExceptionEntry]:
        """Flatten regions (first match wins) to sorted, disjoint rows."""
        units = [item for item in self.items if not isinstance(item, Label)]
        if not regions or not units:
            return []
        starts = [unit.offset for unit in units]
        owner: list[TryRegion | None] = [None] * len(units)
        for candidate in reversed(regions):
            first = bisect_right(starts, places[candidate.start] - 1)
            last = bisect_right(starts, places[candidate.end] - 1)
            for index in range(first, last):
                owner[index] = candidate
        entries: list[ExceptionEntry] = []
        index = 0
        while index < len(units):
            region = owner[index]
            first = index
            while index < len(units) and owner[index] is region:
                index += 1
            if region is not None:
                end = units[index].offset if index < len(units) else end_of(units[-1])
                target = places[region.handler] * 2
                entries.append(ExceptionEntry(starts[first] * 2, end * 2, target, region.depth, region.lasti))
        return entries

    def finish(
        self, cc: CanonicalCode, consts: tuple, names: tuple[str, ...], stacksize: int
    ) -> types.CodeType:
        """Encode everything collected as a code object with the header of `cc`."""
        places = self._layout()
        out = bytearray()
        runs: list[tuple[Position, int]] = []
        run_pos: Position | None = None
        run_units = 0
        for item in self.items:
            if isinstance(item, Label):
                continue
            arg, number = item.arg, item.number
            for shift in range(8 * (item.words - 1), 0, -8):
                out += bytes((EXTENDED_ARG, arg >> shift & 255))
            out += bytes((number, arg & 255))
            out += bytes(2 * item.caches)
            units = item.words + item.caches
            if item.pos == run_pos:
                run_units += units
            else:
                if run_pos is not None:
                    runs.append((run_pos, run_units))
                run_pos, run_units = item.pos, units
        if run_pos is not None:
            runs.append((run_pos, run_units))
        return types.CodeType(
            cc.argcount,
            cc.posonlyargcount,
            cc.kwonlyargcount,
            len(cc.varnames),
            stacksize,
            cc.flags,
            bytes(out),
            consts,
            names,
            cc.varnames,
            cc.filename,
            cc.name,
            cc.qualname,
            cc.firstlineno,
            encode_line_table(runs, cc.firstlineno),
            encode_exception_table(self._exception_entries(cc.regions, places)),
            cc.freevars,
            cc.cellvars,
        )


def end_of(unit: _Unit) -> int:
    """The code-unit offset after `unit`."""
    return unit.offset + unit.words + unit.caches
