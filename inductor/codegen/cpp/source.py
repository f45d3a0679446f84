"""One translation unit a graph: every distinct kernel once, with the user's lines above it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...schedule.node import Group
from .kernel import Kernel

_NOT_TEXT = re.compile(r"[^\x20-\x7e]|\\$")


@dataclass
class Source:
    """Collects kernels. `names` are the distinct functions in order."""

    names: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _by_body: dict[str, int] = field(default_factory=dict)

    def kernel(self, group: Group, dtypes: Mapping[str, str]) -> tuple[int, list[str]]:
        """The number of the group's function, new or shared, and the buffers to call it with."""
        kernel = Kernel(group, dtypes)
        number = self._by_body.get(kernel.body)
        if number is None:
            number = self._by_body[kernel.body] = len(self.names)
            self.names.append(f"k{number}")
            self._texts.append(_comment(group) + kernel.text(f"k{number}"))
        return number, kernel.bufs

    def text(self) -> str:
        """The translation unit."""
        return "#define USE_SLEEF 1\n#include <vec.h>\n\n" + "\n".join(self._texts)


def user_lines(group: Group) -> list[str]:
    """The distinct last lines of the stack traces of the group's origins."""
    lines: dict[str, None] = {}
    for member in group.members:
        for origin in member.node.origins:
            trace = getattr(origin, "meta", {}).get("stack_trace") or ""
            text = trace.strip().splitlines()[-1:] or [""]
            if text[0].strip():
                lines[_NOT_TEXT.sub("?", text[0].strip())] = None
    return list(lines)


def _comment(group: Group) -> str:
    names = ", ".join(m.node.name for m in group.members)
    return "".join(f"// {line}\n" for line in [names, *user_lines(group)])
