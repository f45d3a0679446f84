"""Bytecode of every supported CPython as one instruction set; imports neither torch nor the rest of pyframe.

    cc = canonicalize(function.__code__)      # isa.CanonicalCode: resolved arguments, labels, try regions
    code = materialize(cc)                    # a code object of the running version

`isa` documents the instruction set. `codec` and `tables` read and write the bytes of a code object, `dialect`
translates between real and canonical instructions, and the tables of `py311` to `py314` say how each version differs.
`flow` and `verify` analyse canonical code.
"""

from __future__ import annotations

import sys
import types

from . import py311, py312, py313, py314
from .dialect import Decoder, Dialect, Encoder
from .isa import (
    NO_POSITION,
    OPS,
    ArgKind,
    CanonicalCode,
    Instr,
    Label,
    Op,
    Position,
    TryRegion,
    call_sequence,
    index_of,
    instr_at,
)
from .verify import VerifyError, verify

_DIALECTS: dict[tuple[int, int], Dialect] = {
    module.DIALECT.version: module.DIALECT for module in (py311, py312, py313, py314)
}
SUPPORTED_VERSIONS = tuple(sorted(_DIALECTS))


def _running_dialect() -> Dialect:
    dialect = _DIALECTS.get(sys.version_info[:2])
    if dialect is None:
        supported = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED_VERSIONS)
        raise ImportError(
            f"CPython {sys.version_info[0]}.{sys.version_info[1]} is not supported (have {supported})"
        )
    undeclared = dialect.undeclared()
    if undeclared:
        raise ImportError(f"bytecode table of {dialect.version} lacks {sorted(undeclared)}")
    return dialect


_RUNNING = _running_dialect()


def canonicalize(code: types.CodeType) -> CanonicalCode:
    """Decode a code object of the running version."""
    return Decoder(code, _RUNNING).run()


def materialize(cc: CanonicalCode) -> types.CodeType:
    """Encode canonical code for the running version; ValueError if it has no real form here."""
    return Encoder(cc, _RUNNING).run()


def canonical_ops(version: tuple[int, int] | None = None) -> frozenset[str]:
    """Every op that `canonicalize` can produce on a version (default: the running one)."""
    dialect = _RUNNING if version is None else _DIALECTS[version[:2]]
    return dialect.canonical_ops()


__all__ = [
    "NO_POSITION",
    "OPS",
    "SUPPORTED_VERSIONS",
    "ArgKind",
    "CanonicalCode",
    "Instr",
    "Label",
    "Op",
    "Position",
    "TryRegion",
    "VerifyError",
    "call_sequence",
    "canonical_ops",
    "canonicalize",
    "index_of",
    "instr_at",
    "materialize",
    "verify",
]
