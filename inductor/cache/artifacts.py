"""Cache entries as bytes that another process or machine can store: what one process used, without a shared directory.

The format is a header, a checksum, and the compressed entries, each with its name. Entries are keyed by all that they
depend on, so entries that do not fit a machine are stored there and never used.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator

from .file_store import Cache

_HEADER = b"pyframe cache 1\n"
_DIGEST = 32
_NAME = re.compile(r"([0-9a-f]{64})(\.\w+)")
_SIZES = struct.Struct("<HQ")


def pack(cache: Cache) -> bytes | None:
    """The entries that this process has read or written, as bytes; None if there are none. Entries that were removed
    from the directory meanwhile are left out."""
    parts = []
    for key, suffix in list(cache.used):
        data = cache.get(key, suffix)
        if data is not None:
            name = f"{key}{suffix}".encode()
            parts += [_SIZES.pack(len(name), len(data)), name, data]
    if not parts:
        return None
    packed = zlib.compress(b"".join(parts), 1)
    return _HEADER + hashlib.sha256(packed).digest() + packed


def unpack(cache: Cache, data: bytes) -> int:
    """Stores the entries in these bytes; returns how many. ValueError, and nothing is stored, for bytes that `pack` did
    not make."""
    start = len(_HEADER) + _DIGEST
    packed = data[start:]
    if data[: len(_HEADER)] != _HEADER:
        raise ValueError("these bytes are not cache entries of this version")
    if data[len(_HEADER) : start] != hashlib.sha256(packed).digest():
        raise ValueError("these cache entries are damaged")
    entries = list(_entries(zlib.decompress(packed)))
    for key, suffix, contents in entries:
        if cache.get(key, suffix) is None:
            cache.put(key, contents, suffix)
    return len(entries)


def _entries(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    at = 0
    while at < len(data):
        length, size = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        name = _NAME.fullmatch(data[at : at + length].decode())
        if name is None:
            raise ValueError("these cache entries have names that no entry has")
        at += length
        yield name[1], name[2], data[at : at + size]
        at += size
