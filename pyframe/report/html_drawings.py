"""The drawings of a report's page, as SVG: phases over time, a graph, and the memory of a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import torch
from torch import fx

from inductor.fx_utils.places import module_path, user_place
from inductor.runtime.plan_spec import Arena, BufRef, Extern, KernelCall, Launch, PlanSpec, Slot, View

from .counts import counted

_COLORS = (
    "#3b6ea8", "#d9822b", "#4d9960", "#a8577e", "#8a7a3d", "#5c6bc0", "#4f9da6", "#9c5d3b", "#7d8899", "#2f4858",
    "#c2a83e", "#b5494f",
)  # fmt: skip
_WIDTH, _ROW = 1170, 20
_LEFT, _TYPES, _PLACES = 110, 420, 590  # of a graph: where names, types and places in the program begin
_CHARACTER = 7.3  # the width of one
# What `self.__dict__['_modules']['0'].weight` adds to the name that the program's author knows, self.0.weight.
_INSIDE_MODULES = re.compile(r"\.__dict__\['_(?:modules|parameters|buffers)'\]\['([^']*)'\]")


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {extra}>{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, color: str, title: str) -> str:
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}"'
    return f'<rect {size} fill="{color}" fill-opacity="0.85"><title>{escape(title)}</title></rect>'


def timeline(captures: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """One row for each capture, in order, with a box for the seconds of each phase; below, what the colors mean."""
    total = sum(sum(phases.values()) for _, phases in captures) or 1.0
    names = list(dict.fromkeys(name for _, phases in captures for name, spent in phases.items() if spent > 0))
    colors = {name: _COLORS[k % len(_COLORS)] for k, name in enumerate(names)}
    parts, x, left = [], 200.0, 200.0
    for row, (function, phases) in enumerate(captures):
        parts.append(_cut(0, row * _ROW + 14, function, left))
        for name, spent in phases.items():
            if spent > 0:
                width = spent / total * (_WIDTH - left)
                parts.append(_box(x, row * _ROW + 2, width, _ROW - 4, colors[name], f"{name}: {1000 * spent:.1f} ms"))
                x += width
    y = len(captures) * _ROW + 24
    for k, name in enumerate(names):
        spent = sum(phases.get(name, 0.0) for _, phases in captures)
        across, down = left + k % 4 * 220, y + k // 4 * _ROW
        parts += [_box(across, down - 10, 12, 12, colors[name], name)]
        parts.append(_text(across + 18, down, f"{name} {1000 * spent:.0f} ms"))
    return _svg(_WIDTH, y + (len(names) + 3) // 4 * _ROW, parts)


def graph_drawing(graph: fx.Graph) -> str:
    """One row for each node: operator, result, module and line of the program; curves lead from inputs to users."""
    rows = {node: k for k, node in enumerate(graph.nodes)}
    parts = []
    for node, row in rows.items():
        y = row * _ROW + _ROW / 2
        for source in node.all_input_nodes:
            start = rows[source] * _ROW + _ROW / 2
            bend = _LEFT - 10 - min(_LEFT - 10, 12 + 6 * (row - rows[source]))
            curve = f"M{_LEFT} {start} C{bend} {start} {bend} {y} {_LEFT} {y}"
            parts.append(f'<path d="{curve}" fill="none" stroke="#9fb0c6"/>')
    for node, row in rows.items():
        y = row * _ROW + _ROW / 2
        color = {"placeholder": "#4d9960", "output": "#a8577e", "get_attr": "#4d9960"}.get(node.op, "#3b6ea8")
        parts.append(f'<circle cx="{_LEFT}" cy="{y}" r="4" fill="{color}"/>')
        parts.append(_cut(_LEFT + 12, y + 4, _label(node), _TYPES))
        parts.append(_cut(_TYPES, y + 4, _type_of(node.meta.get("val")), _PLACES))
        place, path = user_place(node), module_path(node)
        if place is not None and node.op.startswith("call"):
            parts.append(_cut(_PLACES, y + 4, f"{path + '  ' if path else ''}{place.line}: {place.text}", _WIDTH))
    return _svg(_WIDTH, len(rows) * _ROW, parts)


def _label(node: fx.Node) -> str:
    """The name of a node, and what it computes or where it comes from, as far as the name does not say that."""
    if node.op == "placeholder" and node.meta.get("source") is not None:
        return f"{node.name}: " + _INSIDE_MODULES.sub(r".\1", str(node.meta["source"]))
    if not node.op.startswith("call"):
        return node.name
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return node.name if re.sub(r"_\d+$", "", node.name) == name else f"{node.name} = {name}"


def _cut(x: float, y: float, text: str, end: float) -> str:
    """Text that ends before `end`; what is cut off is shown when the mouse is over it."""
    room = int((end - x) / _CHARACTER) - 1
    if len(text) <= room:
        return _text(x, y, text)
    return f"<g><title>{escape(text)}</title>{_text(x, y, text[: room - 1] + '…')}</g>"


def _type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return ""


def memory_drawing(spec: PlanSpec) -> str:
    """The scratch memory of a plan: a box for each buffer, from the step that creates it to the last one that uses it
    (to the right) and over its bytes (downwards)."""
    slots = {s.buf: (at, s) for at, s in enumerate(spec.steps) if isinstance(s, Slot) and not s.on_host}
    total = next((s.nbytes for s in spec.steps if isinstance(s, Arena) and not s.on_host), 0)
    if not slots or not isinstance(total, int) or not total:
        return '<p class="none">It needs no scratch memory, or its sizes vary: it is planned for each call.</p>'
    last = _last_uses(spec)
    height, steps = 220, len(spec.steps)
    parts = [f'<rect x="0" y="0" width="{_WIDTH}" height="{height}" fill="#f4f6f9"/>']
    for k, (buf, (at, slot)) in enumerate(slots.items()):
        end = last.get(buf, at)
        nbytes = _bytes_of(slot)
        x, width = at / steps * _WIDTH, (end - at + 1) / steps * _WIDTH
        y, tall = slot.offset / total * height, max(nbytes / total * height, 2)
        about = f"buffer {buf}: {nbytes:,} bytes at {slot.offset:,}, steps {at} to {end}"
        parts.append(_box(x, y, width, tall, _COLORS[k % len(_COLORS)], about))
        label = f"buffer {buf}, {counted(nbytes, 'byte')}"
        label = label if len(label) * _CHARACTER < width - 8 else str(buf)
        if tall > 14 and len(label) * _CHARACTER < width - 8:
            parts.append(_text(x + 4, y + 13, label, 'fill="white"'))
    text = (
        f"{total:,} bytes of scratch memory for {counted(len(slots), 'buffer')}. From left to right: the {steps} steps "
        "of a call; from top to bottom: the bytes."
    )
    return f"<p>{text}</p>" + _svg(_WIDTH, height, parts)


def _bytes_of(slot: Slot) -> int:
    extent = 1 + sum((n - 1) * stride for n, stride in zip(slot.size, slot.stride)) if 0 not in slot.size else 0
    return int(extent) * getattr(torch, slot.dtype).itemsize


def _last_uses(spec: PlanSpec) -> dict[int, int]:
    """The last step that uses each buffer, itself or as a view."""
    base: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, step in enumerate(spec.steps):
        used: list[int] = []
        if isinstance(step, KernelCall | Launch):
            used = list(step.bufs)
        elif isinstance(step, View):
            base[step.buf] = base.get(step.base, step.base)
        elif isinstance(step, Extern):
            used = [*step.outs, *_references([*step.args, *(value for _, value in step.kwargs)])]
        for buf in used:
            last[base.get(buf, buf)] = at
    return last


def _references(values: Sequence[Any]) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, BufRef):
            found.append(value.buf)
        elif isinstance(value, list | tuple):
            found += _references(value)
    return found
