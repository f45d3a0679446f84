"""The analyses and the verifier, on the running version."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyframe.bytecode import (
    OPS,
    SUPPORTED_VERSIONS,
    CanonicalCode,
    Instr,
    Label,
    TryRegion,
    VerifyError,
    call_sequence,
    canonical_ops,
    canonicalize,
    index_of,
    instr_at,
    materialize,
    verify,
)
from pyframe.bytecode.flow import definitely_bound, exit_copies, live_locals, reachable, stack_depths
from pyframe.bytecode.tables import (
    ExceptionEntry,
    encode_exception_table,
    parse_exception_table,
)

ROOT = Path(__file__).resolve().parents[2]


def code_of(*instrs: Instr | Label, **fields) -> CanonicalCode:
    fields.setdefault("varnames", ("x",))
    fields.setdefault("argcount", 1)
    return CanonicalCode(list(instrs), flags=3, **fields)


def ordinal(cc: CanonicalCode, op: str, nth: int = 0) -> int:
    return [i for i, instr in enumerate(cc.real_instrs()) if instr.op == op][nth]


def test_imports_no_torch() -> None:
    probe = "import sys, pyframe.bytecode; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=True)


def test_index_of_is_inverse_of_instr_at() -> None:
    cc = canonicalize(test_index_of_is_inverse_of_instr_at.__code__)
    for index in range(len(cc.real_instrs())):
        assert index_of(cc, instr_at(cc, index)) == index
    with pytest.raises(ValueError, match="is not an instruction"):
        index_of(cc, Instr("POP_TOP"))


def test_canonical_ops_are_known_on_every_version() -> None:
    union = set()
    for version in SUPPORTED_VERSIONS:
        assert canonical_ops(version) <= OPS.keys()
        union |= canonical_ops(version)
    assert union == OPS.keys()
    for op in ("CALL_KW", "FOR_ITER", "END_FOR", "LOAD_METHOD", "BINARY_SUBSCR", "POP_JUMP_IF_NONE"):
        assert all(op in canonical_ops(version) for version in SUPPORTED_VERSIONS)


def test_liveness() -> None:
    def f(a, b):
        c = a + 1
        while c:
            c -= b
        try:
            d = c
            print(a)
        except ValueError:
            return d
        return 1

    cc = canonicalize(f.__code__)
    entry = ordinal(cc, "RESUME")
    assert live_locals(cc, entry) >= {"a", "b"}
    assert live_locals(cc, instr_at(cc, ordinal(cc, "BINARY_OP", 1))) == {"a", "b", "d"}
    assert "b" not in live_locals(cc, ordinal(cc, "CALL"))
    assert "d" in live_locals(cc, ordinal(cc, "CALL"))  # the handler reads it


def test_definitely_bound() -> None:
    def f(a):
        if a:
            b = 1
        c = 2
        del a
        return a, b, c  # noqa: F821

    cc = canonicalize(f.__code__)
    names = [instr.arg for instr in cc.real_instrs() if instr in definitely_bound(cc)]
    assert names == ["a", "c"]  # the first read of a; b only on one path; the last a is deleted


def test_stack_depths_and_reachability() -> None:
    def f(items):
        for item in items:
            with item:
                yield_here = [item, 1]
        return yield_here

    cc = canonicalize(f.__code__)
    depths = stack_depths(cc)
    assert depths[ordinal(cc, "FOR_ITER")] == 1
    assert depths[ordinal(cc, "END_FOR")] == 1
    assert depths[ordinal(cc, "BUILD_LIST")] == 4  # iterator, exit function, item, 1
    assert reachable(cc) == {index for index, depth in enumerate(depths) if depth is not None}
    after_loop = reachable(cc, ordinal(cc, "END_FOR"))
    assert ordinal(cc, "FOR_ITER") not in after_loop


def test_nested_regions_are_flattened_innermost_first() -> None:
    inner, outer, start, mid, end = Label("inner"), Label("outer"), Label("s"), Label("m"), Label("e")

    def handler(label: Label, value: str) -> list[Instr | Label]:
        pop = [Instr("POP_TOP"), Instr("POP_EXCEPT")]
        return [label, Instr("PUSH_EXC_INFO"), *pop, Instr("LOAD_CONST", value), Instr("RETURN_VALUE")]

    def build(at_inner: bool):
        divide = [Instr("LOAD_CONST", 1), Instr("LOAD_FAST", "x"), Instr("BINARY_OP", "/"), Instr("POP_TOP")]
        nothing = [Instr("LOAD_CONST", 1), Instr("POP_TOP")]
        first, second = (divide, nothing) if at_inner else (nothing, divide)
        tail = [Instr("LOAD_CONST", None), Instr("RETURN_VALUE")]
        cc = code_of(
            Instr("RESUME", 0),
            start,
            *first,
            mid,
            *second,
            end,
            *tail,
            *handler(inner, "i"),
            *handler(outer, "o"),
        )
        cc.regions = [TryRegion(start, mid, inner, 0, False), TryRegion(start, end, outer, 0, False)]
        verify(cc)
        return type(verify)(materialize(cc), {})

    assert build(True)(0) == "i"
    assert build(False)(0) == "o"
    assert build(True)(1) is None


def test_call_sequence_runs() -> None:
    loads = [Instr("LOAD_CONST", 1), Instr("LOAD_CONST", 2)]
    body = call_sequence([Instr("LOAD_CONST", dict)], loads, 2, ("a", "b"))
    cc = code_of(Instr("RESUME", 0), *body, Instr("RETURN_VALUE"))
    verify(cc)
    assert type(verify)(materialize(cc), {})(0) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="keyword names"):
        call_sequence([], [], 0, ("a",))


def test_backward_conditional_jump_runs() -> None:
    top = Label("top")
    cc = code_of(
        Instr("RESUME", 0),
        top,
        Instr("LOAD_FAST", "x"),
        Instr("LOAD_CONST", 3),
        Instr("BINARY_OP", "-="),
        Instr("STORE_FAST", "x"),
        Instr("LOAD_FAST", "x"),
        Instr("LOAD_CONST", 0),
        Instr("COMPARE_OP", ">"),
        Instr("POP_JUMP_IF_TRUE", top),
        Instr("LOAD_FAST", "x"),
        Instr("RETURN_VALUE"),
    )
    verify(cc)
    assert type(verify)(materialize(cc), {})(10) == -2


BAD = {
    "pops 1 of 0": [Instr("POP_TOP"), Instr("LOAD_CONST", 1), Instr("RETURN_VALUE")],
    "runs off the end": [Instr("LOAD_CONST", 1)],
    "undefined <Label nowhere>": [Instr("JUMP", Label("nowhere"))],
    "unknown op NO_SUCH_OP": [Instr("NO_SUCH_OP")],
    "bad argument 'y' of LOAD_FAST": [Instr("LOAD_FAST", "y"), Instr("RETURN_VALUE")],
    "bad argument '<>' of COMPARE_OP": [Instr("COMPARE_OP", "<>")],
    "takes no argument": [Instr("POP_TOP", 1)],
    "CALL_KW must directly follow": [
        *(Instr("PUSH_NULL"), Instr("LOAD_CONST", dict), Instr("LOAD_CONST", 1), Instr("LOAD_FAST", "x")),
        *(Instr("CALL_KW", 1), Instr("RETURN_VALUE")),
    ],
    "no instructions": [],
}


@pytest.mark.parametrize("message", BAD)
def test_verify_refuses(message: str) -> None:
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify(code_of(*BAD[message]))


def test_verify_refuses_conflicting_depths_and_shows_them() -> None:
    other = Label("other")
    cc = code_of(
        Instr("LOAD_FAST", "x"),
        Instr("POP_JUMP_IF_TRUE", other),
        Instr("LOAD_CONST", 1),
        other,
        Instr("LOAD_CONST", 2),
        Instr("RETURN_VALUE"),
    )
    with pytest.raises(VerifyError, match=r"(?s)depth .* from one path.*-->\s+3 LOAD_CONST"):
        verify(cc)


def test_verify_refuses_overlapping_regions_and_lost_landings() -> None:
    labels = [Label(name) for name in "abcdh"]
    a, b, c, d, h = labels
    push = [[Instr("LOAD_CONST", 1), Instr("POP_TOP")] for _ in range(3)]
    tail = [Instr("LOAD_CONST", 1), Instr("RETURN_VALUE"), h, Instr("RERAISE", 0)]
    cc = code_of(a, *push[0], b, *push[1], c, *push[2], d, *tail)
    cc.regions = [TryRegion(a, c, h, 0, False), TryRegion(b, d, h, 0, False)]
    with pytest.raises(VerifyError, match="neither inside nor apart"):
        verify(cc)
    out = Label("out")
    loop = code_of(Instr("LOAD_FAST", "x"), Instr("GET_ITER"), Instr("FOR_ITER", out), Instr("POP_TOP"))
    loop.instrs += [Instr("RETURN_VALUE"), out, Instr("RETURN_VALUE")]
    with pytest.raises(VerifyError, match="must lead to END_FOR"):
        verify(loop)


def test_exception_table_round_trip() -> None:
    entries = [
        ExceptionEntry(0, 2, 200_000, 3, True),
        ExceptionEntry(126, 130, 128, 0, False),
        ExceptionEntry(8192, 600_000, 8, 70, True),
    ]
    assert parse_exception_table(encode_exception_table(entries)) == entries


def test_unknown_const_objects_survive() -> None:
    marker = object()
    cc = code_of(Instr("RESUME", 0), Instr("LOAD_CONST", marker), Instr("RETURN_VALUE"))
    assert type(verify)(materialize(cc), {})(0) is marker


def test_copies_of_a_block_that_ends_the_frame():
    def ending(value: object) -> list[Instr]:
        return [Instr("LOAD_CONST", value), Instr("RETURN_VALUE")]

    other, last = Label("other"), Label("last")
    branches = [Instr("LOAD_FAST", "x"), Instr("POP_JUMP_IF_FALSE", other), Instr("LOAD_FAST", "x")]
    branches += [Instr("POP_JUMP_IF_FALSE", last)]
    assert exit_copies(code_of(*branches, *ending(1), other, *ending(1), last, *ending(1.0))) == {6: 4, 7: 5, 9: 5}
