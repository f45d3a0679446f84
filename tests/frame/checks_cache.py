"""Entries per code object: lookup order, eviction, lifetime, and the output templates of DirectCall."""

from __future__ import annotations

import gc
import sys
import weakref
from types import FunctionType
from typing import Any

from frame_support import C, Recorder, argument_guards, callback_set, raises, true_guards


def fresh(source: str = "def f(x):\n    return ('plain', x)\n") -> FunctionType:
    """A function whose code object nobody else holds."""
    scope: dict[str, Any] = {}
    exec(source, scope)
    function = scope.pop("f")
    assert isinstance(function, FunctionType)
    return function


def constant(value: Any) -> Any:
    return fresh(f"def f(x):\n    return {value!r}\n").__code__


def check_newest_hit_is_tried_first() -> None:
    f, owner = fresh(), Recorder()
    entries = [C.Entry(owner.owner, argument_guards(0, n), constant(n), tag=n) for n in range(4)]
    for entry in entries:
        C.install(f, entry)
    assert [entry.tag for entry in C.entries(f)] == [3, 2, 1, 0]
    with callback_set(owner):
        assert f(1) == 1
        assert [entry.tag for entry in C.entries(f)] == [1, 3, 2, 0]
        assert f(0) == 0 and f(0) == 0
        assert [entry.tag for entry in C.entries(f)] == [0, 1, 3, 2]
    assert [entry.hits for entry in entries] == [2, 1, 0, 0]
    assert entries[3].last_failed == 1 and entries[2].last_failed == 1


def check_eviction() -> None:
    f, owner = fresh(), Recorder()
    first, second = (C.Entry(owner.owner, true_guards(), constant(n)) for n in range(2))
    C.install(f, first)
    C.install(f.__code__, second)
    with callback_set(owner):
        assert f(0) == 1
        assert C.evict(f, second) and not second.valid
        assert not C.evict(f, second)
        assert f(0) == 0
        first.invalidate()
        assert f(0) == ("plain", 0)
    assert C.entries(f) == []
    raises(ValueError, C.install, f, first)


def check_reset() -> None:
    f, g, owner = fresh(), fresh(), Recorder()
    for function in (f, g):
        C.install(function, C.Entry(owner.owner, true_guards(), constant(1)))
        C.code_state(function).data = "kept"
    C.reset_code(f)
    assert C.entries(f) == [] and C.code_state(f).data is None
    assert len(C.entries(g)) == 1 and C.code_state(g).data == "kept"
    entry = C.entries(g)[0]
    C.reset_all()
    assert C.entries(g) == [] and not entry.valid
    with callback_set(owner):
        assert g(3) == ("plain", 3)


def check_install_rejects_what_does_not_fit() -> None:
    f = fresh()
    for source in ("def f():\n    pass\n", "def f(*x):\n    pass\n", "def f(*, x):\n    pass\n"):
        raises(ValueError, C.install, f, C.Entry(1, true_guards(), fresh(source).__code__))
    outer = fresh("def f(x):\n    return lambda y: x\n")
    raises(ValueError, C.install, f, C.Entry(1, true_guards(), outer(1).__code__))
    raises(ValueError, C.Entry, 1, true_guards(), None)
    raises(ValueError, C.Entry, 1, true_guards(), None, C.DirectCall(print, (0,), "tuple"))
    raises(TypeError, C.Entry, 1, true_guards(), f)
    raises(TypeError, C.entries, 3)


def check_entries_die_with_their_code() -> None:
    class Tag:
        pass

    f, owner = fresh(), Recorder()
    tag = Tag()
    C.install(f, C.Entry(owner.owner, true_guards(), constant(1), tag=tag))
    state, entry = C.code_state(f), weakref.ref(C.entries(f)[0])
    watch, tag = weakref.ref(tag), None
    assert state.code is f.__code__
    del f
    gc.collect()
    assert watch() is None and entry() is None
    assert state.code is None and state.entries == []


def check_guards_keep_nothing_of_the_user_alive() -> None:
    class Thing:
        pass

    f, owner, thing = fresh(), Recorder(), Thing()
    guards = C.GuardProgram([("LOCAL", 0, 0), ("IS", 0, thing)], 1)
    C.install(f, C.Entry(owner.owner, guards, constant(1)))
    with callback_set(owner):
        assert f(thing) == 1
    watch, thing, other = weakref.ref(thing), None, Thing()
    gc.collect()
    assert watch() is None
    with callback_set(owner):
        assert f(other) == ("plain", other)
        assert f(0) == ("plain", 0)


