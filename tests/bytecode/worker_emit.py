"""Splits the sample functions at every instruction: prefix, resume function, embedded instruction; all run for real."""

from __future__ import annotations

import re
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sample_functions
from bytecode_support import report

from pyframe.bytecode import Instr, Label, call_sequence, canonicalize, materialize, verify
from pyframe.bytecode.flow import displaced_cells, live_locals, stack_depths
from pyframe.bytecode.isa import NULL_BEFORE_CALLABLE
from pyframe.emit.assemble import Assembler
from pyframe.emit.resume import ResumeKey, make_resume, make_resume_for, stack_parameter

COUNTS = Counter()  # frames that really were split, so that the cases above cannot pass by doing nothing
SUSPENDING = 0x20 | 0x80 | 0x200


class Refused(Exception):
    """This point has no resume function, as documented."""


@dataclass
class Broken:
    """The state of a frame at the instruction where a prefix stopped."""

    locals: dict[str, Any]
    cells: tuple[types.CellType, ...]

    def stack(self, depth: int) -> list[tuple[bool, Any]]:
        """(is NULL, value) for each slot, bottom first."""
        names = [f"__save_{slot}" for slot in range(depth)]
        return [(name not in self.locals, self.locals.get(name)) for name in names]


def function(
    code: types.CodeType, template: types.FunctionType, cells: tuple | None = None
) -> types.FunctionType:
    closure = template.__closure__ if cells is None else cells
    return types.FunctionType(
        code, template.__globals__, closure=closure or None, argdefs=template.__defaults__
    )


def prefix_code(code: types.CodeType, at: int, arrival: int) -> tuple[types.CodeType, int]:
    """`code` that returns a Broken when it is about to run instruction `at` for the `arrival`-th time."""
    cc = canonicalize(code)
    depth = stack_depths(cc)[at]
    countdown = iter([False] * (arrival - 1) + [True] + [False] * 1000)
    stop_here = Label("stop")
    cells = cc.cellvars + cc.freevars
    test = call_sequence([Instr("LOAD_CONST", lambda: next(countdown))], [], 0)
    stop: list[Instr | Label] = [  # after the code, where no region covers it
        stop_here,
        *(Instr("STORE_FAST", f"__save_{slot}") for slot in reversed(range(depth))),
        *call_sequence(
            [Instr("LOAD_CONST", Broken)],
            [
                *call_sequence([Instr("LOAD_CONST", locals)], [], 0),
                *(Instr("LOAD_CLOSURE", name) for name in cells),
                Instr("BUILD_TUPLE", len(cells)),
            ],
            2,
        ),
        Instr("RETURN_VALUE"),
    ]
    place = cc.instrs.index(cc.real_instrs()[at])
    cc.instrs[place:place] = [*test, Instr("POP_JUMP_IF_TRUE", stop_here)]
    cc.instrs += stop
    cc.varnames += tuple(f"__save_{slot}" for slot in range(depth))
    verify(cc)
    return materialize(cc), depth


UNSPLITTABLE = ("END_FOR", "END_SEND", "CALL_KW")  # part of what stands before them, on some versions


def break_points(code: types.CodeType) -> Iterator[int]:
    """Every reachable ordinal after RESUME."""
    cc = canonicalize(code)
    ops = [instr.op for instr in cc.real_instrs()]
    for at, depth in enumerate(stack_depths(cc)):
        if depth is not None and at > ops.index("RESUME") and ops[at] not in UNSPLITTABLE:
            yield at


def outcome(run: Callable[[], Any]) -> Any:
    sample_functions.LOG.clear()
    try:
        return "value", repr(run())
    except Exception as error:  # noqa: BLE001  any exception is an outcome
        lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
        return type(error).__name__, str(error), lines[-1]


def resume_from(code: types.CodeType, at: int, depth: int, state: Broken) -> tuple[types.CodeType, list[Any]]:
    """The resume function's code for `state`, and the arguments to call it with."""
    stack = state.stack(depth)
    live = tuple(name for name in sorted(live_locals(canonicalize(code), at)) if name in state.locals)
    try:
        resumed = make_resume(code, at, depth, tuple(null for null, _ in stack), live)
    except ValueError as error:
        assert "hides a cell" in str(error) and "comprehension" in code.co_name, error
        raise Refused from error
    args = [value for null, value in stack if not null] + [state.locals[name] for name in live]
    return resumed, args


