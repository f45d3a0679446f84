"""Programs with graph breaks whose captures one process keeps, and what another process changes before it runs them.

    python -m tests.frame_cache.breaking MODE OUTPUT

MODE "cold" and "same" run all programs unchanged; "changed" changes something first. Results and side effects are
compared with eager's. Writes a JSON object: for each program what `pyframe.counters` say.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import pyframe

from .forked import result_of_child

LOG: list[Any] = []
SCALE = 2.0
Case = tuple[Callable[..., Any], Callable[[], None] | None]


def stop(what: Any = "stop") -> None:
    """Breaks the graph, and shows that it was called."""
    pyframe.graph_break()
    LOG.append(what)


def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def third(x: torch.Tensor) -> torch.Tensor:
    return x / 3


def breaks_once(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    stop()
    return y * SCALE


def breaks_on_data(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    if y.sum() > 0:
        return y + half(x)
    return y - 1


def writes_between(x: torch.Tensor) -> torch.Tensor:
    found = {"a": x + 1}
    LOG.append(1)
    stop(len(found))
    found["b"] = found["a"] * 2
    LOG.append(2)
    return found["b"]


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for n in range(4):
        x = x * 2 + n
        stop(n)
    return half(x)


def in_a_while_loop(x: torch.Tensor) -> torch.Tensor:
    n = 7
    while n > 3:
        x = x + n
        stop(n)
        n -= 1
    return x


def _inner(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    stop("inner")
    return half(y)


def in_an_inlined_call(x: torch.Tensor) -> torch.Tensor:
    return _inner(x + 1) * SCALE


@contextlib.contextmanager
def noting(name: str) -> Iterator[None]:
    LOG.append(f"enter {name}")
    try:
        yield
    finally:
        LOG.append(f"leave {name}")


def in_a_with_block(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
        stop(torch.is_grad_enabled())
        y = y + 1
    return y


def in_a_block_of_the_program(x: torch.Tensor) -> torch.Tensor:
    with noting("block"):
        y = x * 2
        stop()
        y = half(y)
    return y


def _raises(x: torch.Tensor) -> None:
    stop("raises")
    raise ValueError("no")


def handles_what_is_raised(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    try:
        _raises(y)
        y = y + 1
    except ValueError as error:
        LOG.append(str(error))
        y = y - 1
    finally:
        LOG.append("finally")
    return y * 2


def closure(x: torch.Tensor) -> torch.Tensor:
    count = 0

    def bump() -> int:
        nonlocal count
        count += 1
        return count

    y = x * bump()
    stop(count)
    return y * bump()


def nested_breaks(x: torch.Tensor) -> torch.Tensor:
    stop(1)
    x = x.sin()
    stop(2)
    x = x.cos()
    stop(3)
    return half(x)


def with_sizes(x: torch.Tensor) -> torch.Tensor:
    y = x * x.shape[0]
    stop(x.shape[0])
    return y.abs().sum(0) / x.shape[0]


class Base(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Net(Base):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.calls += 1
        stop(self.calls)
        return super().forward(y.relu())


def text_of_a_size(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(f"{x.shape[0]} rows", file=Out())
    return y * 2


class Out:
    def write(self, text: str) -> None:
        LOG.append(text)


def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def _set(name: str, value: Any) -> Callable[[], None]:
    return lambda: globals().__setitem__(name, value)


def _stop_differently(what: Any = "other") -> None:
    pyframe.graph_break()
    LOG.append(("other", what))


CASES: dict[str, Callable[[], Case]] = {
    "global read after the break": lambda: (breaks_once, _set("SCALE", 5.0)),
    "function that breaks": lambda: (breaks_once, _set("stop", _stop_differently)),
    "code of the function that breaks": lambda: (
        breaks_once, lambda: setattr(stop, "__code__", _stop_differently.__code__)),
    "helper after a branch on data": lambda: (breaks_on_data, _set("half", third)),
    "writes": lambda: (writes_between, _set("LOG", LOG)),
    "loop": lambda: (in_a_loop, _set("half", third)),
    "while loop": lambda: (in_a_while_loop, None),
    "inlined call": lambda: (in_an_inlined_call, _set("SCALE", 7.0)),
    "helper of an inlined call": lambda: (in_an_inlined_call, lambda: setattr(half, "__code__", third.__code__)),
    "inlined function": lambda: (in_an_inlined_call, _set("_inner", lambda x: third(x))),
    "with block": lambda: (in_a_with_block, None),
    "block of the program": lambda: (in_a_block_of_the_program, _set("half", third)),
    "handler": lambda: (handles_what_is_raised, None),
    "closure": lambda: (closure, None),
    "nested breaks": lambda: (nested_breaks, _set("half", third)),
    "sizes": lambda: (with_sizes, None),
    "module": lambda: (net(), lambda: setattr(Base, "forward", lambda self, x: x - 1)),
    "text": lambda: (text_of_a_size, lambda: setattr(Out, "write", lambda self, text: LOG.append(text.upper()))),
}  # fmt: skip
COMPILER = ("pyframe.driver", "pyframe.interp", "pyframe.vars", "inductor.compile", "sympy")


def _outcome(fn: Callable[..., Any], sizes: tuple[int, ...]) -> tuple[list[torch.Tensor], list[Any]]:
    LOG.clear()
    if isinstance(fn, Net):
        fn.calls = 0
    results = [fn(torch.linspace(-1, 1, 3 * size).reshape(size, 3)) for size in sizes]
    return results, list(LOG)


def run(name: str, changed: bool) -> dict[str, Any]:
    """Run one program compiled and eagerly."""
    fn, change = CASES[name]()
    if changed and change is not None:
        change()
    sizes = (2, 4, 5) if name == "sizes" else (2, 2)
    with torch.no_grad():
        expected, log = _outcome(fn, sizes)
        pyframe.reset()
        compiled = pyframe.compile(fn)
        if isinstance(fn, Net):
            fn.calls = 0
        LOG.clear()
        found = [compiled(torch.linspace(-1, 1, 3 * size).reshape(size, 3)) for size in sizes]
    right = all(map(torch.allclose, found, expected)) and log == LOG
    counters = pyframe.counters
    return {
        "right": right, "loaded": counters["frames_loaded"], "traced": counters["instructions_traced"],
        "kept": counters["frames_kept"], "reasons": list(counters["frames_not_kept"]),
        "breaks": dict(counters["graph_breaks"]), "imported": [name for name in COMPILER if name in sys.modules],
    }  # fmt: skip


def run_changed(name: str) -> dict[str, Any]:
    """Run one program in a child process, because the change may be one of the whole process, with a copy of the
    cache."""

    def work() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.environ["PYFRAME_CACHE_DIR"], f"{folder}/cache")
            os.environ["PYFRAME_CACHE_DIR"] = f"{folder}/cache"
            return run(name, True)

    return result_of_child(work) or {"right": False}


def main(mode: str, output: str) -> None:
    if mode == "changed":  # once, and not in each of the child processes, most of which compile
        for name in COMPILER:
            importlib.import_module(name)
    found = {name: run_changed(name) if mode == "changed" else run(name, False) for name in CASES}
    with open(output, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
