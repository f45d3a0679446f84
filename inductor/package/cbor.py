"""The part of CBOR (RFC 8949) in which a package describes itself: null, booleans, 64-bit integers, doubles, byte and
text strings, arrays and maps with text keys, all of definite length."""

from __future__ import annotations

import struct
from typing import Any

MAX_DEPTH = 64
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP = range(6)
_SIMPLE = {0xF4: False, 0xF5: True, 0xF6: None}
_DOUBLE = 0xFB
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}


class Malformed(ValueError):
    """The bytes are not a value in this encoding."""


def dumps(value: Any) -> bytes:
    """The bytes of a value. TypeError for one that has no encoding here, OverflowError for an int beyond 64 bits."""
    out = bytearray()
    _write(value, out)
    return bytes(out)


def _write(value: Any, out: bytearray) -> None:
    if value is None or isinstance(value, bool):
        out.append(0xF6 if value is None else 0xF5 if value else 0xF4)
    elif isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(f"{value} does not fit 64 bits")
        _head(_UNSIGNED if value >= 0 else _NEGATIVE, value if value >= 0 else -1 - value, out)
    elif isinstance(value, float):
        out += struct.pack(">Bd", _DOUBLE, value)
    elif isinstance(value, bytes):
        _head(_BYTES, len(value), out)
        out += value
    elif isinstance(value, str):
        data = value.encode()
        _head(_TEXT, len(data), out)
        out += data
    elif isinstance(value, list | tuple):
        _head(_ARRAY, len(value), out)
        for item in value:
            _write(item, out)
    elif isinstance(value, dict):
        _head(_MAP, len(value), out)
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a map has text keys, not {key!r}")
            _write(key, out)
            _write(item, out)
    else:
        raise TypeError(f"{value!r} cannot be encoded")


def _head(kind: int, number: int, out: bytearray) -> None:
    if number < 24:
        out.append(kind << 5 | number)
        return
    short = next(code for code, width in _WIDTHS.items() if number < 1 << 8 * width)
    out.append(kind << 5 | short)
    out += number.to_bytes(_WIDTHS[short], "big")


def loads(data: bytes) -> Any:
    """The value that is all of `data`. Malformed if it is not exactly one."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise Malformed(f"{len(data) - reader.at} bytes behind the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise Malformed("the value ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Malformed(f"values are nested deeper than {MAX_DEPTH}")
        head = self.take(1)[0]
        if head in _SIMPLE:
            return _SIMPLE[head]
        if head == _DOUBLE:
            return struct.unpack(">d", self.take(8))[0]
        kind, number = head >> 5, head & 31
        if kind > _MAP or number > 27:
            raise Malformed(f"the byte {head:#x} begins no value")
        if number >= 24:
            number = int.from_bytes(self.take(_WIDTHS[number]), "big")
        if kind in (_UNSIGNED, _NEGATIVE):
            if number >= 1 << 63:
                raise Malformed("an integer beyond 64 bits")
            return number if kind == _UNSIGNED else -1 - number
        if kind == _BYTES:
            return self.take(number)
        if kind == _TEXT:
            return self.text(number)
        if number > len(self.data) - self.at:  # each item has at least one byte
            raise Malformed("the value ends too early")
        if kind == _ARRAY:
            return [self.value(depth + 1) for _ in range(number)]
        return self.map(number, depth)

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a text that is not UTF-8") from error

    def map(self, count: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in found:
                raise Malformed(f"{key!r} is not a new text key of a map")
            found[key] = self.value(depth + 1)
        return found
