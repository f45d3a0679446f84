"""Random programs of loops, branches, handlers and graph breaks: captured as eager."""

from __future__ import annotations

import contextlib
import linecache
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from util import outcome, same

import pyframe

VALUES = ("x + 1", "x * 0.5", "x - n", "x * n + 1", "torch.sin(x)", "x + len(out)", "x + y", "x / (abs(n) + 1)", "x + m")
TESTS = ("n % 2 == 0", "n > 3", "len(out) > 2", "x.sum() > 4", "flag", "m == 'b'", "x.sum().item() > 2")
CHANGES = (
    "n += 1", "n = n * 2 - 1", "n -= 1", "out.append(x)", "out.append(n)", "d[n] = x", "d['k'] = n", "out += [n]",
    "flag = not flag", "m = 'b' if n > 2 else 'a'", "y = x", "late = x", "del late", "x = x + late", "add()",
    "f = x.sum().item()", "x = x + f", "d.pop('k', None)", "n = max(n, 2)", "n = int(x.sum())", "n = round(f)",
    "g = made(3); x = x + next(g); n += sum(g)", "d = {q: speak(x) for q in range(2)}", "out[-1:] = [n]",
    "x = x + sum([speak(x) * q for q in range(2)])", "flag = any(q > n for q in range(4))", "n, m = n + 1, m",
)  # fmt: skip
BREAKS = ("print('p', n)", "print(f'{n:3d} {m} {len(out)}')", "x = speak(x)", "pyframe.graph_break()")
ITERABLES = (
    "range(4)", "[1, 2, 3]", "(n, 2)", "reversed([1, 2])", "map(abs, [n, -1])", "filter(None, [0, 1])", "made(2)",
    "(q + n for q in range(3))", "sorted([3, n])", "range(0)",
)  # fmt: skip
PAIRS = ("enumerate(x)", "zip(out, [1, 2, 3])", "d.items()", "enumerate(list(d))", "enumerate([5, 6], 1)")
CONTEXTS = ("torch.no_grad()", "torch.enable_grad()", "noisy()", "torch.inference_mode(False)")


class Writer:
    """Writes a random function `program(x)`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines = [
            "def program(x):", "    n, y, out, d, flag, m, late, f, c = 1, x, [], {}, False, 'a', x, 1.5, 0",
            "    def add():", "        nonlocal c", "        c += 1",
        ]  # fmt: skip
        self.names = 0
        for _ in range(4):
            self.statement(1, (), False)
        self.lines.append("    return x, n, out, d, flag, m, y, c")

    def write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def test(self, loops: tuple[str, ...]) -> str:
        return self.rng.choice([*TESTS, *(f"{name} % 3 == 1" for name in loops), *(f"{name} == 2" for name in loops)])

    def block(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.statement(depth, loops, inside)

    def statement(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        simple = (self.value, self.change, self.breaks, self.leave)
        compound = (self.branch, self.loop, self.loop, self.while_, self.handler, self.context)
        weights = (5, 4, 3, 2) if depth > 3 else (5, 4, 3, 2, 4, 3, 3, 2, 2, 1)
        chosen = self.rng.choices(simple if depth > 3 else simple + compound, weights)[0]
        chosen(depth, loops, inside)

    def value(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, f"x = {self.rng.choice(VALUES)}")

    def change(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, self.rng.choice(CHANGES))

    def breaks(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, self.rng.choice([*BREAKS, f"print({', '.join(loops)})"]))

    def leave(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, f"if {self.test(loops)}:")
        ways = ["return x, n", "raise ValueError(n)", "pass", *["break", "continue"] * (2 * inside)]
        self.write(depth + 1, self.rng.choice(ways))

    def branch(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, f"if {self.test(loops)}:")
        self.block(depth + 1, loops, inside)
        if self.rng.random() < 0.4:
            self.write(depth, "else:")
            self.block(depth + 1, loops, inside)

    def loop(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.names += 1
        name = f"i{self.names}"
        pairs = self.rng.random() < 0.35
        self.write(depth, f"for {name}{', z' * pairs} in {self.rng.choice(PAIRS if pairs else ITERABLES)}:")
        self.block(depth + 1, (*loops, name), True)
        if self.rng.random() < 0.25:
            self.write(depth, "else:")
            self.block(depth + 1, loops, inside)

    def while_(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.names += 1
        name = f"w{self.names}"
        self.write(depth, f"{name} = 0")
        self.write(depth, f"while {name} < {self.rng.randint(1, 4)}:")
        self.write(depth + 1, f"{name} += 1")
        self.block(depth + 1, (*loops, name), True)

    def handler(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, "try:")
        self.block(depth + 1, loops, inside)
        handled = self.rng.random() < 0.7
        if handled:
            self.write(depth, "except (ValueError, TypeError, StopIteration) as error:")
            self.write(depth + 1, "print('caught', type(error).__name__)")
            self.block(depth + 1, loops, inside)
        if not handled or self.rng.random() < 0.4:
            self.write(depth, "finally:")
            self.block(depth + 1, loops, False)

    def context(self, depth: int, loops: tuple[str, ...], inside: bool) -> None:
        self.write(depth, f"with {self.rng.choice(CONTEXTS)}:")
        self.block(depth + 1, loops, inside)


@contextlib.contextmanager
def noisy() -> Iterator[None]:
    print("enter")
    try:
        yield
    finally:
        print("leave")


def speak(x: Any) -> Any:
    y = x + 1
    print("speak")
    return y * 0.5


def made(n: int) -> Iterator[int]:
    for i in range(n):
        print("made", i)
        yield i


def program(seed: int) -> tuple[Any, str]:
    """The function written from `seed`, and its text."""
    text = "\n".join(Writer(seed).lines)
    name = f"<loop program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"torch": torch, "pyframe": pyframe, "noisy": noisy, "speak": speak, "made": made}
    exec(compile(text, name, "exec"), names)
    return names["program"], text


@pytest.mark.parametrize("seed", range(60))
def test_as_eager(seed: int) -> None:
    fn, text = program(seed)
    x = torch.arange(6.0).reshape(2, 3)
    expected = outcome(fn, (x.clone(),))
    compiled = pyframe.compile(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the recompile limit
        for turn in ("miss", "hit"):
            got = outcome(compiled, (x.clone(),))
            assert same(expected, got), f"{turn}\n{text}\neager    {expected}\ncaptured {got}"
            assert sys.exc_info()[0] is None
