"""Every accessor and check of a guard program that needs no torch: what passes, what fails, and where."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections import OrderedDict, UserDict
from typing import Any

from frame_support import C, raises

MODULE_VALUE = "module value"


def function(x: Any, y: Any = 1, *, z: Any = 2) -> Any:
    return x


def run(*ops: tuple[Any, ...], args: tuple[Any, ...] = (), on: Any = function) -> tuple[int, tuple[Any, ...]]:
    written = [op[1] for op in ops if op[0] in ACCESSORS]
    result: tuple[int, tuple[Any, ...]] = C.GuardProgram(list(ops), len(written)).check(on, args)
    return result


ACCESSORS = {name for name, kind, _, _ in C.op_table() if kind == "accessor"}
CHECKS = {name for name, kind, _, _ in C.op_table() if kind == "check"}


def value(*op: Any, of: Any = None) -> Any:
    """What accessor `op` (written for registers 1 <- 0) reads from `of`; it must not fail."""
    index, registers = run(("CONST", 0, of), op)
    assert index == -1, f"failed at {index}"
    return registers[1]


def fails(*op: Any, of: Any = None) -> bool:
    return run(("CONST", 0, of), op) == (1, ())


def holds(name: str, *operands: Any, of: Any = None) -> bool:
    index, _ = run(("CONST", 0, of), (name, *operands))
    assert index in (-1, 1)
    return index == -1


def check_table_is_complete() -> None:
    assert len(ACCESSORS) + len(CHECKS) == len(C.op_table())
    assert all(operands.startswith("d") for name, kind, operands, _ in C.op_table() if kind == "accessor")
    assert all(set(operands) <= set("drRio") and doc for _, _, operands, doc in C.op_table())


def check_roots() -> None:
    def closed() -> Any:
        return cell  # noqa: F821  deleted on purpose below

    cell = "in the cell"
    assert run(("LOCAL", 0, 1), args=(5, 6)) == (-1, (6,))
    assert run(("LOCAL", 0, 2), args=(5, 6)) == (0, ())
    assert run(("LOCAL", 0, -1), args=(5, 6)) == (0, ())
    assert run(("GLOBALS", 0))[1][0] is globals()
    assert run(("BUILTINS", 0))[1][0]["len"] is len
    assert run(("FUNC", 0))[1][0] is function
    assert run(("CLOSURE", 0, 0), on=closed) == (-1, ("in the cell",))
    assert run(("CLOSURE", 0, 1), on=closed) == (0, ())
    assert run(("CLOSURE", 0, 0)) == (0, ())
    assert run(("GLOBAL", 0, "MODULE_VALUE")) == (-1, ("module value",))
    assert run(("GLOBAL", 0, "len")) == (-1, (len,))
    assert run(("GLOBAL", 0, "no_such_name")) == (0, ())
    del cell
    assert run(("CLOSURE", 0, 0), on=closed) == (0, ())


def check_attributes_and_items() -> None:
    class Thing:
        attribute = 1

        @property
        def broken(self) -> Any:
            raise ValueError

        def __getitem__(self, key: Any) -> Any:
            return ("item", key)

        def __len__(self) -> int:
            return 3

    thing = Thing()
    thing.own = 2  # type: ignore[attr-defined]
    assert value("ATTR", 1, 0, "attribute", of=thing) == 1
    assert fails("ATTR", 1, 0, "missing", of=thing) and fails("ATTR", 1, 0, "broken", of=thing)
    assert value("INSTANCE_DICT", 1, 0, of=thing) is thing.__dict__
    assert value("INSTANCE_DICT", 1, 0, of=sys) is sys.__dict__
    assert value("INSTANCE_DICT", 1, 0, of=Thing)["attribute"] == 1
    assert fails("INSTANCE_DICT", 1, 0, of=3)
    assert value("TYPE", 1, 0, of=thing) is Thing
    assert value("GETITEM", 1, 0, "k", of=thing) == ("item", "k") and fails("GETITEM", 1, 0, 5, of=[1])
    assert value("LEN", 1, 0, of=thing) == 3 and fails("LEN", 1, 0, of=3)


def check_containers() -> None:
    class Shouting(dict):
        def __getitem__(self, key: Any) -> Any:
            return "shout"

    class Named(tuple):
        def __getitem__(self, key: Any) -> Any:
            return "named"

    assert value("DICT_GET", 1, 0, "a", of={"a": 1}) == 1 == value("DICT_GET", 1, 0, "a", of=Shouting(a=1))
    assert fails("DICT_GET", 1, 0, "b", of={"a": 1}) and fails("DICT_GET", 1, 0, "a", of=UserDict(a=1))
    assert fails("DICT_GET", 1, 0, [], of={"a": 1})
    for sequence in ((1, 2, 3), [1, 2, 3], range(1, 4)):
        assert value("SEQ_ITEM", 1, 0, 2, of=sequence) == 3 == value("SEQ_ITEM", 1, 0, -1, of=sequence)
        assert fails("SEQ_ITEM", 1, 0, 3, of=sequence) and fails("SEQ_ITEM", 1, 0, -4, of=sequence)
    assert fails("SEQ_ITEM", 1, 0, 0, of={0: 1})
    moved = OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert value("DICT_KEY_AT", 1, 0, 1, of={"a": 1, "b": 2}) == "b"
    assert value("DICT_KEY_AT", 1, 0, 0, of=moved) == "b"
    assert fails("DICT_KEY_AT", 1, 0, 2, of=moved) and fails("DICT_KEY_AT", 1, 0, 2, of={"a": 1, "b": 2})


def check_function_parts() -> None:
    def closed() -> Any:
        return captured

    captured = 1
    assert value("FUNC_CODE", 1, 0, of=function) is function.__code__
    assert (
        value("FUNC_DEFAULTS", 1, 0, of=function) == (1,) and value("FUNC_DEFAULTS", 1, 0, of=closed) is None
    )
    assert value("FUNC_KWDEFAULTS", 1, 0, of=function) == {"z": 2}
    assert value("FUNC_CLOSURE", 1, 0, of=function) is None
    assert value("FUNC_GLOBALS", 1, 0, of=function) is globals()
    assert value("CELL_CONTENTS", 1, 0, of=closed.__closure__[0]) == 1
    assert fails("CELL_CONTENTS", 1, 0, of=types.CellType()) and fails("CELL_CONTENTS", 1, 0, of=3)
    assert fails("FUNC_CODE", 1, 0, of=len)


def check_weak_reference() -> None:
    class Thing:
        pass

    thing = Thing()
    ref = weakref.ref(thing)
    assert value("WEAKREF", 1, 0, of=ref) is thing
    del thing
    gc.collect()
    assert fails("WEAKREF", 1, 0, of=ref) and fails("WEAKREF", 1, 0, of=3)


def check_identity() -> None:
    class Thing:
        pass

    thing, other = Thing(), Thing()
    assert holds("IS", 0, thing, of=thing) and not holds("IS", 0, thing, of=other)
    assert holds("IS_NOT", 0, thing, of=other) and not holds("IS_NOT", 0, thing, of=thing)
    assert holds("IS", 0, None, of=None) and not holds("IS", 0, None, of=0)
    assert holds("TYPE_IS", 0, int, of=3) and not holds("TYPE_IS", 0, int, of=True)
    program = C.GuardProgram([("LOCAL", 0, 0), ("IS", 0, other)], 1)
    assert program.check(function, (other,))[0] == -1
    del other
    gc.collect()
    assert program.check(function, (Thing(),))[0] == 1
    assert run(("CONST", 0, 1.5), ("CONST", 1, 2.5), ("SAME", 0, 1))[0] == 2
    assert run(("CONST", 0, thing), ("CONST", 1, thing), ("SAME", 0, 1))[0] == -1
    assert run(("CONST", 0, thing), ("CONST", 1, thing), ("DISTINCT", (0, 1)))[0] == 2
    assert run(("CONST", 0, thing), ("CONST", 1, None), ("CONST", 2, 3), ("DISTINCT", (0, 1, 2)))[0] == -1


def check_copies() -> None:
    class Thing:
        pass

    thing = Thing()
    ops = [("LOCAL", 0, 0), ("IS", 0, thing), ("LOCAL", 1, 1), ("RELATION", ((0,), 3, "<"), (1,))]
    ops += [("DISTINCT", (0, 1)), *(("CONST", n, n) for n in range(2, 60))]
    program = C.GuardProgram(ops, 60, 2)
    copies = [program.copy(), program.copy().copy()]
    for each in (program, *copies):
        for _ in range(9):
            assert each.check(function, (thing, 2)) == (-1, (thing, 2))
        assert each.check(function, (thing, 4))[0] == 3 and each.check(function, (2, 2))[0] == 1
    warm = program.copy()
    assert (program.n_ops, program.n_registers) == (warm.n_ops, warm.n_registers) and warm.n_memos == 0
    del program
    gc.collect()
    assert all(each.check(function, (thing, 2))[0] == -1 for each in copies)
    del thing
    gc.collect()
    assert all(each.check(function, (Thing(), 2))[0] == 1 for each in copies)


def check_distinct_among_many() -> None:
    for n in (2, 16, 17, 100, 1000):
        objects = [object() for _ in range(n)]
        ops = [("LOCAL", i, i) for i in range(n)]
        program = C.GuardProgram([*ops, ("DISTINCT", tuple(range(n)))], n)
        assert program.check(function, tuple(objects))[0] == -1
        for i, j in ((0, n - 1), (n // 2, 0), (n - 1, n // 2)):
            if i != j:
                twice = [*objects]
                twice[i] = objects[j]
                assert program.check(function, tuple(twice))[0] == n


def check_constants() -> None:
    nan = float("nan")
    same = [(1, 1), (10**30, 10**30), (0.5, 0.5), (nan, float("nan")), ("a", "a"), (b"x", b"x"), (None, None)]
    same += [(1j, 1j), ((1, (2.0, "x")), (1, (2.0, "x"))), (slice(1, None), slice(1, None)), (..., ...)]
    different = [(1, 2), (1, True), (1, 1.0), (0.0, -0.0), (nan, -nan), (0j, -0j), ("a", b"a"), ((1,), [1])]
    different += [((1, 2.0), (1, 2)), ((1,), (1, 1)), (slice(1, 2), slice(1, 2, 1)), (None, 0), (0.0, nan)]
    for a, b in same:
        assert holds("EQUALS", 0, a, of=b) and C.const_equal(a, b), (a, b)
    for a, b in different:
        assert not holds("EQUALS", 0, a, of=b) and not C.const_equal(b, a), (a, b)


def check_sizes_and_keys() -> None:
    assert (
        holds("LEN_EQ", 0, 2, of=[1, 2])
        and not holds("LEN_EQ", 0, 1, of=[1, 2])
        and not holds("LEN_EQ", 0, 1, of=3)
    )
    assert holds("DICT_LEN", 0, 1, of={"a": 1}) and not holds("DICT_LEN", 0, 1, of=[1])
    keyed = {"a": 1, 2: 3, (4, 5): 6}
    assert holds("DICT_KEYS", 0, ("a", 2, (4, 5)), of=keyed)
    assert not holds("DICT_KEYS", 0, (2, "a", (4, 5)), of=keyed)
    assert not holds("DICT_KEYS", 0, ("a", 2), of=keyed) and not holds("DICT_KEYS", 0, (True,), of={1: 1})
    moved = OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert holds("DICT_KEYS", 0, ("b", "a"), of=moved) and not holds("DICT_KEYS", 0, ("a", "b"), of=moved)
    assert holds("NO_KEY", 0, "b", of={"a": 1}) and not holds("NO_KEY", 0, "a", of={"a": 1})
    assert not holds("NO_KEY", 0, "b", of=[]) and not holds("NO_KEY", 0, [], of={})
    assert holds("HAS_KEY", 0, "a", of={"a": 1}) and not holds("HAS_KEY", 0, "b", of={"a": 1})


def check_attribute_presence() -> None:
    class Thing:
        here = 1

        @property
        def broken(self) -> Any:
            raise ValueError

    assert holds("HAS_ATTR", 0, "here", of=Thing()) and not holds("HAS_ATTR", 0, "gone", of=Thing())
    assert holds("NO_ATTR", 0, "gone", of=Thing()) and not holds("NO_ATTR", 0, "here", of=Thing())
    assert not holds("NO_ATTR", 0, "broken", of=Thing()) and not holds("HAS_ATTR", 0, "broken", of=Thing())


def check_numbers_truth_and_versions() -> None:
    assert holds("INT_TYPE", 0, of=3) and not holds("INT_TYPE", 0, of=True)
    assert holds("INT_RANGE", 0, 2, 4, of=4) and not holds("INT_RANGE", 0, 2, 4, of=5)
    assert not holds("INT_RANGE", 0, 2, 4, of=10**30) and not holds("INT_RANGE", 0, 0, 1, of=True)
    assert holds("TRUTH", 0, 0, of=[]) and holds("TRUTH", 0, 1, of=[1]) and not holds("TRUTH", 0, 1, of=0)
    cell = C.VersionCell()
    program = C.GuardProgram([("VERSION", cell, cell.value)], 0)
    assert program.check(function, ())[0] == -1
    assert cell.bump() == cell.value == 1
    assert program.check(function, ())[0] == 0


def check_python_calls() -> None:
    def boom(*args: Any) -> Any:
        raise ValueError

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    roots = (("LOCAL", 0, 0), ("LOCAL", 1, 1))
    assert run(*roots, ("PREDICATE", lambda a, b: a < b, (0, 1)), args=(1, 2))[0] == -1
    assert run(*roots, ("PREDICATE", lambda a, b: a < b, (1, 0)), args=(1, 2))[0] == 2
    assert run(*roots, ("PREDICATE", boom, (0,)), args=(1, 2))[0] == 2
    assert run(*roots, ("CALL", 2, max, (0, 1)), args=(1, 2)) == (-1, (1, 2, 2))
    assert run(*roots, ("CALL", 2, boom, ()), args=(1, 2))[0] == 2
    program = C.GuardProgram([("PREDICATE", interrupted, ())], 0)
    raises(KeyboardInterrupt, program.check, function, ())
    many = [("LOCAL", i, i) for i in range(60)]
    assert (
        run(*many, ("PREDICATE", lambda *a: a == tuple(range(60)), tuple(range(60))), args=tuple(range(60)))[
            0
        ]
        == -1
    )


def check_index_is_of_the_first_failure() -> None:
    ops = [("LOCAL", 0, 0), ("EQUALS", 0, 1), ("LOCAL", 1, 1), ("EQUALS", 1, 2)]
    program = C.GuardProgram(ops, 2)
    assert (program.n_ops, program.n_registers) == (4, 2)
    assert program.check(function, (1, 2)) == (-1, (1, 2))
    assert program.check(function, (0, 0)) == (1, ()) and program.check(function, (1, 0)) == (3, ())
    assert program.check(function, (1,)) == (2, ())


def check_bad_programs_are_refused() -> None:
    bad = [
        ([("NOTHING", 0)], 1),
        ([("LOCAL", 0)], 1),
        ([("LOCAL", 1, 0)], 1),
        ([("LOCAL", -1, 0)], 1),
        ([("LOCAL", 0, 0), ("LOCAL", 0, 1)], 1),
        ([("TYPE", 1, 0), ("LOCAL", 0, 0)], 2),
        ([("LOCAL", 0, 0)], 2),
        ([], -1),
    ]
    for ops, n in bad:
        raises(ValueError, C.GuardProgram, ops, n)
    wrong_types = [
        [("LOCAL", 0, 0), ("TYPE_IS", 0, 3)],
        [("LOCAL", 0, 0), ("DICT_KEYS", 0, ["a"])],
        [("LOCAL", 0, 0), ("ATTR", 1, 0, 3)],
        [("LOCAL", 0, 0), ("DISTINCT", [0])],
        [("LOCAL", 0, "x")],
        [("PREDICATE", 3, ())],
        [("VERSION", 3, 0)],
        [("GLOBAL_STATE", 3)],
        [3],
    ]
    for ops in wrong_types:
        raises(TypeError, C.GuardProgram, ops, 2)
    raises(RuntimeError, C.GuardProgram, [("LOCAL", 0, 0), ("TENSOR", 0, ())], 1)
    raises(RuntimeError, C.GlobalState.capture)


def check_programs_are_flat() -> None:
    class Thing:
        pass

    thing = Thing()
    thing.items = [1, {"k": (thing,)}]  # type: ignore[attr-defined]
    ops = [("LOCAL", 0, 0), ("ATTR", 1, 0, "items"), ("SEQ_ITEM", 2, 1, 1), ("DICT_GET", 3, 2, "k")]
    ops += [("SEQ_ITEM", 4, 3, 0), ("SAME", 0, 4), ("INSTANCE_DICT", 5, 0), ("DICT_LEN", 5, 1), ("LEN", 6, 1)]
    ops += [("EQUALS", 6, 2), ("TYPE", 7, 0), ("IS", 7, Thing), ("LOCAL", 8, 1), ("EQUALS", 8, "yes")]
    program = C.GuardProgram(ops, 9)
    for last, expected in (("yes", -1), ("no", len(ops) - 1)):
        program.check(function, (thing, last))
        before = sys.getrefcount(thing), sys.getrefcount(Thing), sys.getallocatedblocks()
        for _ in range(20_000):
            assert program.check(function, (thing, last))[0] == expected
        after = sys.getrefcount(thing), sys.getrefcount(Thing), sys.getallocatedblocks()
        assert before[:2] == after[:2] and after[2] - before[2] < 100
    before_programs = sys.getallocatedblocks()
    for _ in range(2_000):
        C.GuardProgram(ops, 9).copy()
        raises(ValueError, C.GuardProgram, [*ops, ("LOCAL", 99, 0)], 9)
    gc.collect()
    assert sys.getallocatedblocks() - before_programs < 200
