"""Round-trips the standard library of the running CPython; argument: how many modules (0 for all)."""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
import types
from pathlib import Path

from bytecode_support import shape

from pyframe.bytecode import OPS, canonical_ops, canonicalize, materialize, verify
from pyframe.bytecode.flow import max_stack_depth
from tools.code_objects import nested_codes, same_constant


def check(code: types.CodeType) -> None:
    cc = canonicalize(code)
    verify(cc)
    for instr in cc.real_instrs():
        assert instr.op in canonical_ops(), instr.op
    rebuilt = materialize(cc)
    again = canonicalize(rebuilt)
    rows, regions, header = shape(cc)
    rows_again, regions_again, header_again = shape(again)
    for index, (left, right) in enumerate(zip(rows, rows_again, strict=False)):
        assert left[0] == right[0] and left[2] == right[2] and same_constant(left[1], right[1]), (
            index,
            left,
            right,
        )
    assert len(rows) == len(rows_again)
    assert regions == regions_again
    assert header == header_again
    assert rebuilt.co_stacksize > max_stack_depth(again)


def main(limit: int) -> None:
    library = Path(os.__file__).parent
    files = sorted(path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    if limit:
        files = random.Random(20).sample(files, min(limit, len(files)))
    codes = 0
    failures: dict[str, str] = {}
    for path in files:
        try:
            top = compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError):  # the library holds malformed files on purpose
            continue
        for code in nested_codes(top):
            codes += 1
            try:
                check(code)
            except Exception:  # noqa: BLE001  reported by the parent
                failures[f"{path.relative_to(library)}:{code.co_qualname}"] = traceback.format_exc(limit=-3)
    print(json.dumps({"codes": codes, "ops": len(canonical_ops() & OPS.keys()), "failures": failures}))


main(int(sys.argv[1]))
