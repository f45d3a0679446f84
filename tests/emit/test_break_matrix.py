"""A graph break in every construct of the language: results and effects are those of eager, and every operator round
the break, in the function, its callers and its callees, runs in a compiled graph."""

from __future__ import annotations

import contextlib
import io
import linecache
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from break_programs import BREAKS, PRELUDE, PROGRAMS
from torch.overrides import TorchFunctionMode

import pyframe
from pyframe.testing import same

OPS = {"abs", "cos", "exp", "log", "neg", "sin", "sqrt", "tan"}
# What runs eagerly: the bodies of generators that run when the frame breaks.
EAGER = {
    "generator_used_up": {"sin", "cos", "neg"},
    "generator_around": {"sin"},
    "generator_expression": {"sqrt"},
}


def program(name: str, kind: str) -> dict[str, Any]:
    """The names of a program, with a break of `kind` in its hole."""
    lines: list[str] = []
    for line in (PRELUDE + PROGRAMS[name]).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += (indent + each for each in BREAKS[kind].splitlines()) if line.strip() == "BREAK" else [line]
    source = "\n".join(lines)
    filename = f"{name}_{kind}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"__name__": filename}
    exec(compile(source, filename, "exec"), names)
    return names


class EagerOps(TorchFunctionMode):
    """Counts the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[func.__name__] += func.__name__ in OPS
        return func(*args, **(kwargs or {}))


class GraphOps:
    """A backend that counts the operators that run in its graphs."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        nodes = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
        called = Counter(n.target if isinstance(n.target, str) else n.target.__name__ for n in nodes)
        mine = Counter({name: count for name, count in called.items() if name in OPS})

        def run(*args: Any) -> Any:
            self.count += mine
            return gm.forward(*args)

        return run


def did(fn: Callable[..., Any], names: dict[str, Any]) -> tuple[Any, ...]:
    """What a call of `fn` did: its result, the log of the program, and what it printed."""
    names["LOG"].clear()
    printed = io.StringIO()
    x = torch.linspace(0.5, 1.5, 6).reshape(3, 2)
    with contextlib.redirect_stdout(printed):
        result = fn(x)
    return result, list(names["LOG"]), printed.getvalue()


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_right_and_operators_are_compiled(name, kind):
    names = program(name, kind)
    with EagerOps() as eager:
        expected = did(names["f"], names)
    graphs = GraphOps()
    compiled = pyframe.compile(names["f"], backend=graphs)
    for turn in ("captured", "again"):
        graphs.count.clear()
        got = did(compiled, names)
        assert same(list(expected), list(got), equal_nan=True), f"{turn}:\n  eager    {expected}\n  captured {got}"
        assert not graphs.count - eager.count, f"{turn}: twice"
        assert set(eager.count - graphs.count) == EAGER.get(name, set()) & set(+eager.count), f"{turn}: not compiled"
