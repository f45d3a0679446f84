"""Small functions that cover the language; each is called with no argument and returns a comparable value."""

# ruff: noqa: B018, B023, F821, PLC3002, PLR0133, S102, SIM, UP031
from __future__ import annotations

import contextlib

LOG: list = []


class Manager:
    """A context manager that logs, and swallows exceptions of a given type."""

    def __init__(self, swallow: type[BaseException] | None = None) -> None:
        self.swallow = swallow

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        LOG.append(("exit", kind))
        return self.swallow is not None and kind is not None and issubclass(kind, self.swallow)


def arithmetic():
    a, b = 7, 3
    c = a + b - a * b // 2 % 5
    c += 2
    c **= 2
    c ^= 1
    return (c, a / b, a << b, a >> 1, a & b, a | b, -a, +b, ~a, not a, a @ Matmul(3))


class Matmul:
    def __init__(self, value):
        self.value = value

    def __rmatmul__(self, other):
        return other * self.value


def comparisons():
    a, b, c = 1, 2, 2.0
    chain = a < b <= c != 5 > 3
    return (chain, a == b, b is c, a is not None, a in (1, 2), 3 not in [1], a < b > 5)


def boolean_values():
    items = [0, 1, "", "x", None, []]
    out = []
    for left in items:
        for right in items:
            out.append((left or right, left and right, not left, bool(left and not right or left)))
    return out


def loops():
    total = 0
    for i in range(10):
        if i == 3:
            continue
        if i == 7:
            break
        total += i
    else:
        total = -1
    while total > 5:
        total -= 2
        if total == 6:
            break
    else:
        total += 100
    for _ in range(0):
        pass
    total += 1
    return total


def nested_loops_with_return():
    for i in range(5):
        for j in range(5):
            if i * j == 6:
                return i, j
    return None


def unpacking():
    a, (b, *c), *d = 1, (2, 3, 4), 5, 6
    first, *_, last = range(10)
    x = [*c, *d, *{"k": 1}]
    y = {"a": a, "b": b}
    s = {*c, 9}
    return a, b, c, d, first, last, x, y, sorted(s)


def calls():
    def f(a, /, b, *args, c=1, d, **kwargs):
        return a, b, args, c, d, kwargs

    parts, extra = [1, 2, 3], {"e": 5, "d": 4}
    return (
        f(1, 2, d=3),
        f(*parts, **extra),
        f(*parts, 4, c=9, **extra),
        f(1, b=2, c=3, d=4, z=5),
        "abc".replace("b", "x").upper().split(sep="X"),
        max([3, 1, 2], key=lambda v: -v),
        dict(**extra),
    )


def defaults_and_annotations():
    base = 10

    def f(a: int, b: str = "x", *, c: float = base) -> tuple:
        return a, b, c, base

    return f(1), f(2, "y", c=3), f.__defaults__, f.__kwdefaults__, sorted(f.__annotations__), f.__doc__


def docstring_kept():
    def f():
        """the text"""
        return 1

    def g():
        return "not a docstring"

    return f.__doc__, g.__doc__, f(), g()


def closures():
    count = 0
    seen = []

    def bump(by):
        nonlocal count
        count += by
        seen.append(lambda: (count, by))
        return count

    bump(1)
    bump(2)
    return count, [fn() for fn in seen]


def argument_cell(value=5):
    def inner():
        return value

    value += 1
    return inner(), (lambda: value * 2)()


def deleted_cell():
    value = 1

    def inner():
        return value

    del value
    try:
        inner()
    except NameError as error:
        return str(error)
    return None


def comprehensions():
    n = 3
    rows = [[i * j for j in range(n) if j != 1] for i in range(n)]
    lazily = sum(i for i in range(n) if i)
    return rows, {i: -i for i in range(n)}, sorted({i % 2 for i in range(n)}), lazily, n


def comprehension_hides_cell():
    x = 10
    inner = [(lambda: x) for x in range(3)]
    ys = [x for x in range(2)]
    return [f() for f in inner], x, (lambda: x)(), ys


def comprehension_over_free_name():
    x = 1

    def g():
        return [lambda: x for x in range(3)][1](), [x for x in range(2)]

    return g(), x


def fstrings():
    value, width = 3.14159, 10
    text = "é"
    return f"{value}|{value!r:>{width}}|{value:.2f}|{text!a}|{text!s:*^5}|{width=}|{'':}"


def slices():
    data = list(range(10))
    data[2:4] = ["a"]
    data[::3] = [0] * len(data[::3])
    del data[1:2]
    index = slice(1, None, 2)
    return data[1:], data[:-1], data[::2], data[index], data[3]


def attributes():
    class Point:
        kind = "point"
        __slots__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

        def norm(self):
            return self.x * self.x + self.y * self.y

        @property
        def flipped(self):
            return Point(self.y, self.x)

    p = Point(1, 2)
    p.x += 5
    del p.y
    try:
        p.norm()
    except AttributeError as error:
        message = str(error)
    p.y = 1
    return p.norm(), p.flipped.x, Point.kind, message


def inheritance():
    class A:
        def who(self):
            return ["A"]

        @classmethod
        def make(cls):
            return cls.__name__

    class B(A):
        label = __qualname__

        def who(self):
            return [*super().who(), "B"]

        def old(self):
            return super().who()

        @classmethod
        def make(cls):
            return super().make() + "!"

    return B().who(), B().old(), B.make(), B.label


def class_scope():
    name = "outer"

    class C:
        seen = name
        name = "inner"
        listed = [name for _ in range(2)] if False else name

        def get(self):
            return name

    return C.seen if hasattr(C, "seen") else None, C.name, C().get()


