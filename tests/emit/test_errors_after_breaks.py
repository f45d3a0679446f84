"""Exceptions between a graph break and the first instruction after it: `with` blocks are left and handlers run as in
eager, where the exception comes from the instruction that broke the graph."""

from __future__ import annotations

import gc
import sys
import types
import weakref

import pytest
import torch

import pyframe
from pyframe import _C
from pyframe.emit.resume import _resumes, continuation
from pyframe.errors import BackendCompilerFailed
from pyframe.vars.torch_objects.contexts import Entered

LOG: list[object] = []


class Manager:
    def __init__(self, swallows: bool = False) -> None:
        self.swallows = swallows

    def __enter__(self):
        LOG.append("enter")

    def __exit__(self, kind, error, trace):
        LOG.append(kind and kind.__name__)
        return self.swallows


class Faults:
    """A backend that raises when it compiles, or when what it compiled is called: at the given graph, counted from 1."""

    def __init__(self, kind: type[BaseException] = RuntimeError, compiling: int = 0, running: int = 0) -> None:
        self.kind, self.compiling, self.running, self.seen = kind, compiling, running, 0

    def __call__(self, gm, inputs):
        self.seen += 1
        number = self.seen
        if number == self.compiling:
            raise self.kind("injected")

        def run(*args):
            if number == self.running:
                raise self.kind("injected")
            return gm(*args)

        return run


KINDS = (KeyboardInterrupt, MemoryError, RuntimeError)


def results(fn, *args):
    """For each graph, kind of exception and phase in which it is raised: `(kind, result, exception)` of the call."""
    counting = Faults()
    pyframe.reset()
    pyframe.compile(fn, backend=counting)(*args)
    for number in range(1, counting.seen + 1):
        for kind in KINDS:
            for phase in ("compiling", "running"):
                pyframe.reset()
                LOG.clear()
                compiled = pyframe.compile(fn, backend=Faults(kind, **{phase: number}))
                try:
                    yield kind, compiled(*args), None
                except (BackendCompilerFailed, *KINDS) as error:
                    yield kind, None, error


def kind_of(error):
    return type(error.__cause__ if isinstance(error, BackendCompilerFailed) else error)


def inside(x):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), Manager():
        pyframe.graph_break()
        y = x.sin() + 1
    return y * 2


def returns_the_break(x):
    with torch.no_grad(), Manager():
        return broken(x)


def broken(x):
    pyframe.graph_break()
    return x


def calls_and_goes_on(x):
    with torch.no_grad(), Manager():
        y = broken(x)
        y = y.sin() + 1
    return y


def in_a_loop(x):
    with torch.no_grad(), Manager():
        for number in (1.0, 2.0, 3.0):
            x = x.sin() + number
            pyframe.graph_break()
            x = x.cos() * number
    return x


def in_a_handler(x):
    with torch.no_grad(), Manager():
        try:
            raise ValueError("a")
        except ValueError as error:
            pyframe.graph_break()
            return x.sin() + len(error.args)


def in_a_closure(x):
    k = 2

    def scale(y):
        return y.sin() * k

    with torch.no_grad(), Manager():
        k += 1
        pyframe.graph_break()
        y = scale(x)
        k += 1
    return y + k


class Module(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad(), Manager():
            pyframe.graph_break()
            y = x.sin() + 1
            super().train(self.training)
        return y


PROGRAMS = (inside, calls_and_goes_on, in_a_loop, in_a_handler, in_a_closure, Module())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: getattr(fn, "__name__", "module"))
def test_blocks_are_left(program):
    x = torch.ones(3, requires_grad=True)
    ends = set()
    for kind, _, error in results(program, x):
        # where a graph raises an error that the program may handle, the frame runs again as it is
        assert kind_of(error) is kind or (error is None and issubclass(kind, Exception))
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        assert sys.exc_info() == (None, None, None)
        # before the block, in it, or behind it
        assert LOG in ([], ["enter", type(error).__name__], ["enter", None])
        ends.update(LOG[1:])
    assert ends >= {"KeyboardInterrupt", "MemoryError", "BackendCompilerFailed"}


def test_the_next_call_is_right():
    x = torch.ones(3)
    compiled = pyframe.compile(inside, backend=Faults(KeyboardInterrupt, compiling=2))
    pyframe.reset()
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), inside(x))


def swallowed(x):
    y = x
    with torch.no_grad(), Manager(swallows=True):
        y = x + 1
        pyframe.graph_break()
        y = y.sin() + 1
    return y, torch.is_grad_enabled()


def handled(x):
    done = []
    try:
        y = broken(x)
        y = y.sin().cos() + 1
    except (RuntimeError, MemoryError, KeyboardInterrupt) as error:
        done.append(kind_of(error))
    else:
        done.append(None)
    finally:
        done.append("finally")
    return done


def test_managers_and_handlers_end_the_exception():
    x = torch.ones(3)
    inside_it = 0
    for kind, result, error in results(swallowed, x):
        if error is None:
            inside_it += result[0].tolist() == [2.0, 2.0, 2.0]
            assert result[1] and len(LOG) == 2
        else:
            assert kind_of(error) is kind and LOG != ["enter", kind.__name__]
    assert inside_it > len(KINDS)
    for kind, result, error in results(handled, x):
        # an error of the graph makes the frame run again without it; one of the compiler is no RuntimeError
        assert error is not None and kind is RuntimeError or result in ([kind, "finally"], [None, "finally"])


def test_an_exception_at_the_end_of_a_block_leaves_it():
    """What follows the break is outside of the block, and `__exit__` has not been called yet."""
    left = []
    pyframe.compile(returns_the_break, backend="eager")(torch.ones(3))
    made = [code for code in _resumes(returns_the_break.__code__).values() if continuation(code).handles_errors]
    for code in [code for code in made if not continuation(code).handled]:
        exits = [lambda kind, *rest: left.append(kind) for _ in range(code.co_argcount)]
        with pytest.raises(KeyboardInterrupt):
            _C.raise_in(types.FunctionType(code, globals()), exits, KeyboardInterrupt())
        assert exits == [] and left == [KeyboardInterrupt] * 2
    assert left


def test_nothing_is_kept_alive():
    class Held:
        pass

    def program(x, held):
        with torch.no_grad():
            pyframe.graph_break()
            y = x.sin() + 1
        return y

    def run(**where):
        held = Held()
        compiled = pyframe.compile(program, backend=Faults(KeyboardInterrupt, **where))
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.ones(3), held)
        return weakref.ref(held)

    for where in ({"compiling": 1}, {"running": 1}, {"compiling": 2}, {"running": 2}):
        ref = run(**where)
        gc.collect()
        assert ref() is None


def test_modes_that_were_entered_before_the_break_are_left(monkeypatch):
    """An exception while the second mode is entered for real, or made: the first one is left."""

    x = torch.ones(3)
    compiled = pyframe.compile(inside, backend="eager")
    compiled(x)
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr(Entered, "enter", _enter_the_first_one)
        compiled(x)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(compiled(x), inside(x))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


_enter = Entered.enter


def _enter_the_first_one(self, context):
    if not isinstance(context, torch.no_grad):
        raise KeyboardInterrupt
    return _enter(self, context)