def check_no_leak_over_many_codes() -> None:
    def once() -> None:
        f, owner = fresh(), Recorder()
        with callback_set(owner):
            owner.table[f] = C.Entry(owner.owner, argument_guards(0, 1), constant(1))
            assert f(1) == 1
            owner.table[f] = C.SKIP
            f(2)

    def growth() -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(300):
            once()
        gc.collect()
        return sys.getallocatedblocks() - before

    # A leak shows in every batch; the interpreter's own tables grow in some.
    grown = [growth() for _ in range(5)]
    assert min(grown) < 100, grown


def check_guards_may_change_the_cache_under_evaluation() -> None:
    f, owner = fresh(), Recorder()

    def meddle(x: Any) -> bool:
        C.reset_code(f)
        gc.collect()
        return False

    def evict_first(x: Any) -> bool:
        C.evict(f, C.entries(f)[0])
        return True

    for predicate in (meddle, evict_first):
        guards = C.GuardProgram([("LOCAL", 0, 0), ("PREDICATE", predicate, (0,))], 1)
        for n in range(3):
            C.install(f, C.Entry(owner.owner, guards, constant(n)))
        with callback_set(owner):
            assert f(5) in (("plain", 5), 2)


def check_interrupts_escape_from_guards() -> None:
    f, owner = fresh(), Recorder()

    def interrupt(x: Any) -> bool:
        raise KeyboardInterrupt

    def fail(x: Any) -> bool:
        raise ValueError

    for predicate in (interrupt, fail):
        C.reset_code(f)
        guards = C.GuardProgram([("LOCAL", 0, 0), ("PREDICATE", predicate, (0,))], 1)
        C.install(f, C.Entry(owner.owner, guards, constant(1)))
        with callback_set(owner):
            if predicate is interrupt:
                raises(KeyboardInterrupt, f, 1)
            else:
                assert f(1) == ("plain", 1)


def direct(output: Any, result: Any = ("a", "b"), inputs: tuple[int, ...] = (0,)) -> Any:
    """What a hit with this output template returns for the argument 'arg'."""
    f, owner = fresh(), Recorder()
    guards = C.GuardProgram([("LOCAL", 0, 0), ("CONST", 1, "constant")], 2)
    calls: list[Any] = []

    def graph(*args: Any) -> Any:
        calls.append(args)
        if isinstance(result, Exception):
            raise result
        return result

    C.install(f, C.Entry(owner.owner, guards, None, C.DirectCall(graph, inputs, output)))
    with callback_set(owner):
        value = f("arg")
    assert calls == [tuple(("arg", "constant")[i] for i in inputs)]
    assert owner.names == [], "the callable runs with the hook off"
    return value


def check_direct_outputs() -> None:
    assert direct("tuple") == ("a", "b")
    assert direct("tuple", ["a"]) == ("a",)
    assert direct("single") == "a"
    assert direct("none") is None
    assert direct("tuple", inputs=(1, 0, 0)) == ("a", "b")
    assert direct(("out", 1)) == "b"
    nested = ("dict", ("k", 2), [("list", [("out", 1), ("reg", 0)]), ("tuple", [("const", 7.5), ("out", 0)])])
    assert direct(nested) == {"k": ["b", "arg"], 2: (7.5, "a")}
    assert direct(("tuple", []), ()) == ()


def check_direct_many_inputs() -> None:
    assert direct("single", inputs=tuple(n % 2 for n in range(100))) == "a"


def check_direct_failures() -> None:
    assert raises(ZeroDivisionError, direct, "tuple", ZeroDivisionError("x")).args == ("x",)
    raises(IndexError, direct, ("out", 2))
    raises(TypeError, direct, "single", 3)
    for spec in ("triple", ("out", -1), ("dict", ("a",), []), ("what", 1), ("out",), 3):
        raises(ValueError, C.DirectCall, print, (0,), spec)
    raises(TypeError, C.DirectCall, 3, (0,), "tuple")
    raises(ValueError, C.DirectCall, print, (-1,), "tuple")


def check_direct_results_are_fresh_and_flat() -> None:
    f, owner, marker = fresh(), Recorder(), object()

    def graph(x: Any) -> Any:
        return (x,)

    template = ("list", [("out", 0), ("reg", 0)])
    guards = C.GuardProgram([("LOCAL", 0, 0)], 1)
    C.install(f, C.Entry(owner.owner, guards, None, C.DirectCall(graph, (0,), template)))
    with callback_set(owner):
        one, two = f(marker), f(marker)
        assert one == two == [marker, marker] and one is not two
        del one, two
        before = sys.getrefcount(marker)
        for _ in range(10_000):
            f(marker)
        assert sys.getrefcount(marker) == before
