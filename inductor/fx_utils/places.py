"""Maps graph nodes to lines of the user's program, and exceptions of the compiler to the node that caused them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..errors import Unsupported

_FRAME = re.compile(
    r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>[^\n]*)(\n(?P<text>(?! *File)[^\n]*))?'
)
_MAX_PLACES = 3
_TORCH = os.path.dirname(torch.__file__)


@dataclass(frozen=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f": {self.text}" if self.text else "")


def user_frames(node: fx.Node) -> list[Place]:
    """The stack of user code lines that a node comes from, outermost call first. torch's own frames are left out unless
    there are no others."""
    trace: str = node.meta.get("stack_trace") or ""
    found = _FRAME.finditer(trace)
    frames = [Place(f["file"], int(f["line"]), f["function"], (f["text"] or "").strip()) for f in found]
    return [frame for frame in frames if not frame.file.startswith(_TORCH)] or frames


def user_place(node: fx.Node) -> Place | None:
    """The innermost user line that a node comes from; None if unknown."""
    frames = user_frames(node)
    return frames[-1] if frames else None


def captured_function(gm: fx.GraphModule) -> Place | None:
    """The function that a graph was captured from, with the line in it that leads to the graph's first operator."""
    return next((frames[0] for frames in map(user_frames, gm.graph.nodes) if frames), None)


def module_path(node: fx.Node) -> str:
    """The path of the nn.Module whose forward a node comes from, such as "layers.0.act"; "" if unknown."""
    stack = node.meta.get("nn_module_stack")
    return str(next(reversed(stack.values()))[0]) if stack else ""


def place_key(node: fx.Node) -> tuple[str, str]:
    """Equal for nodes that come from the same lines of the program in the same module."""
    return node.meta.get("stack_trace") or "", module_path(node)


def places_in(gm: fx.GraphModule) -> Callable[[Sequence[int]], str]:
    """A function from numbers of nodes of `gm` to a short text on where they come from: module paths, and lines."""
    nodes = list(gm.graph.nodes)
    return lambda numbers: joined_places(node_place(nodes[n]) for n in numbers if n < len(nodes))


def node_place(node: fx.Node) -> str:
    """Where a node comes from, in short: the path of its module, and its line; "" if unknown."""
    place, path = user_place(node), module_path(node)
    line = f"{os.path.basename(place.file)}:{place.line}" if place else ""
    return " ".join(filter(None, (path, line)))


def joined_places(texts: Iterable[str]) -> str:
    """A short text on several places."""
    known = [text for text in dict.fromkeys(texts) if text]
    more = f" and {len(known) - _MAX_PLACES} more" if len(known) > _MAX_PLACES else ""
    return ", ".join(known[:_MAX_PLACES]) + more


def label_of(gm: fx.GraphModule, part: str = "") -> str:
    """The name of a compiled graph in profiles; `part`: which half of a training graph it is."""
    place = captured_function(gm)
    whose = f" of {place.function} ({os.path.basename(place.file)}:{place.line})" if place else ""
    return f"compiled {part or 'graph'}{whose}"


def name_of(node: fx.Node) -> str:
    """The operator of a node, as named in messages."""
    target: Any = node.target
    if isinstance(target, str):
        return target
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def blame(error: Exception, node: fx.Node) -> None:
    """Record in an exception which node was being compiled, unless one is recorded already."""
    if not hasattr(error, "graph_node"):
        error.graph_node = node  # type: ignore[attr-defined]


def _own_text(error: Exception) -> str:
    """The message of an exception; of torch's own classes only its first paragraph, because advice on tools of torch
    that do not apply here follows."""
    is_torchs = type(error).__module__.partition(".")[0] == "torch"
    return str(error).partition("\n\n")[0] if is_torchs else str(error)


def reason_of(error: Exception) -> str:
    """The reason for an exception, for messages and reports: exception, operator, and user's line."""
    text = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}: {_own_text(error)}"
    node = getattr(error, "graph_node", None)
    if node is None:
        return text
    place = user_place(node)
    return f"{text} (operator {name_of(node)}" + (f", {place})" if place else ")")
