"""Checks our bytecode codec against the `bytecode` package, over real code objects of the running CPython.

    python tools/bytecode_oracle.py                       # the standard library, torch.nn and transformers
    python tools/bytecode_oracle.py --files 40            # a sample of that many files
    python tools/bytecode_oracle.py --captures            # what pyframe emits for the programs of tests/programs

Needs `pyframe.bytecode` and the package, not torch (except for `--captures`). For each code object:

    units       `codec.read` agrees with `ConcreteBytecode`: instructions, arguments, offsets, jump targets, positions
                and rows of the exception table
    decode      `canonicalize(code)` and the package's reading of the code do the same, see `bytecode_oracle_listing`
    encode      the same for `materialize(canonicalize(code))`
    bound       no LOAD_FAST that CPython checks for an unbound local has lost its check
    stack       the stack size of the code we wrote is what it needs or more, and CPython's own or up to two more
    lines       every code unit has the position that was meant, and `co_lines`, which the interpreter reads by another
                way than `co_positions`, says the same

The constants, names and header of a round trip are compared in `tests/bytecode/worker_roundtrip.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import random
import sys
import time
import traceback
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import bytecode  # noqa: E402
from bytecode_oracle_listing import Mismatch, canonical_listing, compare_listings, package_listing  # noqa: E402

from pyframe.bytecode import CanonicalCode, canonicalize, materialize  # noqa: E402
from pyframe.bytecode.codec import jump_target, read  # noqa: E402
from tools.code_objects import nested_codes  # noqa: E402

MAX_SHOWN = 10
MAX_FOLLOWED = 64  # local variables that CPython's analysis of unbound locals follows from block to block
PACKAGES = ("torch/nn", "transformers/models")


# ---- one code object


def check_code(code: types.CodeType) -> None:
    """Everything in the list above, for a code object that CPython compiled."""
    check_units(code)
    canonical = canonicalize(code)
    ours = canonical_listing(canonical)
    original = compare_listings(ours, package_listing(code))
    written = materialize(canonical)
    check_units(written)
    rewritten = compare_listings(ours, package_listing(written))
    followed = code.co_varnames[:MAX_FOLLOWED]
    for at, op in original.items():
        if op == "LOAD_FAST_CHECK" and ours.steps[at].arg in followed and rewritten[at] != op:
            raise Mismatch(f"LOAD_FAST_CHECK {ours.steps[at].arg} of step {at} became {rewritten[at]}")
    check_stack(written, code)
    check_lines(written)


def check_emitted(canonical: CanonicalCode, written: types.CodeType) -> None:
    """The same for a code object that `materialize(canonical)` wrote."""
    check_units(written)
    compare_listings(canonical_listing(canonical), package_listing(written))
    check_stack(written, None)
    check_lines(written)


def check_units(code: types.CodeType) -> None:
    """Instructions, jump targets, positions and the exception table, each at its offset in bytes."""
    package = bytecode.ConcreteBytecode.from_code(code)
    theirs, offset = [], 0
    for instr in package:
        target = instr.get_jump_target(offset // 2) if instr.name != "END_ASYNC_FOR" else None
        loc = instr.location
        pos = (loc.lineno, loc.end_lineno, loc.col_offset, loc.end_col_offset)
        if instr.name != "CACHE":
            theirs.append((instr.name, instr.arg, offset, None if target is None else 2 * target, pos))
        offset += instr.size
    raws, table = read(code)
    ours = []
    for raw, their in zip(raws, theirs, strict=True):
        arg = their[1] if their[1] is bytecode.UNSET else raw.arg  # the byte of an op without argument says nothing
        target = None if their[3] is None else jump_target(raw)
        ours.append((raw.op, arg, raw.offset, target, tuple(raw.pos)))
    if ours != theirs:
        raise Mismatch(f"units: {next((a, b) for a, b in zip(ours, theirs, strict=True) if a != b)}")
    rows = [
        (2 * entry.start_offset, 2 * (entry.stop_offset + 1), 2 * entry.target, entry.stack_depth, entry.push_lasti)
        for entry in package.exception_table
    ]
    if [tuple(entry) for entry in table] != rows:
        raise Mismatch(f"exception table: {table} {rows}")


def check_stack(written: types.CodeType, compiled: types.CodeType | None) -> None:
    """`compiled`: what CPython made of the same code."""
    size, needed = written.co_stacksize, stack_need(written)
    if needed > size:
        raise Mismatch(f"stack size {size}, {needed} needed")
    if compiled is not None and size > compiled.co_stacksize + 2:
        raise Mismatch(f"stack size {size}, CPython's {compiled.co_stacksize}")


def stack_need(code: types.CodeType) -> int:
    """The deepest stack of any path, by the package's reading and CPython's `dis.stack_effect`.

    `compute_stacksize` of the package asks for more than is needed where exception handlers are nested.
    """
    package = bytecode.ConcreteBytecode.from_code(code)
    at, offset = {}, 0
    for instr in package:
        at[offset] = instr
        offset += instr.size // 2
    covering = {}
    for entry in package.exception_table:
        covering |= dict.fromkeys(range(entry.start_offset, entry.stop_offset + 1), entry)
    depths = {0: 0}
    todo = [0]

    def reach(offset: int, depth: int) -> None:
        if depths.setdefault(offset, depth) != depth:
            raise Mismatch(f"depth {depths[offset]} or {depth} at unit {offset}")
        if offset not in seen:
            seen.add(offset)
            todo.append(offset)

    seen = {0}
    deepest = 0
    while todo:
        offset = todo.pop()
        instr, depth = at[offset], depths[offset]
        target = instr.get_jump_target(offset) if instr.name != "END_ASYNC_FOR" else None
        if target is not None:
            reach(target, depth + instr.stack_effect(jump=True))
        # `dis` of 3.12 gives RETURN_GENERATOR an effect of 0.
        after = depth + (1 if instr.name == "RETURN_GENERATOR" else instr.stack_effect(jump=False))
        deepest = max(deepest, depth, after)
        if not instr.is_final():
            reach(offset + instr.size // 2, after)
        if offset in covering:
            entry = covering[offset]
            reach(entry.target, entry.stack_depth + entry.push_lasti + 1)
    return max(deepest, *depths.values())


def check_lines(written: types.CodeType) -> None:
    """`co_lines` and `co_positions` agree, and cover the code exactly."""
    by_line = [line for start, end, line in written.co_lines() for _ in range(start, end, 2)]
    by_position = [position[0] for position in written.co_positions()]
    if by_line != by_position or len(by_line) != len(written.co_code) // 2:
        raise Mismatch("co_lines and co_positions differ")


# ---- many of them


def source_files(count: int) -> list[Path]:
    """Files of the standard library and of PACKAGES; a sample of `count` of each, or all for 0."""
    library = Path(os.__file__).parent
    groups = [[path for path in library.rglob("*.py") if "site-packages" not in path.parts]]
    for folder in PACKAGES:
        top, _, rest = folder.partition("/")
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.origin is not None:
            groups.append(list(Path(spec.origin).parent.joinpath(rest).rglob("*.py")))
    draw = random.Random(7)
    groups = [sorted(path for path in group if path.is_file()) for group in groups]  # no links that lead nowhere
    samples = [draw.sample(group, min(count or len(group), len(group))) for group in groups]
    return [path for sample in samples for path in sample]


def compiled_files(files: Iterable[Path]) -> Iterator[tuple[str, types.CodeType]]:
    """(name, code) of everything in the files."""
    for path in files:
        try:
            top = compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError):  # the standard library holds malformed files on purpose
            continue
        for code in nested_codes(top):
            yield f"{path.parent.name}/{path.name}:{code.co_qualname}", code


class Tally:
    """Counts and failures."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}

    def run(self, name: str, check: Any, *args: Any) -> None:
        self.counts["code objects"] += 1
        try:
            check(*args)
        except Exception as error:  # reported, and a failure of the run
            self.counts["failures"] += 1
            text = str(error) if isinstance(error, Mismatch) else traceback.format_exc(limit=-3)
            self.failures.setdefault(name, text)


