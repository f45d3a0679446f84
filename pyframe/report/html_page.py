"""`explain(...).html(path)`: a report as one HTML page, with its styles and drawings inside."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from inductor.fx_utils.places import user_place
from inductor.runtime.plan import call_labels

from ..core.breaks import CATALOGUE, describe_place
from .counts import counted
from .html_drawings import graph_drawing, memory_drawing, timeline

if TYPE_CHECKING:
    from .explain import Explanation

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: #1c2430 }
h1 { font-size: 1.5em } h2 { margin-top: 2em; border-bottom: 2px solid #d5dbe5; padding-bottom: .2em }
pre, code { font: 12.5px/1.4 ui-monospace, Menlo, Consolas, monospace } nav a { margin-right: 1.2em }
pre { background: #f4f6f9; padding: .8em; overflow: auto; max-height: 36em; margin: 0; border-radius: 4px }
table { border-collapse: collapse } td, th { text-align: left; padding: .2em .9em .2em 0; vertical-align: top }
.pair { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 1em; margin: .6em 0 }
.break { border-left: 4px solid #d9822b; padding: .1em 1em; margin: 1em 0; background: #fdf6ee }
.none { color: #647084 } details { margin: .5em 0 } summary { cursor: pointer }
svg text { font: 12px ui-monospace, monospace }
"""


def page(report: Explanation) -> str:
    """The whole page."""
    sections: list[tuple[str, str, Callable[[Explanation], str]]] = [
        ("time", "Where the time went", _time), ("breaks", "Graph breaks", _breaks), ("graphs", "Graphs", _graphs),
        ("kernels", "Kernels", _kernels), ("fusion", "Fusion", _fusion), ("memory", "Memory plan", _memory),
        ("guards", "Guards", _guards),
    ]  # fmt: skip
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    bodies = "".join(f'<section id="{name}"><h2>{title}</h2>{make(report)}</section>' for name, title, make in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>pyframe: explain</title>'
        f"<style>{_STYLE}</style></head><body><h1>What was captured and compiled</h1><p>{report.counts()}</p>"
        f"<nav>{links}</nav>{bodies}</body></html>\n"
    )


def _nothing(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _time(report: Explanation) -> str:
    from .explain import phases  # that module imports this one where a page is asked for

    return timeline([(capture.function, phases(capture)) for capture in report.captures])


def _breaks(report: Explanation) -> str:
    eager = dict.fromkeys(report.skipped)
    out = [f"<p><b>{escape(name)}</b> runs eagerly: {escape(str(why))}</p>" for name, why in eager]
    for brk in sorted(report.breaks, key=report.cost_of, reverse=True):
        row = CATALOGUE[brk.kind]
        hints = "".join(f"<li>{escape(hint)}</li>" for hint in row.hints)
        out.append(
            f'<div class="break"><p><b>{escape(brk.kind)}</b>: {escape(brk.detail)} '
            f"({report.cost_of(brk):.0f} ms to capture and compile what follows)</p>"
            + _pre("\n".join(describe_place(brk.stack)))
            + f"<p>{escape(row.explanation)}</p><ul>{hints}</ul></div>"
        )
    return "".join(out) or _nothing("There are none.")


def _graphs(report: Explanation) -> str:
    return "".join(
        f"<details{' open' if number == 0 else ''}>"
        f"<summary>graph {number}: {counted(len(gm.graph.nodes), 'node')}</summary>{graph_drawing(gm.graph)}</details>"
        for number, gm in enumerate(report.graphs)
    ) or _nothing("There are none.")


def _artifacts(report: Explanation) -> list[tuple[str, Any, Any]]:
    """Each compiled graph: its title, the captured graph, and the artifact."""
    found = []
    for number, gm in enumerate(report.graphs):
        compiled = gm.meta.get("compile_report")
        artifacts = (compiled.artifacts or []) if compiled is not None else []
        for part, artifact in enumerate(artifacts):
            title = f"graph {number}" + (f", part {part + 1} of {len(artifacts)}" if len(artifacts) > 1 else "")
            found.append((title, gm, artifact))
    return found


def _kernels(report: Explanation) -> str:
    out = []
    for title, gm, artifact in _artifacts(report):
        lines = _user_lines(gm, artifact.spec)
        for source in artifact.sources:
            text = source if isinstance(source, str) else source.text
            out.append(f'<h3>{escape(title)}</h3><div class="pair">{_pre(lines)}{_pre(text)}</div>')
            lines = ""
    return "".join(out) or _nothing("There are none: the backend reports no kernels, or ATen computes everything.")


def _user_lines(gm: Any, spec: Any) -> str:
    """The calls of kernels in order, each with the user's lines that it computes."""
    nodes, out = list(gm.graph.nodes), []
    for label, origin in zip(call_labels(spec), spec.call_origins):
        places = dict.fromkeys(user_place(nodes[n]) for n in origin.nodes if n < len(nodes))
        out.append(label)
        out += [f"    {os.path.basename(p.file)}:{p.line}  {p.text}" for p in places if p is not None]
    return "\n".join(out)


def _fusion(report: Explanation) -> str:
    out = []
    for title, _, artifact in _artifacts(report):
        fused = [label for label in call_labels(artifact.spec)]
        apart = "".join(f"<li>{escape(line)}</li>" for line in artifact.not_fused)
        listed = "".join(f"<li>{escape(label)}</li>" for label in fused)
        out.append(f"<h3>{escape(title)}</h3><p>In one kernel each:</p><ul>{listed or '<li>nothing</li>'}</ul>")
        out.append(f"<p>Left apart:</p><ul>{apart or '<li>nothing: no two kernels could be one</li>'}</ul>")
    return "".join(out) or _nothing("Nothing was compiled to kernels.")


def _memory(report: Explanation) -> str:
    drawn = (f"<h3>{escape(title)}</h3>{memory_drawing(a.spec)}" for title, _, a in _artifacts(report))
    return "".join(drawn) or _nothing("Nothing was compiled to kernels.")


def _guards(report: Explanation) -> str:
    from .explain import guard_lines  # that module imports this one where a page is asked for

    rows = "".join(
        f"<tr><td>{escape(c.function)}</td><td>{len(c.guards)}</td><td>{1e6 * c.guard_seconds:.1f}</td></tr>"
        for c in report.captures
    )
    table = (
        f"<table><tr><th>function</th><th>guards</th><th>us for the first evaluation of all</th></tr>{rows}</table>"
        "<p>Later calls skip guards whose dicts, classes and objects have not changed.</p>"
    )
    return table + _all("guards", guard_lines(report.guards))


def _all(what: str, lines: Sequence[str]) -> str:
    return f"<details><summary>all {len(lines)} {what}</summary>{_pre(chr(10).join(lines))}</details>"
