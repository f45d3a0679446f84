"""Functions whose graph breaks inside calls that are traced inline. Each entry of PROGRAMS makes one."""

from __future__ import annotations

import functools
import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

PROGRAMS: dict[str, Callable[[], Callable[..., Any]]] = {}
LOG: list[Any] = []


def program(make: Callable[[], Callable[..., Any]]) -> Callable[[], Callable[..., Any]]:
    PROGRAMS[make.__name__] = make
    return make


def pause(k: Any = None) -> None:
    print("paused", k)


def cosine(x: Any, k: Any = 2) -> Any:
    y = x.cos()
    pause()
    return y * k


def fails(x: Any) -> Any:
    x = x.cos()
    pause()
    raise ValueError(x.shape)


class Block:
    """A context manager that logs, and suppresses exceptions."""

    def __enter__(self) -> int:
        LOG.append("in")
        return 3

    def __exit__(self, *error: Any) -> bool:
        LOG.append(("out", error[0]))
        return True


@program
def two_calls_deep():
    def g(x, k):
        y = x.sin()
        return cosine(y, k=k).exp() + y

    return lambda x: g(x * 2, 3) + x


@program
def handler_between():
    def g(x):
        y = x.sin()
        try:
            return fails(y)
        except ValueError as error:
            return y * 2, str(error)

    return lambda x: g(x * 2)


@program
def handler_in_the_outermost_frame():
    def g(x):
        return fails(x.sin())

    def f(x):
        a = x * 2
        try:
            return g(a)
        except ValueError as error:
            return a + 1, str(error)
        finally:
            LOG.append(1)

    return f


@program
def exception_leaves():
    def g(x):
        return fails(x.sin())

    return lambda x: g(x * 2)


@program
def blocks():
    def h(x):
        with Block() as k:
            y = x.cos() * k
            pause()
            raise ValueError("a")
        return y

    def g(x):
        with Block() as k:
            return h(x.sin()) * k

    return lambda x: (g(x * 2), LOG[:])


@program
def without_gradients_inside():
    def h(x):
        with torch.no_grad():
            y = x.cos()
            pause()
            z = y * 2
        return z + x

    def g(x):
        return h(x.sin())

    return lambda x: g(x * 2)


@program
def without_gradients_between():
    def g(x):
        with torch.no_grad():
            return cosine(x.sin())

    return lambda x: g(x * 2) + x


@program
def without_gradients_around():
    def g(x):
        return cosine(x.sin())

    def f(x):
        with torch.no_grad():
            y = g(x * 2)
        return y + x

    return f


@program
def cells_of_three_frames():
    def f(x):
        n = 0

        def h(y):
            nonlocal n
            n += 1
            z = y.cos()
            pause(n)
            n += 1
            return z * n

        def g(y):
            seen = []

            def note():
                seen.append(n)
                return y.sin()

            result = h(note())
            note()
            return result, seen

        return g(x * 2), n

    return f


@program
def super_calls():
    class Base:
        def method(self, x):
            y = x.cos()
            pause()
            return y * self.k

    class Derived(Base):
        k = 3

        def method(self, x):
            return super().method(x.sin()) + 1

        def other(self, x):
            y = x.sin()
            pause()
            return super().method(y)

    made = Derived()
    return lambda x: (made.method(x * 2), made.other(x * 3))


@program
def stars_and_defaults():
    def h(x, *a, k=2, **named):
        y = x * len(a) + named["z"]
        pause()
        return y * k + sum(a)

    def g(*a, **named):
        return h(*a, **named)

    return lambda x: g(x * 2, 1, 2, k=4, z=x)


@program
def only_keywords():
    def h(a, *, b, c=3):
        y = a * b
        pause()
        return y + c

    def g(**named):
        return h(**named)

    return lambda x: g(a=x, b=x * 2)


@program
def partials():
    def h(a, b, c=3):
        y = a * b
        pause()
        return y + c

    held = functools.partial(h, c=5)

    def g(x):
        return held(x, b=x * 2)

    return lambda x: g(x)


@program
def branches():
    def h(x):
        if x.sum() > 0:
            return x.sin()
        return x.cos()

    def g(x):
        return h(x * 2) + 1

    return lambda x: g(x) + g(-x)


@program
def called_twice():
    def g(x):
        return cosine(x) + cosine(x * 2)

    return lambda x: g(x) * 2


@program
def loop_in_the_innermost_frame():
    def h(x):
        for k in range(3):
            x = x.cos()
            pause(k)
        return x

    def g(x):
        return h(x.sin())

    return lambda x: g(x * 2)