def hides_cell(code: types.CodeType, at: int) -> bool:
    return bool(displaced_cells(canonicalize(code))[at])


def run_split(fn: types.FunctionType, at: int, arrival: int, again: tuple[int, int] | None = None) -> Any:
    """Run `fn` stopped at `at` and resumed; with `again`, the resume function is split as well."""
    if hides_cell(fn.__code__, at):  # the prefix could not load the closure either
        depth = stack_depths(canonicalize(fn.__code__))[at]
        resume_from(fn.__code__, at, depth, Broken({}, ()))
    prefix, depth = prefix_code(fn.__code__, at, arrival)
    state = function(prefix, fn)()
    if not isinstance(state, Broken):
        return state
    code, args = resume_from(fn.__code__, at, depth, state)
    if again is None:
        COUNTS["once"] += 1
        return function(code, fn, state.cells)(*args)
    points = list(break_points(code))
    second = points[again[0] % len(points)]
    if hides_cell(code, second):
        raise Refused
    prefix, depth = prefix_code(code, second, again[1])
    state_2 = function(prefix, fn, state.cells)(*args)
    if not isinstance(state_2, Broken):
        return state_2
    code_2, args_2 = resume_from(code, second, depth, state_2)
    assert len(re.findall("__resume_", code_2.co_name)) == 1, code_2.co_name
    assert code_2.co_freevars == code.co_freevars
    assert len(code_2.co_code) < 2 * len(fn.__code__.co_code) + 200  # a resume of a resume does not nest
    COUNTS["twice"] += 1
    return function(code_2, fn, state_2.cells)(*args_2)


