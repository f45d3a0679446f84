"""Programs about generators, coroutines and subclasses of containers."""

from __future__ import annotations

import collections
from typing import Any

from .programs import program, x


@program
def generator_expressions() -> Any:
    def f(a: Any) -> Any:
        parts = (row * i for i, row in enumerate(a))
        first = next(parts)
        return first + sum(parts), next(iter([]), 5)

    return f, [(x(3, 2),)]


@program
def generator_functions() -> Any:
    def stages(a: Any) -> Any:
        got = yield a + 1
        try:
            yield a * got
        finally:
            a = a - 1
        return a

    def outer(a: Any) -> Any:
        last = yield from stages(a)
        yield last

    def f(a: Any) -> Any:
        gen = outer(a)
        one = next(gen)
        two = gen.send(3)
        three = next(gen)
        return one + two + three, list(gen)

    return f, [(x(),)]


@program
def generator_throw_and_close() -> Any:
    def work(log: list[str]) -> Any:
        try:
            yield 1
        except ValueError as error:
            log.append(str(error))
            yield 2
        finally:
            log.append("closed")

    def f(a: Any) -> Any:
        log: list[str] = []
        gen = work(log)
        n = next(gen)
        m = gen.throw(ValueError("thrown"))
        gen.close()
        return a + n + m, log

    return f, [(x(),)]


@program
def generator_returned() -> Any:
    def f(a: Any) -> Any:
        return (row + 1 for row in [a, a * 2])

    def run(a: Any) -> Any:
        return list(f(a))

    return run, [(x(),)]


@program
def generator_passed_in() -> Any:
    def f(a: Any, gen: Any) -> Any:
        return a + next(gen) + sum(gen)

    return f, [(x(), iter([1, 2, 3])), (x(), (i for i in range(4)))]


@program
def coroutine_awaited() -> Any:
    import asyncio

    async def inner(a: Any) -> Any:
        return a.sin() + 1

    async def outer(a: Any) -> Any:
        b = await inner(a)
        return b * 2

    def f(a: Any) -> Any:
        c = a + 1
        return asyncio.run(outer(c))

    return f, [(x(),)]


@program
def coroutine_driven_by_hand() -> Any:
    async def inner(a: Any) -> Any:
        return a.sin() + 1

    async def outer(a: Any) -> Any:
        return await inner(a) * 2

    def f(a: Any) -> Any:
        coro = outer(a + 1)
        try:
            coro.send(None)
        except StopIteration as done:
            return done.value
        return a

    return f, [(x(),)]


@program
def coroutine_function_compiled() -> Any:
    import asyncio

    async def outer(a: Any) -> Any:
        return a.sin().cos() + 1

    def f(a: Any) -> Any:
        async def main() -> Any:
            return await outer(a)

        return asyncio.run(main())

    return f, [(x(),)]


@program
def async_generator() -> Any:
    import asyncio

    async def rows(a: Any) -> Any:
        for row in a:
            yield row + 1

    async def total(a: Any) -> Any:
        out = 0
        async for row in rows(a):
            out = out + row
        return out

    def f(a: Any) -> Any:
        return asyncio.run(total(a * 2))

    return f, [(x(3, 2),)]


@program
def abstract_collections() -> Any:
    class Items(collections.abc.Sequence[Any]):
        def __init__(self, items: Any) -> None:
            self.items = items

        def __len__(self) -> int:
            return len(self.items)

        def __getitem__(self, i: Any) -> Any:
            return self.items[i]

    def f(a: Any) -> Any:
        items = Items([a, a + 1])
        return items[0] + items[-1], len(items), isinstance(items, collections.abc.Sequence), [*reversed(items)][0]

    return f, [(x(),)]


@program
def list_subclass() -> Any:
    class Stack(list[Any]):
        def push(self, item: Any) -> None:
            self.append(item)

    def f(a: Any) -> Any:
        stack = Stack()
        stack.push(a)
        stack.push(a + 1)
        return stack[-1] * 2, len(stack), stack

    return f, [(x(),)]


@program
def tuple_subclass() -> Any:
    class Pair(tuple[Any, ...]):
        def __new__(cls, a: Any, b: Any) -> Any:
            return super().__new__(cls, (a, b))

        @property
        def total(self) -> Any:
            return self[0] + self[1]

    def f(a: Any) -> Any:
        return Pair(a, a + 1).total

    return f, [(x(),)]


@program
def items_deleted_while_iterating() -> Any:
    def f(a: Any) -> Any:
        table = {"a": 1, "b": 2}
        try:
            for key in table:
                del table[key]
        except RuntimeError as error:
            return a + 1, str(error)
        return a

    return f, [(x(),)]


@program
def user_hash_and_eq() -> Any:
    class Key:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return self.n % 2

        def __eq__(self, other: Any) -> bool:
            return self.n == other.n

    def f(a: Any) -> Any:
        table = {Key(1): a, Key(3): a + 1}
        return table[Key(3)] + len(table)

    return f, [(x(),)]