def try_finally():
    out = []
    for mode in range(4):
        try:
            out.append(("body", mode))
            if mode == 1:
                continue
            if mode == 2:
                raise ValueError(mode)
            if mode == 3:
                break
        except ValueError as error:
            out.append(error.args)
        else:
            out.append("else")
        finally:
            out.append("finally")
    return out


def nested_exceptions():
    out = []
    try:
        try:
            {}["k"]
        except KeyError as inner:
            try:
                raise RuntimeError("second") from inner
            finally:
                out.append("cleanup")
    except RuntimeError as error:
        out.append((str(error), repr(error.__cause__), repr(error.__context__)))
    try:
        raise TypeError
    except (ValueError, TypeError):
        out.append("caught")
    return out


def return_in_finally():
    def f():
        try:
            return "try"
        finally:
            LOG.append("finally")

    return f()


def raises_uncaught():
    items = [1, 2]
    for item in items:
        if item == 2:
            raise LookupError(f"item {item}")


def unbound_local():
    if LOG is None:
        value = 1
    return value


def unbound_after_except():
    try:
        raise ValueError("x")
    except ValueError as error:
        kept = str(error)
    try:
        error
    except UnboundLocalError as gone:
        return kept, type(gone).__name__
    return None


def assertion():
    try:
        assert LOG is None, "message"
    except AssertionError as error:
        return str(error)
    return None


def with_blocks():
    LOG.clear()
    with Manager() as a, Manager(ValueError) as b:
        LOG.append((a is b, "body"))
        raise_it = True
        if raise_it:
            raise ValueError("swallowed")
    for i in range(3):
        with Manager():
            if i == 0:
                continue
            if i == 1:
                break
    return list(LOG)


def with_and_return():
    LOG.clear()

    def f():
        with Manager():
            return "value"

    return f(), list(LOG)


def with_error():
    LOG.clear()
    try:
        with Manager(KeyError), contextlib.suppress(KeyError):
            raise IndexError("through")
    except IndexError as error:
        return str(error), list(LOG)
    return None


def generators():
    def numbers(n):
        for i in range(n):
            got = yield i
            if got:
                yield ("got", got)
        return "end"

    def outer():
        result = yield from numbers(3)
        yield result
        try:
            yield "throw here"
        except ValueError as error:
            yield ("caught", str(error))
        finally:
            LOG.append("closed")

    g = outer()
    out = [next(g), g.send("hello"), next(g), next(g), next(g), next(g)]
    out.append(g.throw(ValueError("thrown")))
    g.close()
    return out, list(numbers(2)), (yield_from_list := [*numbers(3)]), yield_from_list


def coroutines():
    class Ready:
        def __init__(self, value):
            self.value = value

        def __await__(self):
            got = yield self.value
            return got

    class Async:
        async def __aenter__(self):
            return await Ready("enter")

        async def __aexit__(self, *args):
            await Ready("exit")
            return True

    async def ticker(n):
        for i in range(n):
            yield await Ready(i)

    async def main():
        out = []
        async with Async() as value:
            out.append(value)
            raise ValueError("swallowed")
        async for item in ticker(3):
            out.append(item)
        out += [item async for item in ticker(2)]
        return out

    coro, sent, trace = main(), None, []
    try:
        while True:
            sent = coro.send(sent)
            trace.append(sent)
            sent = ("sent", sent)
    except StopIteration as stop:
        return stop.value, trace


def matching():
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def describe(value):
        match value:
            case 0 | 1:
                return "small"
            case []:
                return "empty"
            case [x]:
                return ("one", x)
            case [x, *rest] if len(rest) > 1:
                return ("many", x, rest)
            case (1, y) | (y, 2):
                return ("pair", y)
            case {"kind": "a", "n": n, **others}:
                return ("dict", n, others)
            case Point(x=0, y=y):
                return ("axis", y)
            case Point(x, y):
                return ("point", x, y)
            case str() as text:
                return ("text", text)
            case None:
                return "none"
            case _:
                return "other"

    inputs = (
        0,
        [],
        [5],
        [1, 2, 3],
        (1, 9),
        (8, 2),
        {"kind": "a", "n": 1, "z": 2},
        Point(0, 4),
        Point(1, 2),
        "s",
        None,
        2.5,
    )
    return [describe(value) for value in inputs]


def imports():
    import os.path as p
    from math import floor as down
    from math import pi

    return p.join("a", "b"), down(pi)


def global_statement():
    global COUNTER
    COUNTER = 1
    COUNTER += 1
    value = COUNTER
    del COUNTER
    try:
        return COUNTER
    except NameError as error:
        return value, str(error)


def walrus_and_ternary():
    out = []
    while (n := len(out)) < 4:
        out.append("even" if n % 2 == 0 else "odd")
    return out, n


def decorators():
    def twice(fn):
        def run(*args):
            return fn(*args), fn(*args)

        return run

    @twice
    @twice
    def one(v):
        return v

    return one(3)


def local_names():
    a, b = 1, 2
    return sorted(locals()), a + b


def exec_class_body():
    namespace = {}
    exec(
        "class K:\n    x: int = 1\n    def f(self): return __class__, self.x\ny = [i for i in range(3)]",
        namespace,
    )
    return namespace["K"]().f()[1], namespace["y"], namespace["K"].__name__


def many_constants():
    total = 0
    for _ in range(2):
        total += sum(WIDE())
    return total


exec(  # long enough for EXTENDED_ARG in constants, names, locals and jumps
    "def WIDE():\n    out = []\n"
    + "    if len(out) == 0:\n"
    + "".join(f"        v{i} = {i + 1000}\n        out.append(v{i})\n" for i in range(400))
    + "    return out\n"
)

SKIP = {"Manager", "Matmul", "WIDE"}
SAMPLES = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and name not in SKIP and getattr(value, "__module__", None) == __name__
}
