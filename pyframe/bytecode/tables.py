"""The two byte tables of a code object: source positions and exception regions (same format 3.11 to 3.14)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .isa import Position


class ExceptionEntry(NamedTuple):
    """One row of the exception table; `start`, `end` and `target` in bytes from the start of the code."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def parse_exception_table(table: bytes) -> list[ExceptionEntry]:
    """Decode `co_exceptiontable`."""
    entries: list[ExceptionEntry] = []
    data = iter(table)

    def varint() -> int:
        byte = next(data)
        value = byte & 63
        while byte & 64:
            byte = next(data)
            value = value << 6 | byte & 63
        return value

    while True:
        try:
            start = varint() * 2
        except StopIteration:
            return entries
        length, target, depth_lasti = varint() * 2, varint() * 2, varint()
        entries.append(ExceptionEntry(start, start + length, target, depth_lasti >> 1, bool(depth_lasti & 1)))


def encode_exception_table(entries: Iterable[ExceptionEntry]) -> bytes:
    """Encode rows that are sorted by start and do not overlap."""
    out = bytearray()

    def varint(value: int, first: int) -> None:
        shift = 0
        while value >> shift > 63:
            shift += 6
        while shift:
            out.append(first | 64 | (value >> shift & 63))
            first = 0
            shift -= 6
        out.append(first | value & 63)

    for entry in entries:
        varint(entry.start // 2, 128)
        varint((entry.end - entry.start) // 2, 0)
        varint(entry.target // 2, 0)
        varint(entry.depth << 1 | entry.lasti, 0)
    return bytes(out)


def _varint(out: bytearray, value: int) -> None:
    while value > 63:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)


def _svarint(out: bytearray, value: int) -> None:
    _varint(out, (-value << 1) | 1 if value < 0 else value << 1)


def _location(out: bytearray, pos: Position, line: int, units: int) -> int:
    """Append one entry for 1 to 8 code units; returns the new current line."""
    lineno, end_lineno, col, end_col = pos
    head = 128 | units - 1
    if lineno is None:
        out.append(head | 15 << 3)
        return line
    delta = lineno - line
    if col is None or end_col is None or end_lineno is None or end_lineno < lineno:
        out.append(head | 13 << 3)
        _svarint(out, delta)
        return lineno
    if end_lineno == lineno:
        if delta == 0 and col < 80 and 0 <= end_col - col < 16:
            out.append(head | col >> 3 << 3)
            out.append((col & 7) << 4 | end_col - col)
            return lineno
        if 0 <= delta < 3 and col < 128 and end_col < 128:
            out += bytes((head | 10 + delta << 3, col, end_col))
            return lineno
    out.append(head | 14 << 3)
    _svarint(out, delta)
    _varint(out, end_lineno - lineno)
    _varint(out, col + 1)
    _varint(out, end_col + 1)
    return lineno


def encode_line_table(runs: Iterable[tuple[Position, int]], firstlineno: int) -> bytes:
    """Encode `co_linetable` from (position, number of code units) in code order."""
    out = bytearray()
    line = firstlineno
    for pos, units in runs:
        while units > 0:
            step = min(units, 8)
            line = _location(out, pos, line, step)
            units -= step
    return bytes(out)
