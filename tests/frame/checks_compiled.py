"""CompiledFunction and DisabledFunction: binding, attributes, and what a hit, a miss and an exception do."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import inspect
import itertools
import pickle
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from frame_support import C, Recorder, argument_guards, callback_set, raises, true_guards


def compiled(function: Callable[..., Any], table: dict[Any, Any] | None = None) -> tuple[Any, Recorder]:
    recorder = Recorder(table)
    return C.CompiledFunction(function, recorder), recorder


def documented(x: int, y: int = 2) -> int:
    """Adds."""
    return x + y


documented.extra = "extra"  # type: ignore[attr-defined]
COMPILED = C.CompiledFunction(documented, None)


def spread(a: Any, b: Any = 2, /, c: Any = 3, *rest: Any, d: Any, e: Any = 5, **more: Any) -> Any:
    return "plain"


def plain_spread(a: Any, b: Any, c: Any, d: Any, e: Any, rest: Any, more: Any) -> Any:
    return a, b, c, d, e, rest, more


def shapes() -> list[Callable[..., Any]]:
    """Functions of many signatures that return their own arguments."""

    def none() -> Any:
        return ()

    def two(a: Any, b: Any) -> Any:
        return a, b

    def defaults(a: Any, b: Any = 20, c: Any = 30) -> Any:
        return a, b, c

    def positional_only(a: Any, b: Any = 20, /) -> Any:
        return a, b

    def keyword_only(*, a: Any, b: Any = 20) -> Any:
        return a, b

    def star(a: Any = 10, *rest: Any) -> Any:
        return a, rest

    def keywords(a: Any = 10, **more: Any) -> Any:
        return a, more

    def positional_and_keywords(a: Any, /, **more: Any) -> Any:
        return a, more

    def everything(a: Any, b: Any = 20, /, c: Any = 30, *rest: Any, d: Any = 40, **more: Any) -> Any:
        return a, b, c, rest, d, more

    return [v for v in list(locals().values()) if isinstance(v, types.FunctionType)]


def echo_entry(function: types.FunctionType, owner: object) -> Any:
    """An entry that returns the fast locals, in the order of the signature."""
    code = function.__code__
    named, star = code.co_argcount + code.co_kwonlyargcount, code.co_flags & inspect.CO_VARARGS
    n = named + bool(star) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    order = [*range(code.co_argcount), *([named] if star else []), *range(code.co_argcount, named)]
    order += [i for i in range(n) if i not in order]
    guards = C.GuardProgram([("LOCAL", i, i) for i in range(n)], n)
    return C.Entry(owner, guards, None, C.DirectCall(tuple, (), ("tuple", [("reg", i) for i in order])))


def check_binding_agrees_with_python() -> None:
    argument_sets = [tuple(range(n)) for n in range(5)]
    keyword_sets: list[dict[str, Any]] = [
        {key: f"kw_{key}" for key in keys}
        for size in range(4)
        for keys in itertools.combinations(("a", "b", "c", "d", "z"), size)
    ]
    tried = bound = 0
    for function in shapes():
        wrapper, recorder = compiled(function)
        C.install(function, echo_entry(function, recorder.owner))
        for args, kwargs in itertools.product(argument_sets, keyword_sets):
            tried += 1
            try:
                expected = function(*args, **kwargs)
            except TypeError as error:
                assert str(raises(TypeError, wrapper, *args, **kwargs)) == str(error)
                continue
            bound += 1
            assert wrapper(*args, **kwargs) == expected, (function.__name__, args, kwargs)
        assert recorder.names == []
    assert tried > 1000 and bound > 100


def check_uninterned_keyword_names() -> None:
    wrapper, recorder = compiled(spread, {spread: plain_spread})
    name = "".join(["", "d"])
    assert wrapper(1, **{name: 4}) == wrapper(1, **{"".join(["d"]): 4}) == (1, 2, 3, 4, 5, (), {})


def check_many_arguments() -> None:
    names = [f"a{i}" for i in range(40)]
    scope: dict[str, Any] = {}
    exec(f"def f({', '.join(names)}):\n    return a39\n", scope)
    wrapper, recorder = compiled(scope["f"])
    C.install(scope["f"], echo_entry(scope["f"], recorder.owner))
    assert wrapper(*range(39), a39="last") == (*range(39), "last")


def check_miss_then_hit() -> None:
    def f(x: Any) -> Any:
        return helper(x)

    def helper(x: Any) -> Any:
        return x

    def replaced(x: Any) -> Any:
        return "hit", x

    wrapper, recorder = compiled(f)
    assert wrapper(1) == 1
    assert recorder.names == ["f", "helper"]
    recorder.table[f] = C.Entry(recorder.owner, argument_guards(0, 2), replaced.__code__)
    assert wrapper(2) == ("hit", 2) == wrapper(2)
    assert recorder.names == ["f", "helper", "f"]
    assert not C.is_hook_installed() and C.get_callback() is None
    assert f(2) == 2, "the function itself stays as it was"


def check_nested_frames_of_a_hit_go_through_the_hook() -> None:
    scope: dict[str, Any] = {}
    exec(
        "def leaf(x):\n    return x\n"
        "def f(x):\n    return None\n"
        "def replacement(x):\n    return leaf(x) + 1\n"
        "def other_leaf(x):\n    return 100 * x\n",
        scope,
    )
    wrapper, recorder = compiled(
        scope["f"], {scope["f"]: scope["replacement"], scope["leaf"]: scope["other_leaf"]}
    )
    assert [wrapper(2) for _ in range(3)] == [201] * 3
    assert recorder.names == ["f", "leaf"]


def check_callback_is_restored_after_exceptions() -> None:
    def fails(x: Any) -> Any:
        raise LookupError(x)

    outer = Recorder()
    wrapper, recorder = compiled(fails, {fails: fails_too})
    with callback_set(outer):
        for _ in range(3):
            raises(ArithmeticError, wrapper, 1)
            assert C.get_callback() is outer
        wrapper.callback = None
        raises(LookupError, wrapper, 1)
        assert C.get_callback() is outer
    assert not C.is_hook_installed()


def fails_too(x: Any) -> Any:
    raise ArithmeticError(x)


def check_compiled_in_compiled() -> None:
    def inner(x: Any) -> Any:
        return x + 1

    def inner_replaced(x: Any) -> Any:
        return x + 10

    inner_wrapper, inner_recorder = compiled(inner, {inner: inner_replaced})
    scope: dict[str, Any] = {"inner": inner_wrapper}
    exec(
        "def after(x):\n    return x\n"
        "def f(x):\n    return None\n"
        "def g(x):\n    return after(inner(x) + inner(x))\n",
        scope,
    )
    wrapper, recorder = compiled(scope["f"], {scope["f"]: scope["g"]})
    for _ in range(3):
        assert wrapper(1) == 22
    assert inner_recorder.names == ["inner"]
    assert recorder.names == ["f", "after", "after", "after"], (
        "the outer callback is back after each inner call"
    )


def check_recursion_through_the_wrapper() -> None:
    scope: dict[str, Any] = {}
    exec("def f(n):\n    return None\ndef g(n):\n    return 0 if n == 0 else 1 + wrapper(n - 1)\n", scope)
    wrapper, recorder = compiled(scope["f"], {scope["f"]: scope["g"]})
    scope["wrapper"] = wrapper
    assert wrapper(100) == 100
    raises(RecursionError, wrapper, 10**6)
    assert wrapper(100) == 100
    assert C.get_callback() is None and not C.is_hook_installed()


def check_run_only_and_none() -> None:
    def f(x: Any) -> Any:
        return x

    def replaced(x: Any) -> Any:
        return -x

    wrapper, recorder = compiled(f)
    recorder.table[f] = C.Entry(recorder.owner, argument_guards(0, 1), replaced.__code__)
    assert wrapper(1) == -1
    wrapper.callback = False
    assert wrapper(1) == -1 and wrapper(2) == 2
    wrapper.callback = None
    assert wrapper(1) == 1
    raises(TypeError, setattr, wrapper, "callback", 3)
    assert recorder.names == ["f"]


def check_methods() -> None:
    def replaced(self: Any, x: Any) -> Any:
        return "replaced", self.name, x

    recorder = Recorder()

    class Thing:
        name = "thing"

        def plain(self, x: Any) -> Any:
            return x

        def _compiled(self, x: Any) -> Any:
            return x

        recorder.table[_compiled] = replaced
        method = C.CompiledFunction(_compiled, recorder)
        static = staticmethod(method)

    thing = Thing()
    for _ in range(2):
        assert thing.method(1) == ("replaced", "thing", 1) == Thing.method(thing, 1) == thing.method(x=1)
        assert Thing.static(thing, 1) == ("replaced", "thing", 1)
    bound = C.CompiledFunction(thing.plain, recorder)
    recorder.table[Thing.plain] = replaced
    for _ in range(2):
        assert bound(5) == bound(x=5) == ("replaced", "thing", 5)
    assert isinstance(thing.method, types.MethodType)


def check_other_callables() -> None:
    class Callable_:
        def __call__(self, x: Any) -> Any:
            return x + 1

    wrapper, recorder = compiled(Callable_())
    assert wrapper(1) == 2 and recorder.names == ["__call__"]
    assert C.CompiledFunction(max, recorder)(1, 2) == 2
    assert C.CompiledFunction(functools.partial(divmod, 7), recorder)(2) == (3, 1)
    raises(TypeError, C.CompiledFunction, 3, recorder)
    raises(TypeError, C.CompiledFunction, max, 3)

    def generator(n: int) -> Any:
        yield from range(n)

    assert list(C.CompiledFunction(generator, recorder)(3)) == [0, 1, 2]


def check_attributes() -> None:
    assert COMPILED.__name__ == "documented" and COMPILED.__qualname__ == "documented"
    assert COMPILED.__doc__ == "Adds." and COMPILED.__module__ == __name__
    assert COMPILED.__wrapped__ is documented and COMPILED.extra == "extra"
    assert inspect.signature(COMPILED) == inspect.signature(documented)
    assert inspect.unwrap(COMPILED) is documented
    COMPILED.more = 1
    assert COMPILED.more == 1 and "more" in COMPILED.__dict__ and not hasattr(documented, "more")
    del COMPILED.more
    assert "documented" in repr(COMPILED) and callable(COMPILED)


def check_pickle_and_copy_are_by_name() -> None:
    wrapper = C.CompiledFunction(documented, None)
    original, globals()["documented"] = documented, wrapper
    try:
        assert pickle.loads(pickle.dumps(wrapper)) is wrapper
    finally:
        globals()["documented"] = original
    assert copy.copy(wrapper) is wrapper and copy.deepcopy(wrapper) is wrapper


def check_weak_references_and_collection() -> None:
    def f(x: Any) -> Any:
        return wrapper  # noqa: F821  deleted on purpose below

    wrapper, recorder = compiled(f)
    watch, function = weakref.ref(wrapper), weakref.ref(f)
    wrapper.myself = wrapper
    wrapper(1)
    del wrapper, f, recorder
    gc.collect()
    assert watch() is None and function() is None


def check_reference_counts_are_flat() -> None:
    marker = object()

    def f(x: Any, *, key: Any = 1) -> Any:
        return x

    def replaced(x: Any, key: Any) -> Any:
        return x

    wrapper, recorder = compiled(f)
    kinds = [
        C.Entry(
            recorder.owner,
            C.GuardProgram([("LOCAL", 0, 0)], 1),
            None,
            C.DirectCall(lambda x: (x,), (0,), "single"),
        ),
        C.Entry(recorder.owner, true_guards(), replaced.__code__),
        C.Entry(recorder.owner, argument_guards(0, 0), replaced.__code__),
    ]
    for entry in kinds:
        C.reset_code(f)
        C.install(f, entry)
        recorder.otherwise = C.SKIP
        wrapper(marker)
        watched = (marker, wrapper, f, recorder, recorder.owner, entry)
        gc.collect()
        before, blocks = [sys.getrefcount(o) for o in watched], sys.getallocatedblocks()
        for _ in range(20_000):
            wrapper(marker, key=2)
        assert [sys.getrefcount(o) for o in watched] == before
        assert sys.getallocatedblocks() - blocks < 200
        C.reset_code(f)
        del entry


def check_disable() -> None:
    def leaf() -> str:
        return "leaf"

    def quiet(x: Any = 1, *, key: Any = 2) -> Any:
        """Quiet."""
        return leaf(), x, key

    recorder = Recorder()
    disabled = C.disable_wrapper(quiet)
    with callback_set(recorder):
        assert disabled() == ("leaf", 1, 2)
        assert disabled(3, key=4) == ("leaf", 3, 4)
        assert recorder.names == []
        raises(TypeError, disabled, 1, 2)
        quiet()
    assert recorder.names == ["quiet", "leaf"]
    assert disabled.__name__ == "quiet" and disabled.__doc__ == "Quiet." and disabled.__wrapped__ is quiet
    assert C.run_disabled(len)("abc") == 3

    class Thing:
        method = C.disable_wrapper(lambda self, x: (self, x))

    thing = Thing()
    assert thing.method(1) == (thing, 1)
    raises(TypeError, C.disable_wrapper, 3)


def check_compiled_inside_disabled_runs_compiled() -> None:
    wrapper, recorder = compiled(documented, {documented: spread_two})
    assert C.disable_wrapper(lambda: wrapper(1))() == "replaced"


def spread_two(x: Any, y: Any) -> Any:
    return "replaced"


def check_direct_hit_makes_no_frame() -> None:
    def f(x: Any) -> Any:
        return x

    wrapper, recorder = compiled(f)
    C.install(f, echo_entry(f, recorder.owner))
    calls: list[str] = []
    C.set_stands_aside(False)
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code.co_name) if event == "call" else None)
    wrapper(1)
    sys.setprofile(None)
    C.set_stands_aside(True)
    assert calls == []


def check_functions_that_run_other_code_are_recognized() -> None:
    assert C.runs_its_code(spread_two)
    raises(TypeError, C.runs_its_code, len)
    testing = importlib.import_module("_testcapi")
    if hasattr(testing, "function_setvectorcall"):
        other = types.FunctionType(spread_two.__code__, globals())
        testing.function_setvectorcall(other)
        assert other(1, 2) == "overridden"
        assert not C.runs_its_code(other)


def check_compiled_function_stands_aside_for_profilers() -> None:
    def f(x: Any) -> Any:
        return x

    wrapper, recorder = compiled(f)
    C.install(f, echo_entry(f, recorder.owner))
    calls: list[str] = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code.co_name) if event == "call" else None)
    result = wrapper(1)
    sys.setprofile(None)
    assert calls == ["f"] and result == 1 and not recorder.asked