@program
def loop_between():
    def g(x):
        for _ in range(3):
            x = cosine(x.sin())
        return x

    return lambda x: g(x * 2)


@program
def loop_around():
    def g(x):
        return cosine(x.sin())

    def f(x):
        for _ in range(3):
            x = g(x) + 1
        return x

    return f


@program
def generators():
    def h(x):
        y = x.cos()
        pause()
        yield y
        yield y * 2

    def g(x):
        return sum(h(x))

    return lambda x: g(x * 2)


@program
def comprehensions():
    def g(x):
        return [cosine(x * k) for k in range(3)]

    return lambda x: g(x * 2)


@program
def instances():
    class Held:
        def __init__(self, x):
            self.x = x.cos()
            pause()
            self.y = self.x * 2

        def __add__(self, other):
            y = self.x.cos()
            pause()
            return y + other

        def __call__(self, other):
            y = self.x.sin()
            pause()
            return y * other

        def __getattr__(self, name):
            if name == "q":
                pause()
                return 3
            raise AttributeError(name)

        def __len__(self):
            pause()
            return 2

    def g(x):
        held = Held(x * 2)
        return held(x) + (held + 1) + held.q + len(held) + held.y

    return lambda x: g(x) + 1


@program
def changed_objects():
    known: dict[str, Any] = {"a": 1}
    items: list[int] = []

    def h(x):
        items.append(x.shape[0])
        known["b"] = len(items)
        y = x.cos()
        pause()
        known["c"] = y
        return y

    def g(x):
        known["a"] += 1
        return h(x * 2)

    return lambda x: (g(x), dict(known), list(items))


@program
def called_by_a_builtin():
    def g(x):
        return list(map(cosine, [x, x * 2]))

    return lambda x: g(x * 2)


@program
def recursion():
    def g(x, n):
        if n == 0:
            pause()
            return x.sin()
        return g(x * 2, n - 1) + 1

    return lambda x: g(x, 5)


@program
def decorated():
    h = torch.no_grad()(cosine)

    def g(x):
        return h(x * 2) + x

    return lambda x: g(x)


@program
def modules():
    torch.manual_seed(1)

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            y = self.layer(x)
            pause()
            return y.relu()

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.layer = Inner(), nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(self.inner(x * 2))

    module = Outer()
    return lambda x: module(x)


@program
def modules_with_hooks():
    torch.manual_seed(1)

    class Inner(nn.Module):
        def forward(self, x):
            y = x.sin()
            pause()
            return y.relu()

    module = Inner()
    module.register_forward_hook(lambda m, args, out: out * 2)
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return lambda x: module(x) + 1


@program
def line_of_a_warning():
    def note():
        warnings.warn("here", stacklevel=3)

    def h(x):
        y = x.cos()
        note()
        return y

    def g(x):
        return h(x * 2)

    return lambda x: g(x)


class Object:
    """An object whose end the programs observe."""


@program
def end_of_an_object():
    def h(x):
        made = Object()
        ref = weakref.ref(made)
        held = [made]
        pause()
        before = ref() is not None
        del held
        made = None  # noqa: F841
        return x.cos(), before, ref() is None

    def g(x):
        return h(x * 2)

    return lambda x: g(x)


@program
def end_of_an_argument():
    def h(x, given):
        ref = weakref.ref(given)
        y = x.cos()
        pause()
        del given
        gc.collect()
        pause()
        return y, ref() is None

    def g(x):
        return h(x * 2, Object())

    return lambda x: g(x)


@program
def numbers_of_tensors():
    def h(x):
        n = int(x.sum().item() * 100) % 3
        pause()
        return x[: n + 1].sum() * n

    def g(x):
        return h(x * 2) + 1

    return lambda x: g(x)


@program
def written_globals():
    def h(x):
        global WRITTEN
        WRITTEN = x.shape[0]
        y = x.cos()
        pause()
        WRITTEN += 1
        return y * WRITTEN

    def g(x):
        return h(x * 2) + WRITTEN

    return lambda x: g(x)


@program
def handled_inside():
    def h(x):
        try:
            return {}["q"]
        except KeyError as error:
            y = x.cos()
            pause(sys.exc_info()[0])
            return y, str(error)

    def g(x):
        return h(x * 2)

    return lambda x: g(x)


@program
def handled_between():
    def h(x):
        y = x.cos()
        pause(sys.exc_info()[0])
        return y

    def g(x):
        try:
            return {}["q"]
        except KeyError as error:
            return h(x * 2), str(error)

    return lambda x: g(x)


