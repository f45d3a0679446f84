"""The compilers that the operator suite can test: ours, and torch.compile for comparison."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def reason_of(text: str) -> str:
    """The first line of a reason, up to the command or the path that it names: those differ each time."""
    return re.split(r": /|\s/", text.splitlines()[0])[0]


class Ours:
    """`pyframe.compile` with its default backend, and what it says of graphs that it ran otherwise than compiled."""

    def __init__(self) -> None:
        import inductor
        import pyframe

        self.pyframe = pyframe
        self.graphs: list[Any] = []
        compile_fx = inductor.compile_fx

        def recorded(gm: Any, *args: Any, **kwargs: Any) -> Any:
            self.graphs.append(gm)
            return compile_fx(gm, *args, **kwargs)

        inductor.compile_fx = recorded

    def compile(self, fn: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
        """`fn` compiled; sizes are symbols from the first call on where `dynamic`."""
        return self.pyframe.compile(fn, dynamic=True if dynamic else None)

    def compilations(self) -> int:
        """How many graphs were made since `forget`; stays the same while captures are reused."""
        return len(self.graphs) + self.pyframe.counters["graphs"] + self.pyframe.counters["recompiles"]

    def remarks(self) -> list[str]:
        """Graph breaks, and graphs or operators that run with ATen, with the reasons."""
        found = [f"graph break: {reason}" for reason in self.pyframe.counters["graph_breaks"]]
        if self.pyframe.counters["eager_retries"]:
            found.append("the frame ran again as it is")
        for gm in self.graphs:
            report = gm.meta.get("compile_report")
            if report is not None and report.fallback:
                found.append(f"ATen: {reason_of(report.fallback)}")
            elif report is not None and report.externs:
                found.append("calls ATen")
        return found

    def forget(self) -> None:
        """Drops every capture and count."""
        self.pyframe.reset()
        self.graphs.clear()


class Peer:
    """torch.compile with its default backend."""

    def __init__(self) -> None:
        import torch._dynamo
        from torch._dynamo.utils import counters

        self.torch, self.counters = torch, counters

    def compile(self, fn: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
        """`fn` compiled; sizes are symbols from the first call on where `dynamic`."""
        return self.torch.compile(fn, dynamic=True if dynamic else None)

    def compilations(self) -> int:
        """How many graphs were made since `forget`."""
        return self.counters["stats"]["unique_graphs"]

    def remarks(self) -> list[str]:
        """Graph breaks with the reasons."""
        return [f"graph break: {str(reason).splitlines()[0]}" for reason in self.counters["graph_break"]]

    def forget(self) -> None:
        """Drops every capture and count."""
        self.torch._dynamo.reset()
        self.counters.clear()


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[Any]]:
    """Warnings of the block are collected, every one of them."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        yield given