@contextlib.contextmanager
def checked_emission(tally: Tally) -> Iterator[None]:
    """While active, checks every code object that pyframe emits."""
    from pyframe.emit import assemble, resume

    def checking(canonical: CanonicalCode) -> types.CodeType:
        written = materialize(canonical)
        place = f"{written.co_qualname} ({Path(written.co_filename).name}:{written.co_firstlineno})"
        tally.run(place, check_emitted, canonical, written)
        return written

    assemble.materialize = resume.materialize = checking
    try:
        yield
    finally:
        assemble.materialize = resume.materialize = materialize


def check_captures(tally: Tally) -> None:
    """What `pyframe.compile(backend="eager")` emits for the programs of tests/programs."""
    sys.path.insert(0, str(ROOT / "tests" / "programs"))
    from programs_support import Compiled
    from test_programs import CASES, LONG

    with checked_emission(tally), contextlib.redirect_stdout(io.StringIO()):
        for name, case in CASES.items():
            if name not in LONG:
                case.run(Compiled("eager"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=0, help="how many source files of each source; 0: all")
    parser.add_argument("--captures", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    tally, start = Tally(), time.process_time()
    if options.captures:
        check_captures(tally)
    else:
        for name, code in compiled_files(source_files(options.files)):
            tally.run(name, check_code, code)
    if options.json:
        print(json.dumps({"counts": tally.counts, "failures": tally.failures}))
        return 0
    for name, text in list(tally.failures.items())[:MAX_SHOWN]:
        print(f"{name}\n    " + text.replace("\n", "\n    "))
    version, codes = ".".join(map(str, sys.version_info[:3])), tally.counts["code objects"]
    what = "emitted for tests/programs" if options.captures else "compiled from source"
    print(f"CPython {version}, bytecode {bytecode.__version__}: {codes} code objects {what}, "
          f"{tally.counts['failures']} failures, {time.process_time() - start:.0f} s")  # fmt: skip
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
