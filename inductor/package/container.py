"""The file around a package: a header with the version, a checksum and a signature, a description, and sections.

    offset  bytes
    0       8     MAGIC
    8       4     VERSION
    12      4     flags: bit 0 if the file is signed
    16      8     size of the file
    24      8     offset of the description (HEADER)
    32      8     size of the description
    40      24    zero
    64      32    SHA-256 of the bytes 0 to 63 followed by the description
    96      32    HMAC-SHA-256 of the 32 bytes before, or zero
    128           the description: a CBOR map whose "sections" has [place, size, SHA-256] for each section
    ...           the sections; places count bytes from the first multiple of ALIGNMENT behind the description

Numbers are unsigned and little-endian. A checksum covers every byte that is used: the header's the description, the
description's the sections. The signature covers the header's checksum, and thereby all.
"""

from __future__ import annotations

import hashlib
import hmac
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import cbor
from .errors import PackageError

MAGIC = b"\x89PYFRAME"
VERSION = 2
HEADER = 128
ALIGNMENT = 64
SIGNED = 1
_FIELDS = struct.Struct("<8sIIQQQ24x")
_DIGEST = hashlib.sha256().digest_size


def write(path: str | os.PathLike[str], description: Mapping[str, Any], sections: Sequence[bytes | memoryview],
          key: bytes | None = None) -> None:  # fmt: skip
    """Write a package, signed with `key` if one is given. The file appears as a whole or not at all. OSError as for
    writing a file."""
    places: list[tuple[int, int, bytes]] = []
    end = 0
    for data in sections:
        places.append((_aligned(end), len(data), hashlib.sha256(data).digest()))
        end = _aligned(end) + len(data)
    text = cbor.dumps({**description, "sections": places})
    first = _aligned(HEADER + len(text))
    head = _FIELDS.pack(MAGIC, VERSION, SIGNED if key is not None else 0, first + end, HEADER, len(text))
    digest = hashlib.sha256(head + text).digest()
    mark = hmac.digest(key, digest, "sha256") if key is not None else bytes(_DIGEST)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(partial, "wb") as file:
            file.write(head + digest + mark + text)
            for (at, *_), data in zip(places, sections, strict=True):
                file.write(bytes(first + at - file.tell()))
                file.write(data)
            file.write(bytes(first + end - file.tell()))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Container:
    """An open package: its description, and its sections as parts of the mapped file.

    The memory is private to the process: what is written to it does not reach the file. PackageError if the file is not
    a package of this version, or is damaged, or not signed with `key` if one is given. OSError as for opening it.
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes | None = None) -> None:
        self.path = os.fspath(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < HEADER:
                raise self.error("it is shorter than a header")
            self._memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        self.description = self._described(size, key)
        self._sections = self._placed(size)

    def error(self, why: str) -> PackageError:
        return PackageError(f"{self.path}: {why}")

    def _described(self, size: int, key: bytes | None) -> dict[str, Any]:
        magic, version, flags, whole, at, length = _FIELDS.unpack(self._memory[: _FIELDS.size])
        if magic != MAGIC:
            raise self.error("this is not a package of pyframe.package()")
        if version != VERSION:
            raise self.error(f"it has version {version} of the format; this release reads version {VERSION}")
        if whole != size or at != HEADER or length > size - HEADER:
            raise self.error(f"it is damaged: it has {size} bytes, and its header says {whole}")
        self._length = length
        digest, mark = self._memory[64:96], self._memory[96:128]
        self.digest = digest  # of the whole content: the description has the digests of the sections
        text = self._memory[at : at + length]
        if digest != hashlib.sha256(self._memory[:64] + text).digest():
            raise self.error("it is damaged: its description does not have its checksum")
        if key is not None:
            if not flags & SIGNED:
                raise self.error("it is not signed, and a key was given")
            if not hmac.compare_digest(mark, hmac.digest(key, digest, "sha256")):
                raise self.error("its signature is not one by the given key")
        try:
            found = cbor.loads(text)
        except cbor.Malformed as error:
            raise self.error(f"its description cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise self.error("its description is not a map")
        return found

    def _placed(self, size: int) -> list[tuple[int, int, bytes]]:
        placed, first = self.description.get("sections"), _aligned(HEADER + self._length)
        if not isinstance(placed, list):
            raise self.error("its description has no sections")
        for each in placed:
            if not (isinstance(each, list) and list(map(type, each)) == [int, int, bytes]):
                raise self.error("its description has a section without a place")
            if not (0 <= each[0] and 0 <= each[1] and first + each[0] + each[1] <= size) or each[0] % ALIGNMENT:
                raise self.error("a section is not within the file")
        return [(first + at, length, digest) for at, length, digest in placed]

    def section(self, number: int) -> memoryview:
        """The bytes of a section, which may be written to, after its checksum was compared. PackageError if it differs,
        or if there is no such section."""
        if not 0 <= number < len(self._sections):
            raise self.error(f"it has no section {number}")
        at, length, digest = self._sections[number]
        data = memoryview(self._memory)[at : at + length]
        if hashlib.sha256(data).digest() != digest:
            raise self.error(f"it is damaged: section {number} does not have its checksum")
        return data