def split_everywhere(fn: types.FunctionType) -> Callable[[], None]:
    def case() -> None:
        expected = outcome(fn)
        points = list(break_points(fn.__code__))
        step = max(1, len(points) // 200)
        for at in points[::step]:
            for arrival in (1, 3):
                actual = outcome(lambda at=at, arrival=arrival: run_split(fn, at, arrival))
                assert actual == expected or actual[0] == "Refused", (
                    f"at {at} arrival {arrival}: {actual}\nexpected {expected}"
                )
        for number, at in enumerate(points[:: max(1, len(points) // 15)]):
            for second in range(number % 3, 40, 9):
                actual = outcome(lambda at=at, second=second: run_split(fn, at, 1, (second, 1 + second % 2)))
                assert actual == expected or actual[0] == "Refused", (
                    f"at {at} then {second}: {actual}\nexpected {expected}"
                )

    return case


def assembled(fn: types.FunctionType, at: int) -> types.FunctionType | None:
    """A frame as `emit` builds it: prefix as an opaque call, instruction `at` embedded, the rest resumed."""
    cc = canonicalize(fn.__code__)
    prefix, depth = prefix_code(fn.__code__, at, 1)
    dry = function(prefix, fn)()
    if not isinstance(dry, Broken):
        return None
    prefix, depth = prefix_code(fn.__code__, at, 1)
    run_prefix = function(prefix, fn)
    asm = Assembler(cc)
    asm.load_const(run_prefix)
    state = asm.store_fast()
    return _assemble_tail(fn, asm, cc, at, depth, dry, state)


def _load_saved(asm: Assembler, state: str, name: str) -> None:
    asm.load_fast(state)
    asm.load_attr("locals")
    asm.load_item(name)


def _assemble_tail(fn, asm, cc, at, depth, dry, state) -> types.FunctionType:
    asm.call([Instr("LOAD_FAST", state)], [], 0)
    asm.store_fast(state)
    for name in cc.varnames:
        if name in dry.locals:
            _load_saved(asm, state, name)
            asm.store_fast(name)
    for slot, (null, _) in enumerate(dry.stack(depth)):
        if null:
            asm.emit("PUSH_NULL")
        else:
            _load_saved(asm, state, f"__save_{slot}")
    tail = Label("tail")
    asm.jump(asm.embed_original(at, tail))
    asm.label(tail)
    after = stack_depths(cc)[at + 1]
    temps = [asm.store_fast() for _ in range(after)][::-1]
    # What NULLs the instruction left below its result: none of the slots it did not touch have changed.
    nulls = tuple(slot < depth and dry.stack(depth)[slot][0] for slot in range(after - 1)) + (False,)
    resume_point = at + 1
    live = tuple(name for name in sorted(live_locals(cc, resume_point)) if name in dry.locals)
    code = make_resume_for(ResumeKey(fn.__code__, resume_point, nulls[:after], live))
    passed = [temp for temp, null in zip(temps, nulls, strict=True) if not null]
    loads = [Instr("LOAD_FAST", name) for name in (*passed, *live)]
    asm.call(asm.function_instrs(code), loads, len(loads))
    asm.return_value()
    return function(asm.finish(), fn)


CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_SUBSCR")


def embed_every_call(fn: types.FunctionType) -> Callable[[], None]:
    def case() -> None:
        expected = outcome(fn)
        cc = canonicalize(fn.__code__)
        instrs = cc.real_instrs()
        points = [at for at in break_points(fn.__code__) if instrs[at].op in CALLS]
        for at in points[:: max(1, len(points) // 30)]:
            sample_functions.LOG.clear()
            new = assembled(fn, at)
            if new is not None:
                COUNTS["embedded"] += 1
                actual = outcome(new)
                assert actual[:2] == expected[:2], f"at {at}: {actual}\nexpected {expected}"

    return case


def assembler_passes_arguments() -> None:
    free = 3

    def original(a, *args, k=1, **kwargs):
        return a, args, k, kwargs, free

    asm = Assembler(original.__code__)
    assert asm.params == ("a", "k", "args", "kwargs")
    graph = lambda *values: values
    asm.call_object(graph, *asm.params)
    asm.load_deref("free")
    asm.build_list(1)
    asm.build_tuple(2)
    asm.return_value()
    new = types.FunctionType(asm.finish("compiled"), {}, closure=original.__closure__)
    assert new(1, 2, (3,), {"x": 4}) == ((1, 2, (3,), {"x": 4}), [3])
    assert new.__code__.co_name == "compiled"


def assembler_functions_and_cells() -> None:
    def original(x):
        def inner():
            return x

        return inner

    inner_code = next(c for c in original.__code__.co_consts if isinstance(c, types.CodeType))
    asm = Assembler(original.__code__)
    asm.make_cell("x")
    asm.load_const(41)
    asm.store_deref("x")
    asm.make_function_with_closure(inner_code)
    asm.return_value()
    assert types.FunctionType(asm.finish(), {})(1)() == 41


def assembler_refuses_nonsense() -> None:
    def original(x):
        return x

    for spoil in (
        lambda asm: asm.emit("POP_TOP"),
        lambda asm: asm.jump(Label("nowhere")),
        lambda asm: asm.emit("NO_SUCH_OP"),
        lambda asm: asm.emit("LOAD_ATTR", 3),
        lambda asm: asm.append(Instr("LOAD_CONST", 1)),
    ):
        asm = Assembler(original.__code__)
        spoil(asm)
        try:
            asm.finish()
        except ValueError:
            continue
        raise AssertionError("accepted")


def resume_at_end_of_loop() -> None:
    """A break at FOR_ITER whose iterator is exhausted continues at END_FOR, the iterator still on the stack."""

    def loop(n):
        out = []
        for i in n:
            out.append(i)  # noqa: PERF402
        return out, len(out)

    cc = canonicalize(loop.__code__)
    at = next(i for i, instr in enumerate(cc.real_instrs()) if instr.op == "END_FOR")
    code = make_resume(loop.__code__, at, 1, (False,), ("out",))
    assert types.FunctionType(code, {"len": len})(iter(()), [7]) == ([7], 1)
    body = next(i for i, instr in enumerate(cc.real_instrs()) if instr.op == "FOR_ITER") + 1
    code = make_resume(loop.__code__, body, 2, (False, False), ("out",))
    assert types.FunctionType(code, {"len": len})(iter((2, 3)), 1, [0]) == ([0, 1, 2, 3], 4)


def call_with_names() -> None:
    """CALL_KW can be the target of a resume function, and can be embedded, though its names belong to it."""

    def original(f, x):
        try:
            return [f(x, key=1)]
        except KeyError as error:
            return error.args

    def f(x, *, key):
        return {1: "one"}[x], key

    cc = canonicalize(original.__code__)
    at = next(i for i, instr in enumerate(cc.real_instrs()) if instr.op == "CALL_KW")
    nulls = (NULL_BEFORE_CALLABLE, not NULL_BEFORE_CALLABLE, False, False, False)
    code = make_resume(original.__code__, at, 5, nulls, ())
    asm = Assembler(cc)
    asm.append(
        *call_sequence([Instr("LOAD_FAST", "f")], [Instr("LOAD_FAST", "x"), Instr("LOAD_CONST", 1)], 2)[:-1]
    )
    asm.load_const(("key",))
    tail = Label("tail")
    asm.jump(asm.embed_original(at, tail))
    asm.label(tail)
    asm.return_value()
    embedded = types.FunctionType(asm.finish(), {"KeyError": KeyError})
    for x, expected in ((1, [("one", 1)]), (2, (2,))):
        assert types.FunctionType(code, {"KeyError": KeyError})(f, x, 1, ("key",)) == expected
        assert embedded(f, x) == (expected[0] if x == 1 else expected)


def embedded_jumps() -> None:
    """A conditional jump and a FOR_ITER inside `try` run for real; both ways out and the handler work."""

    def original(flag, items):
        try:
            if flag:
                return "true"
            for item in items:
                return item
        except ZeroDivisionError:
            return "caught"
        return "nothing"

    class Flag:
        def __init__(self, value):
            self.value = value

        def __bool__(self):
            return 1 // self.value > 1 if self.value is not None else False

    def failing():
        if failing:
            raise ZeroDivisionError
        yield 1

    cc = canonicalize(original.__code__)
    ops = [instr.op for instr in cc.real_instrs()]
    jump_at = next(i for i, op in enumerate(ops) if op in ("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"))
    asm = Assembler(cc)
    went, stayed = Label("went"), Label("stayed")
    asm.load_fast("flag")
    if ops[jump_at - 1] == "TO_BOOL":  # from 3.13 the test is its own instruction, and the one that can fail
        asm.jump(asm.embed_original(jump_at - 1, stayed))
    else:
        asm.jump(asm.embed_original(jump_at, stayed, jump_label=went))
    for label, value in ((stayed, "stayed"), (went, "went")):
        asm.label(label)
        asm.load_const(value)
        asm.return_value()
    test = types.FunctionType(asm.finish(), {"ZeroDivisionError": ZeroDivisionError})
    assert test(Flag(0), ()) == "caught"
    assert test(Flag(None), ()) in ("went", "stayed")

    iter_at = ops.index("FOR_ITER")
    asm = Assembler(cc)
    item, end = Label("item"), Label("end")
    asm.load_fast("items")
    asm.emit("GET_ITER")
    asm.jump(asm.embed_original(iter_at, item, jump_label=end))
    asm.label(item)
    asm.build_tuple(2)
    asm.load_item(1)
    asm.return_value()
    asm.label(end)
    asm.load_const("end")
    asm.return_value()
    loop = types.FunctionType(asm.finish(), {"ZeroDivisionError": ZeroDivisionError})
    assert loop(0, [7]) == 7
    assert loop(0, []) == "end"
    assert loop(0, failing()) == "caught"


def resume_refuses_nonsense() -> None:
    def plain(x):
        return x + 1

    def generator():
        yield 1

    last = len(canonicalize(plain.__code__).real_instrs()) - 1
    for code, at, nulls, live in (
        (generator.__code__, 3, (), ()),
        (plain.__code__, 999, (), ()),
        (plain.__code__, last, (), ()),  # the stack holds the result there
        (plain.__code__, last, (False,), ("nothing",)),
    ):
        try:
            make_resume(code, at, len(nulls), nulls, live)
        except ValueError:
            continue
        raise AssertionError((code, at, nulls, live))
    assert stack_parameter(0) == "__stack_0"


plain_samples = {
    name: fn
    for name, fn in sample_functions.SAMPLES.items()
    if not fn.__code__.co_flags & SUSPENDING and name not in ("local_names", "exec_class_body")
}
cases: dict[str, Callable[[], None]] = {
    f"split:{name}": split_everywhere(fn) for name, fn in plain_samples.items()
}
cases |= {
    f"embed:{name}": embed_every_call(fn)
    for name, fn in plain_samples.items()
    if not fn.__code__.co_cellvars and name != "raises_uncaught"
}
for check in (
    assembler_passes_arguments,
    assembler_functions_and_cells,
    assembler_refuses_nonsense,
    resume_at_end_of_loop,
    call_with_names,
    embedded_jumps,
    resume_refuses_nonsense,
):
    cases[check.__name__] = check


def enough_was_split() -> None:
    assert COUNTS["once"] > 1000 and COUNTS["twice"] > 500 and COUNTS["embedded"] > 50, COUNTS


cases["enough_was_split"] = enough_was_split
report(cases)
