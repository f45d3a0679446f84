"""The result of `pyframe.explain(fn)(*args)`: the graphs, graph breaks, guards and compile times of one call.

`str()` of it is a short report for people; `html` writes one page with everything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.breaks import CATALOGUE, describe_place
from ..errors import GraphBreak
from .counts import counted


class Explanation:
    """graphs: the captured fx.GraphModules.  breaks: GraphBreaks with `kind`, `detail`, `stack` (user lines).
    skipped: functions that run eagerly, each with the reason.  guards: Guards with the user's line.  seconds: compile
    time by phase.  result: the return value of the call."""

    def __init__(self, captures: list[Any], result: Any) -> None:
        self.captures = captures
        self.result = result
        self.graphs = [gm for c in captures for gm in c.graphs]
        self.breaks = _once(b for c in captures for b in c.breaks)
        self.skipped = [(c.function, c.skipped) for c in captures if c.skipped is not None]
        self.guards = [g for c in captures for g in c.guards]
        self.seconds: dict[str, float] = {}
        for capture in captures:
            for phase, seconds in phases(capture).items():
                self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    def cost_of(self, brk: GraphBreak) -> float:
        """The milliseconds it took to capture and compile what follows a break. What it costs in each call is the
        guards of one more entry, and operators that cannot be fused across it."""
        line = brk.stack[-1] if brk.stack else None
        found = (c for c in self.captures if line is not None and c.resumed_after == line)
        return 1000 * sum(sum(c.seconds.values()) for c in found)

    def __str__(self) -> str:
        return self.text()

    def text(self, guards: bool = False) -> str:
        """The report: breaks with their cost, then functions that run eagerly, graphs and times. Without `guards`,
        these are only counted."""
        total = 1000 * sum(sum(c.seconds.values()) for c in self.captures)
        out = [f"{self.counts()}; {total:.0f} ms"]
        out += self._break_lines()
        out += [f"{what} runs eagerly: {why}" for what, why in dict.fromkeys(self.skipped)]
        out += _merged("graph", [graph_lines(gm) for gm in self.graphs])
        out += [f"{c.function} is {c.on_disk}" for c in self.captures if c.on_disk is not None]
        if guards:
            out += ["guards:", *(f"    {line}" for line in guard_lines(self.guards))]
        return "\n".join([*out, "ms: " + ", ".join(f"{k} {1000 * v:.0f}" for k, v in self.seconds.items())])

    def counts(self) -> str:
        """How many graphs, graph breaks and guards there are."""
        found = (self.graphs, "graph"), (self.breaks, "graph break"), (self.guards, "guard")
        return ", ".join(counted(len(each), noun) for each, noun in found)

    def _break_lines(self) -> list[str]:
        """The breaks, most costly first. What is to be said of a kind is said once."""
        costs = {id(brk): self.cost_of(brk) for brk in self.breaks}
        out, told = [], set[str]()
        for number, brk in enumerate(sorted(self.breaks, key=lambda brk: -costs[id(brk)])):
            cost = costs[id(brk)]
            head = f"break {number}" + (f" ({cost:.0f} ms to capture what follows)" if cost else "")
            out += [f"{head}: [{brk.kind}] {brk.detail}", *describe_place(brk.stack)]
            if brk.kind not in told:
                told.add(brk.kind)
                row = CATALOGUE[brk.kind]
                out += [f"  why: {row.explanation}", *(f"  hint: {hint}" for hint in row.hints)]
        return out

    def html(self, path: str | Path) -> Path:
        """Write the report as one HTML page, which needs neither a server nor a network, and return its path."""
        from .html_page import page  # imported only where a page is asked for

        target = Path(path)
        target.write_text(page(self), encoding="utf-8")
        return target


def phases(capture: Any) -> dict[str, float]:
    """Seconds by phase of a capture.  A backend that reports its own phases has its time split into them.  They may add
    up to more than the capture's "backend" phase, since subgraphs are compiled at their first call."""
    seconds = dict(capture.seconds)
    for gm in capture.graphs:
        report = gm.meta.get("compile_report")
        for phase, spent in report.seconds.items() if report else ():
            seconds[phase] = seconds.get(phase, 0.0) + spent
            seconds["backend"] = max(0.0, seconds["backend"] - spent)
    return seconds


def graph_lines(gm: Any) -> tuple[str, ...]:
    """The operators of a graph, and how it was compiled."""
    ops = Counter(
        n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
        for n in gm.graph.nodes
        if n.op in ("call_function", "call_method")
    )
    listed = ", ".join(k if n == 1 else f"{k} x{n}" for k, n in ops.most_common())
    return f"{counted(sum(ops.values()), 'op')}: {listed}", *_compiled(gm)


def guard_lines(guards: Sequence[Any]) -> list[str]:
    """Guards as text: kind, source and line. Equal lines are merged, with their number."""
    lines = Counter(f"{g.kind} {g.source or ''}" + (f"  ({g.line})" if g.line else "") for g in guards)
    return [line + (f"  ({count} times)" if count > 1 else "") for line, count in lines.items()]


def _merged(what: str, texts: Sequence[tuple[str, ...]]) -> list[str]:
    """Numbered texts, those of successive equal ones once."""
    out = []
    for text, same in itertools.groupby(enumerate(texts), key=lambda pair: pair[1]):
        numbers = [number for number, _ in same]
        name = f"{what} {numbers[0]}" if len(numbers) == 1 else f"{what}s {numbers[0]} to {numbers[-1]}, each"
        out += [f"{name}: {text[0]}", *text[1:]]
    return out


def _compiled(gm: Any) -> list[str]:
    """The lines of the report on how a graph was compiled; none for backends that report nothing."""
    report = gm.meta.get("compile_report")
    if report is None:
        return []
    if report.fallback is not None:
        return [f"    not compiled: {report.fallback}"]
    found = f"{counted(report.kernels, 'kernel')}, {counted(report.externs, 'ATen call')}"
    lines = [f"    compiled: {found}, graph cache {report.cache}"] if report.kernels + report.externs else []
    if report.untuned:
        lines.append(f"    {counted(report.untuned, 'product')} not tuned: the compile budget is spent")
    lines += [f"    {choice}" for choice in dict.fromkeys(report.measured)]
    if report.apart is not None:
        lines.append(f"    compiled for each size: {report.apart}")
    return lines + [f"    without CUDA graphs: {reason}" for reason in dict.fromkeys(report.not_recorded)]


def _once(breaks: Iterable[GraphBreak]) -> list[GraphBreak]:
    """Removes duplicates, keeping the break with the longest stack.  A break inside a call is found twice: by the
    caller, which breaks before the call and knows the whole stack, and by the callee's own capture."""
    found: dict[Any, GraphBreak] = {}
    for brk in breaks:
        key = (brk.kind, brk.stack[-1])
        if key not in found or len(brk.stack) > len(found[key].stack):
            found[key] = brk
    return list(found.values())
