"""Which operators of an ATen graph each loop computes: the one whose result it stores, and those before it whose
results are never in memory, so that the loop computes them too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from ..ir.buffer import ComputedBuffer
from ..ir.nodes import BufferView, Pointwise

_MAX_NODES = 200  # of a loop; only names of kernels and comments need them


def set_origins(buffers: Sequence[Any], values: Mapping[fx.Node, Any]) -> None:
    """Extend the origins of each ComputedBuffer, which are the node being lowered when it was created. `values`: the
    lowered value of each node."""
    makers: dict[str, fx.Node] = {}
    for node, value in values.items():
        for memory in _memories(value):
            makers.setdefault(memory.buffer.name, node)
    for buffer in buffers:
        if isinstance(buffer, ComputedBuffer):
            start = makers.get(buffer.name, buffer.origins[0])
            buffer.origins = tuple(reversed(list(_computed(start, values))))


def _memories(value: Any) -> Iterator[BufferView]:
    """The memory of a node's value, or of its items."""
    for item in value if isinstance(value, tuple | list) else (value,):
        memory = item.memory if isinstance(item, Pointwise) else item
        if isinstance(memory, BufferView):
            yield memory


def _computed(start: fx.Node, values: Mapping[fx.Node, Any]) -> Iterator[fx.Node]:
    """`start`, and the nodes before it whose values are not in memory."""
    found, waiting = {start: None}, [start]
    while waiting and len(found) < _MAX_NODES:
        node = waiting.pop()
        yield node
        for source in node.all_input_nodes:
            value = values.get(source)
            inside = isinstance(value, Pointwise) and value.memory is None and source.op == "call_function"
            if inside and source not in found:
                found[source] = None
                waiting.append(source)