@program
def module_globals_of_another_function():
    namespace: dict[str, Any] = {"pause": pause, "K": 5}
    exec("def h(x):\n    y = x.cos()\n    pause(K)\n    return y * K\n", namespace)
    h = namespace["h"]

    def g(x):
        return h(x * 2)

    return lambda x: g(x)


@program
def grad_mode_by_its_constructor():
    def h(x):
        with torch.set_grad_enabled(False) as entered:
            y = x.cos()
            pause(torch.is_grad_enabled())
            z = y * 2
        return z + x, entered, torch.is_grad_enabled()

    def g(x):
        return h(x.sin()), torch.is_grad_enabled()

    return lambda x: (g(x * 2), torch.is_grad_enabled())


@program
def modes_of_two_frames():
    def h(x):
        with torch.enable_grad(), torch.inference_mode(False):
            y = x.cos()
            pause((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            return y * 2, torch.is_grad_enabled()

    def g(x):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            z = h(x.sin())
            inside = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        return z, inside, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    return lambda x: g(x * 2)


@program
def modes_left_by_an_exception():
    def g(x):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return fails(x)

    def f(x):
        try:
            return g(x * 2)
        except ValueError:
            return x + 1, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    return f


@program
def mode_after_a_switch_that_lasts():
    def h(x):
        torch.set_grad_enabled(False)
        with torch.enable_grad():
            y = x.cos()
            pause(torch.is_grad_enabled())
        after = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return y, after

    def g(x):
        return h(x.sin())

    return lambda x: (g(x * 2), torch.is_grad_enabled())


@program
def mode_around_one_entered_by_name():
    def h(x):
        with torch.no_grad():
            inner = torch.enable_grad()
            inner.__enter__()
            y = x.cos()
            pause(torch.is_grad_enabled())
            inner.__exit__(None, None, None)
            after = torch.is_grad_enabled()
        return y, after, torch.is_grad_enabled()

    def g(x):
        return h(x.sin())

    return lambda x: g(x * 2)


@program
def default_device():
    def h(x):
        with torch.device("cpu"):
            y = x.cos()
            pause()
            return y + torch.ones(4)

    def g(x):
        return h(x.sin()) + 1

    return lambda x: g(x * 2)


@program
def loop_in_a_mode_in_a_loop():
    def h(x):
        x = x.sin()
        for k in range(2):
            with torch.no_grad():
                for m in range(2):
                    x = x.cos()
                    pause((k, m, torch.is_grad_enabled()))
            x = x + 1
        return x, torch.is_grad_enabled()

    def g(x):
        return h(x.exp())

    return lambda x: g(x * 2)


@program
def while_loop_that_breaks():
    def h(x):
        n = 0
        x = x.sin()
        while n < 5:
            x = x.cos()
            if n == 2:
                pause(n)
                break
            n += 1
        else:
            n = 100
        return x.tan(), n

    def g(x):
        return h(x.exp())

    return lambda x: g(x * 2)


@program
def raised_in_a_loop_handled_after_it():
    def h(x):
        x = x.sin()
        try:
            for k in range(3):
                x = x + k
                if k:
                    raise ValueError(k)
        except ValueError as error:
            pause(error)
            x = x.cos()
        return x

    def g(x):
        return h(x.exp())

    return lambda x: g(x * 2)


@program
def raised_below_and_handled_between():
    def h(x):
        try:
            raise KeyError("a")
        except KeyError as error:
            y = x.cos()
            pause((sys.exc_info()[0], repr(error.__context__)))
            return y

    def g(x):
        x = x.tan()
        try:
            fail_at_once(x)
        except ValueError as error:
            z = h(x), repr(sys.exc_info()[1])
            try:
                raise TypeError("t")
            except TypeError as second:
                pause(repr(second.__context__) == repr(error))
        finally:
            pause("finally")
        return z, sys.exc_info()[0]

    return lambda x: g(x * 2)


def fail_at_once(x: Any) -> None:
    raise ValueError(x.shape)


@program
def handler_that_raises_again():
    def h(x):
        try:
            raise KeyError("a")
        except KeyError as error:
            pause(x.cos().shape)
            raise ValueError("b") from error

    def g(x):
        return h(x.sin())

    def f(x):
        try:
            return g(x * 2)
        except ValueError as error:
            return x + 1, repr(error.__cause__), repr(error.__context__)

    return f
