"""Shared by the worker scripts here, which run under any supported CPython, without pytest or torch."""

from __future__ import annotations

import json
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def import_without_torch() -> None:
    """Make `pyframe.bytecode` and `pyframe.emit` importable without running the packages above them."""
    sys.path.insert(0, str(ROOT))
    for name in ("pyframe", "pyframe.emit"):
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT.joinpath(*name.split(".")))]
        sys.modules[name] = package


import_without_torch()

from pyframe.bytecode import CanonicalCode, Instr, Label, canonicalize, materialize


def rebuild(code: types.CodeType) -> types.CodeType:
    """`code` and everything nested in it, through canonical form and back."""
    consts = tuple(rebuild(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return materialize(canonicalize(code.replace(co_consts=consts)))


def shape(cc: CanonicalCode) -> tuple[list, list, tuple]:
    """Everything that a round trip must keep, labels as ordinals."""
    place: dict[Label, int] = {}
    count = 0
    for item in cc.instrs:
        if isinstance(item, Label):
            place[item] = count
        else:
            count += 1
    rows = [
        (item.op, place[item.arg] if isinstance(item.arg, Label) else item.arg, item.pos)
        for item in cc.instrs
        if isinstance(item, Instr)
    ]
    regions = [
        (place[r.start], place[r.end], place[r.handler], r.depth, r.lasti)
        for r in cc.regions
        if place[r.start] < place[r.end]
    ]
    arguments = (cc.argcount, cc.posonlyargcount, cc.kwonlyargcount, cc.varnames, cc.cellvars, cc.freevars)
    return (
        rows,
        regions,
        (*arguments, cc.flags, cc.name, cc.qualname, cc.filename, cc.firstlineno, cc.docstring),
    )


def report(cases: dict[str, Callable[[], Any]]) -> None:
    """Run named cases and print {"passed": n, "failures": {name: traceback}} as JSON."""
    failures = {}
    for name, case in cases.items():
        try:
            case()
        except Exception:  # noqa: BLE001  the harness reports whatever a case raises
            failures[name] = traceback.format_exc(limit=-4)
    print(json.dumps({"passed": len(cases) - len(failures), "failures": failures}))
