"""Hashes of code objects that are equal in all processes for equal source: of all that a code object consists of."""

from __future__ import annotations

import enum
import hashlib
import types
import weakref
from typing import Any

_PLAIN = {int, float, complex, str, bytes, bool, type(None), type(Ellipsis)}  # whose text tells values apart
_OWN = f"{__name__.partition('.')[0]}."
_known: dict[int, tuple[weakref.ref[types.CodeType], str]] = {}


class NotKept(Exception):
    """Something has no description that is valid in another process. The text says what."""


def code_hash(code: types.CodeType) -> str:
    """A hash of the instructions, constants, names, lines and file of a code object and of those in it. NotKept for
    code with constants that only this process has, such as code that replaces a frame."""
    known = _known.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    digest = hashlib.sha256(repr(_parts(code)).encode("utf-8", "surrogatepass"))
    _add(digest, code.co_consts)
    found = digest.hexdigest()
    _known[id(code)] = weakref.ref(code), found
    return found


def _parts(code: types.CodeType) -> tuple[Any, ...]:
    """All parts but the constants: numbers, names and bytes, whose text tells them apart."""
    return (
        code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_stacksize,
        code.co_exceptiontable,
        code.co_linetable, code.co_firstlineno, code.co_filename, code.co_qualname,
    )  # fmt: skip


def _add(digest: Any, value: Any) -> None:
    """Add a constant of a code object: its type, its length, and what it consists of."""
    kind = type(value)
    if kind is tuple and set(map(type, value)) <= _PLAIN:  # most tuples of constants
        text = repr(value).encode("utf-8", "surrogatepass")
        digest.update(b"plain" + len(text).to_bytes(8, "little") + text)
        return
    digest.update(kind.__name__.encode() + b"\0")
    if kind is bytes:
        digest.update(len(value).to_bytes(8, "little") + value)
    elif kind is tuple:
        digest.update(len(value).to_bytes(8, "little"))
        for item in value:
            _add(digest, item)
    elif kind is frozenset:  # whose order depends on the process
        parts = []
        for item in value:
            part = hashlib.sha256()
            _add(part, item)
            parts.append(part.digest())
        _add(digest, tuple(sorted(parts)))
    elif kind is types.CodeType:
        digest.update(code_hash(value).encode())
    elif issubclass(kind, enum.Enum) and kind.__module__.startswith(_OWN):  # in a resume function
        _add(digest, (kind.__module__, kind.__qualname__, value.name))
    elif kind is slice:
        _add(digest, (value.start, value.stop, value.step))
    elif kind in _PLAIN:
        text = (value if kind is str else repr(value)).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    else:
        raise NotKept(f"a code object with a constant of type {kind.__name__}")
