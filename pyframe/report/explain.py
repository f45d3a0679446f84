"""The result of `pyframe.explain(fn)(*args)`: the graphs, graph breaks, guards and compile times of one call.

`str()` of it is a report for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..core.breaks import describe
from ..errors import GraphBreak


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
            for phase, seconds in _phases(capture).items():
                self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    def __str__(self) -> str:
        return self.text()

    def text(self, guards: bool = True) -> str:
        """The report; without `guards`, these are only counted."""
        out = [f"{len(self.graphs)} graphs, {len(self.breaks)} graph breaks, {len(self.guards)} guards"]
        for i, gm in enumerate(self.graphs):
            ops = Counter(
                n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
                for n in gm.graph.nodes
                if n.op in ("call_function", "call_method")
            )
            out.append(f"graph {i}: {sum(ops.values())} ops: " + ", ".join(f"{k} x{v}" for k, v in ops.most_common()))
            out.extend(_compiled(gm))
        for i, brk in enumerate(self.breaks):
            out.append(f"break {i}: {describe(brk.kind, brk.detail, brk.stack)}")
        out += [f"{function} runs eagerly: {why}" for function, why in self.skipped]
        if guards:
            out.append("guards:")
        for guard in self.guards if guards else ():
            out.append(f"    {guard.kind} {guard.source or ''}" + (f"  ({guard.line})" if guard.line else ""))
        out.append("seconds: " + ", ".join(f"{k} {v:.3f}" for k, v in self.seconds.items()))
        return "\n".join(out)


def _phases(capture: Any) -> dict[str, float]:
    """Seconds by phase of a capture.  A backend that reports its own phases has its time split into them.  They may add
    up to more than the capture's "backend" phase, since subgraphs are compiled at their first call."""
    seconds = dict(capture.seconds)
    for gm in capture.graphs:
        report = gm.meta.get("compile_report")
        for phase, spent in report.seconds.items() if report else ():
            seconds[phase] = seconds.get(phase, 0.0) + spent
            seconds["backend"] = max(0.0, seconds["backend"] - spent)
    return seconds


def _compiled(gm: Any) -> list[str]:
    """The lines of the report on how a graph was compiled; none for backends that report nothing."""
    report = gm.meta.get("compile_report")
    if report is None:
        return []
    if report.fallback is not None:
        return [f"    not compiled: {report.fallback}"]
    lines = [f"    compiled: {report.kernels} kernels, {report.externs} ATen calls, graph cache {report.cache}"]
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
