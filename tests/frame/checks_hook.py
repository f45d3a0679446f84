"""The hook and per-thread callbacks. Each check_* function is one test, on every CPython found."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from typing import Any

from frame_support import C, Recorder, argument_guards, callback_set, load_extension, raises, true_guards


def add(x: Any, y: Any) -> Any:
    return x + y


def swap(x: Any, y: Any) -> Any:
    return ("replaced", y, x)


def check_no_callback_means_no_hook() -> None:
    assert not C.is_hook_installed()
    with callback_set(Recorder()):
        assert C.is_hook_installed()
    assert not C.is_hook_installed()
    assert C.get_callback() is None


def check_previous_callback_is_returned() -> None:
    first, second = Recorder(), Recorder()
    assert C.set_callback(first) is None
    assert C.set_callback(second) is first
    assert C.set_callback(False) is second
    assert C.set_callback(None) is False
    raises(TypeError, C.set_callback, 3)
    assert C.get_callback() is None


def check_callback_sees_fast_locals() -> None:
    def many(a: Any, b: Any = 2, *rest: Any, key: Any, other: Any = 5, **more: Any) -> Any:
        local = a
        return local, b, rest, key, other, more

    recorder = Recorder()
    with callback_set(recorder):
        result = many(1, 7, 8, 9, key=3, z=4)
    assert result == (1, 7, (8, 9), 3, 5, {"z": 4})
    assert recorder.asked[0] == ("many", (1, 7, 3, 5, (8, 9), {"z": 4}))


def check_replacement_runs() -> None:
    recorder = Recorder({add: swap})
    with callback_set(recorder):
        assert add(1, 2) == ("replaced", 2, 1)
        assert add(y=1, x=2) == ("replaced", 1, 2)
    assert add(1, 2) == 3
    assert recorder.names == ["add"], "an installed entry must not ask again"


def check_replacement_of_every_argument_kind() -> None:
    def many(a: Any, /, b: Any = 2, *rest: Any, key: Any = 1, **more: Any) -> Any:
        return None

    def plain(a: Any, b: Any, key: Any, rest: Any, more: Any) -> Any:
        return a, b, rest, key, more

    with callback_set(Recorder({many: plain})):
        assert many(1) == (1, 2, (), 1, {})
        assert many(1, 3, 4, 5, key=6, z=7, a=8) == (1, 3, (4, 5), 6, {"z": 7, "a": 8})
        message = str(raises(TypeError, many))
    assert "missing 1 required positional argument: 'a'" in message


def check_closure_of_the_original_is_used() -> None:
    def make(start: int) -> tuple[Any, Any]:
        total = start

        def bump(step: int) -> int:
            nonlocal total
            total += step
            return total

        def replaced(step: int) -> int:
            nonlocal total
            total += 100 * step
            return total

        return bump, replaced

    bump, replaced = make(5)
    twin, _ = make(7)
    recorder = Recorder({bump: replaced, twin: replaced})
    with callback_set(recorder):
        assert bump(1) == 105
        assert bump(1) == 205
        assert twin(1) == 107, "entries are shared by code, closures are not"
    assert bump(1) == 206
    assert recorder.names == ["bump"]


def check_arguments_that_become_cells() -> None:
    def outer(x: int) -> Any:
        def inner() -> int:
            return x

        x += 1
        return inner

    def other(x: int) -> Any:
        x += 10
        return lambda: x

    recorder = Recorder({outer: other})
    with callback_set(recorder):
        assert outer(1)() == 11
    assert recorder.asked[0] == ("outer", (1,))
    assert outer(1)() == 2


def check_generators_are_left_alone() -> None:
    def numbers(n: int) -> Any:
        try:
            for i in range(n):
                got = yield i
                if got:
                    yield got
        finally:
            log.append("closed")

    async def waits(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def agen(n: int) -> Any:
        yield n

    async def collect() -> list[int]:
        return [i async for i in agen(3)] + [await waits(4)]

    log: list[str] = []
    recorder = Recorder()
    with callback_set(recorder):
        generator = numbers(4)
        assert next(generator) == 0 and generator.send("sent") == "sent"
        raises(ZeroDivisionError, generator.throw, ZeroDivisionError())
        assert list(numbers(3)) == [0, 1, 2]
        assert asyncio.run(collect()) == [3, 4]
    assert log == ["closed", "closed"]
    assert not {"numbers", "waits", "agen", "collect"} & set(recorder.names)


def check_class_and_module_bodies_are_left_alone() -> None:
    recorder = Recorder()
    with callback_set(recorder):

        class Body:
            value = 1

            def method(self) -> int:
                return self.value

        namespace: dict[str, Any] = {}
        exec("answer = 42", namespace)
        assert Body().method() == 1
    assert namespace["answer"] == 42
    assert "Body" not in recorder.names and "<module>" not in recorder.names
    assert "method" in recorder.names


def check_calls_below_go_through_the_hook() -> None:
    def leaf(x: int) -> int:
        return x

    def by_default(x: int) -> int:
        return leaf(x) + leaf(x)

    def replaced_leaf(x: int) -> int:
        return 10 * x

    def replacement(x: int) -> int:
        return leaf(x) + 1000

    def top(x: int) -> int:
        return x

    # Free variables differ between these functions, so the replacement reaches `leaf` as a global.
    scope = {"leaf": leaf}
    exec("def replacement(x):\n    return leaf(x) + 1000\n", scope)
    top = type(top)(top.__code__, scope, "top")
    recorder = Recorder({leaf: replaced_leaf, top: scope["replacement"]})
    with callback_set(recorder):
        assert by_default(2) == 40
        assert top(2) == 1020


def check_recursion_goes_through_the_hook() -> None:
    def down(n: int) -> int:
        return 0 if n == 0 else 1 + down(n - 1)

    recorder = Recorder()
    with callback_set(recorder):
        assert down(20) == 20
    assert recorder.names == ["down"] * 21


def check_recursive_replacement() -> None:
    scope: dict[str, Any] = {}
    body = "(n):\n    return 0 if n == 0 else f(n - 1) + "
    exec(f"def f{body}1\ndef g{body}2\n", scope)
    with callback_set(Recorder({scope["f"]: scope["g"]})):
        assert scope["f"](200) == 400
        raises(RecursionError, scope["f"], 10**6)
        assert scope["f"](200) == 400


def check_deep_recursion_is_flat() -> None:
    scope: dict[str, Any] = {}
    exec("def f(n, o):\n    return None\ndef g(n, o):\n    return o if n == 0 else f(n - 1, o)\n", scope)
    marker = object()
    with callback_set(Recorder({scope["f"]: scope["g"]})):
        scope["f"](150, marker)
        before = sys.getrefcount(marker), sys.getrefcount(scope["f"]), sys.getrefcount(scope["g"].__code__)
        for _ in range(300):
            scope["f"](150, marker)
        after = sys.getrefcount(marker), sys.getrefcount(scope["f"]), sys.getrefcount(scope["g"].__code__)
    assert before == after


def check_reference_counts_are_flat() -> None:
    def identity(x: Any, *rest: Any, **more: Any) -> Any:
        return x

    def replacement(x: Any, rest: Any, more: Any) -> Any:
        return x

    marker = object()
    watched = (marker, None, identity, identity.__code__, replacement.__code__, identity.__globals__, ())

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(item) for item in watched]

    with callback_set(Recorder({identity: replacement})):
        for _ in range(1000):
            identity(marker, 1, k=2)
        before, blocks = counts(), sys.getallocatedblocks()
        for _ in range(100_000):
            identity(marker, 1, k=2)
        after, blocks_after = counts(), sys.getallocatedblocks()
    # Small shared constants such as None move by a handful; a leak would show as 100,000.
    assert all(abs(x - y) < 50 for x, y in zip(before, after, strict=True)), (before, after)
    assert blocks_after - blocks < 500


def check_exception_from_replacement() -> None:
    def fails(x: int) -> int:
        return x

    def raiser(x: int) -> int:
        y = x
        return y // 0

    def caller() -> int:
        return fails(3)

    with callback_set(Recorder({fails: raiser})):
        error = raises(ZeroDivisionError, caller)
        for _ in range(1000):
            raises(ZeroDivisionError, fails, 3)
    frames = traceback.extract_tb(error.__traceback__)
    assert [frame.name for frame in frames][-2:] == ["caller", "raiser"]
    assert frames[-1].lineno == raiser.__code__.co_firstlineno + 2


def check_exception_from_callback() -> None:
    problem = LookupError("from the callback")
    recorder = Recorder({add: problem})

    def caller() -> Any:
        return add(1, 2)

    with callback_set(recorder):
        assert raises(LookupError, caller) is problem
        assert raises(LookupError, caller) is problem
        assert C.get_callback() is recorder
    assert add(1, 2) == 3


def check_wrong_answers() -> None:
    with callback_set(Recorder({add: 3})):
        assert "must return an Entry, SKIP or None" in str(raises(TypeError, add, 1, 2))

    def short(x: Any) -> Any:
        return x

    with callback_set(Recorder({add: short})):
        assert "as plain positionals" in str(raises(ValueError, add, 1, 2))


def check_entry_whose_guards_fail_at_once() -> None:
    import warnings

    recorder = Recorder()
    recorder.table[add] = C.Entry(recorder.owner, argument_guards(0, "never"), swap.__code__)
    with warnings.catch_warnings(record=True) as caught, callback_set(recorder):
        warnings.simplefilter("always")
        assert add(1, 2) == 3
    assert [w.category for w in caught] == [RuntimeWarning]
    assert recorder.table[add].last_failed == 1


def check_skip_is_per_owner() -> None:
    one, two = Recorder({add: C.SKIP}), Recorder({add: C.SKIP})
    for recorder in (one, one, two, two, one):
        with callback_set(recorder):
            assert add(1, 2) == 3
    assert one.names == ["add"] and two.names == ["add"]
    C.reset_code(add)
    with callback_set(one):
        add(1, 2)
    assert one.names == ["add", "add"]


def check_none_asks_again() -> None:
    recorder = Recorder()
    with callback_set(recorder):
        add(1, 2)
        add(1, 2)
    assert recorder.names == ["add", "add"]


def check_run_only() -> None:
    recorder = Recorder({add: swap})
    with callback_set(recorder):
        add(1, 2)
        with callback_set(False):
            assert add(1, 2) == ("replaced", 2, 1)
            swap(1, 2)
    assert recorder.names == ["add"]


def check_entries_of_another_owner_do_not_run() -> None:
    one, two = Recorder({add: swap}), Recorder()
    with callback_set(one):
        assert add(1, 2) == ("replaced", 2, 1)
    with callback_set(two):
        assert add(1, 2) == 3
    assert two.names == ["add"]


def check_hook_is_off_inside_the_callback() -> None:
    def callback(function: Any, arguments: Any, state: Any) -> Any:
        assert add(1, 1) == 2
        calls.append(function.__name__)

    calls: list[str] = []
    with callback_set(callback):
        add(1, 2)
    assert calls == ["add"]


def check_guards_run_with_the_hook_off() -> None:
    recorder = Recorder({})
    guards = C.GuardProgram([("LOCAL", 0, 0), ("PREDICATE", lambda x: add(x, 1) > 0, (0,))], 1)
    recorder.table[add] = C.Entry(recorder.owner, guards, swap.__code__)
    with callback_set(recorder):
        assert add(1, 2) == add(1, 2) == ("replaced", 2, 1)
    assert recorder.names == ["add"]


def check_skip_code() -> None:
    def quiet() -> Any:
        return add(1, 2)

    def silent() -> Any:
        return add(1, 2)

    C.skip_code(quiet)
    C.skip_code(silent.__code__, recursive=True)
    recorder = Recorder()
    with callback_set(recorder):
        quiet()
        assert recorder.names == ["add"]
        silent()
        assert recorder.names == ["add"]
        add(1, 2)
    assert recorder.names == ["add", "add"]
    assert C.code_state(quiet).skipped and not C.code_state(add).skipped


def check_threads_are_independent() -> None:
    recorder, other = Recorder({add: swap}), Recorder()
    seen: list[Any] = []

    def work() -> None:
        seen.append(add(1, 2))
        C.set_callback(other)  # left set: the thread's end must take it away
        seen.append(add(1, 2))

    with callback_set(recorder):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert add(1, 2) == ("replaced", 2, 1)
    assert seen == [3, 3]
    assert ("add", (1, 2)) in other.asked and recorder.asked.count(("add", (1, 2))) == 1
    gc.collect()
    assert not C.is_hook_installed()


def check_many_threads() -> None:
    def busy(n: int) -> int:
        return n

    def replaced(n: int) -> int:
        return n + 1

    recorder = Recorder({busy: replaced})
    wrong: list[Any] = []

    def work() -> None:
        with callback_set(recorder):
            wrong.extend(n for n in range(2000) if busy(n) != n + 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not C.is_hook_installed()


def check_tracing_and_profiling_stay_balanced() -> None:
    events: list[tuple[str, str]] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        events.append((event, frame.f_code.co_name))
        return tracer

    def profiler(frame: Any, event: str, arg: Any) -> None:
        if not event.startswith("c_"):
            events.append((event, frame.f_code.co_name))

    def caller() -> Any:
        return add(1, 2)

    recorder = Recorder({add: swap})
    with callback_set(recorder):
        for stands_aside, inner, expected in ((True, "add", 3), (False, "swap", ("replaced", 2, 1))):
            C.set_stands_aside(stands_aside)
            for setter, hook in ((sys.settrace, tracer), (sys.setprofile, profiler)):
                events.clear()
                recorder.asked.clear()
                setter(hook)
                result = caller()
                setter(None)
                assert result == expected
                assert bool(recorder.asked) is not stands_aside
                calls = [name for event, name in events if event == "call" and name in ("caller", inner)]
                returns = [name for event, name in events if event == "return" and name in ("caller", inner)]
                assert calls == ["caller", inner] and returns == [inner, "caller"], events
    C.set_stands_aside(True)


def check_deep_recursion_runs_as_without_the_hook() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + depth(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(60_000)
    with callback_set(Recorder({add: swap})):
        assert depth(50_000) == 50_000
        assert C.is_hook_installed() and add(1, 2) == ("replaced", 2, 1)
        sys.setrecursionlimit(limit)
        try:
            depth(2000)
        except RecursionError:
            pass
        else:
            raise AssertionError("the recursion limit holds")
        assert C.is_hook_installed() and add(1, 2) == ("replaced", 2, 1)
    assert not C.is_hook_installed()


def check_hook_stands_aside_for_monitoring_tools() -> None:
    if not hasattr(sys, "monitoring"):
        return
    with callback_set(Recorder({add: swap})):
        assert add(1, 2) == ("replaced", 2, 1)
        sys.monitoring.use_tool_id(3, "checks")
        assert add(1, 2) == 3
        sys.monitoring.free_tool_id(3)
        assert add(1, 2) == ("replaced", 2, 1)


def check_hook_installed_before_is_called() -> None:
    chained = load_extension(sys.argv[2], "chained_hook")
    chained.install()
    try:
        recorder = Recorder({add: swap})
        with callback_set(recorder):
            before = chained.count()
            swap(1, 2)
            assert chained.count() > before, "frames run by default go to the earlier hook"
            assert add(1, 2) == ("replaced", 2, 1)
        before = chained.count()
        add(1, 2)
        assert chained.count() > before, "removing ours puts the earlier hook back"
    finally:
        chained.uninstall()
    assert not C.is_hook_installed()


def check_hook_installed_on_top_stays() -> None:
    chained = load_extension(sys.argv[2], "chained_hook")
    recorder = Recorder({add: swap})
    previous = C.set_callback(recorder)
    chained.install()  # on top of ours
    try:
        assert add(1, 2) == ("replaced", 2, 1)
        C.set_callback(previous)
        assert add(1, 2) == 3
        with callback_set(recorder):  # ours goes on top of the ring: it must not loop
            assert add(1, 2) == ("replaced", 2, 1)
            assert swap(1, 2) == ("replaced", 2, 1)
    finally:
        chained.uninstall()
        with callback_set(recorder):
            pass
    assert add(1, 2) == 3


def check_caller_frames_are_visible_below() -> None:
    def who() -> list[str]:
        frame, names = sys._getframe(), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return names

    def original() -> Any:
        return None

    def caller() -> Any:
        return original()

    scope = {"who": who}
    exec("def replacement():\n    return who()\n", scope)
    original = type(original)(original.__code__, scope, "original")
    with callback_set(Recorder({original: scope["replacement"]})):
        assert caller()[:3] == ["who", "replacement", "caller"]


def check_callback_attribute_owner_is_read_once() -> None:
    class Counting:
        reads = 0

        @property
        def owner(self) -> Any:
            type(self).reads += 1
            return token

        def __call__(self, *args: Any) -> Any:
            return C.SKIP

    token = object()
    with callback_set(Counting()):
        for _ in range(10):
            add(1, 2)
    assert Counting.reads == 1


def check_entry_runs_for_true_guards_only() -> None:
    recorder = Recorder()
    recorder.table[add] = C.Entry(recorder.owner, argument_guards(0, 1), swap.__code__)
    with callback_set(recorder):
        assert add(1, 2) == ("replaced", 2, 1)
        recorder.table[add] = None
        assert add(2, 2) == 4
        assert add(1, 2) == ("replaced", 2, 1)
    assert true_guards().check(add, (1, 2)) == (-1, ())


def check_callback_changed_while_disabled_takes_effect_after() -> None:
    def change(to: Any) -> None:
        C.set_callback(to)
        add(1, 2)

    first, second = Recorder(), Recorder()
    C.skip_code(change, recursive=True)
    C.set_callback(first)
    change(second)
    assert first.asked == [] == second.asked
    add(1, 2)
    change(None)
    add(1, 2)
    assert (first.names, second.names) == ([], ["add"])
    assert not C.is_hook_installed()


def check_guard_that_takes_the_callback_away() -> None:
    recorder = Recorder()
    guards = C.GuardProgram([("PREDICATE", lambda: C.set_callback(None) is None, ())], 0)
    C.install(add, C.Entry(recorder.owner, guards, swap.__code__))
    C.set_callback(recorder)
    assert add(1, 2) == 3
    assert C.get_callback() is None and recorder.asked == []
