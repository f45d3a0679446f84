"""`CompileReport`: what a compilation did and how long each phase took. `explain` prints it."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .budget import check
from .log.progress import enter_phase

if TYPE_CHECKING:
    from torch import fx

    from .artifact import Artifact
    from .fastest.choice import Choice


@dataclass(frozen=True)
class CacheEntry:
    """The key of a compiled graph in the disk cache, the graph as it was compiled, and what it was compiled to: None if
    ATen was found to be faster earlier, and nothing was built. `measure`, `cudagraphs`: the options of these names."""

    key: str
    gm: fx.GraphModule
    artifact: Artifact | None
    measure: bool | None
    cudagraphs: bool | None


_kept: contextvars.ContextVar[bool] = contextvars.ContextVar("keeping_artifacts", default=False)


@contextlib.contextmanager
def keeping_artifacts() -> Iterator[None]:
    """Reports of graphs that are compiled within the block keep the compiled graphs."""
    token = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(token)


@dataclass
class CompileReport:
    """Statistics of one compilation, stored in the graph's `meta["compile_report"]`.

    `seconds`: time by phase. `cache`: hit, miss or off. `fallback`: why the graph runs with ATen operators, None if it
    was compiled. `apart`: why the graph is compiled separately for each combination of sizes, None if it is not.
    `not_recorded`: why calls are not recorded as CUDA graphs, for each plan where this was asked for and is impossible.
    `measured`: what was found to be faster, the compiled graph or ATen, for each class of sizes.
    `untuned`: products that were not measured because the budget was spent.
    `artifacts`: the compiled graphs with the source of their kernels, within `keeping_artifacts`; else None.
    `entry`: the cache entry that a whole graph was compiled to, if it is one: see `kept_graph`.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cache: str = "off"
    kernels: int = 0
    externs: int = 0
    fallback: str | None = None
    apart: str | None = None
    not_recorded: list[str] = field(default_factory=list)
    measured: list[Choice] = field(default_factory=list)
    untuned: int = 0
    artifacts: list[Artifact] | None = field(default_factory=lambda: [] if _kept.get() else None)
    entry: CacheEntry | None = None

    def add(self, piece: CompileReport) -> None:
        """Add the report of a subgraph to this one."""
        for name, seconds in piece.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.cache = piece.cache
        self.kernels += piece.kernels
        self.externs += piece.externs
        self.untuned += piece.untuned
        self.fallback = self.fallback or piece.fallback
        self.apart = self.apart or piece.apart
        if self.artifacts is not None:
            self.artifacts += piece.artifacts or ()
        piece.not_recorded.extend(self.not_recorded)
        self.not_recorded = piece.not_recorded  # one list, since calls add to it
        piece.measured.extend(self.measured)
        self.measured = piece.measured  # likewise

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to phase `name`. OverBudget if there is a budget and it is spent, unless
        the graph comes from the cache, or may do so."""
        if name != "cache" and self.cache != "hit":
            check()
        start = time.perf_counter()
        enter_phase(name)
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
