"""Collects the C++ kernels of a graph into translation units.

Each distinct kernel appears once, below a comment with the user's source lines that it comes from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...fx_utils.places import user_place
from ...runtime.cpp_build import USE_SLEEF
from ...schedule.node import Group
from ..group_key import Numbered, group_key
from .kernel import Kernel

UNIT_CHARACTERS, MAX_UNITS = 6000, 8
_NOT_TEXT = re.compile(r"[^\x20-\x7e]|\\$")


@dataclass
class Source:
    """Collects kernels. `names` are the distinct functions in order."""

    names: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _by_body: dict[str, int] = field(default_factory=dict)
    _by_group: dict[Any, tuple[int, tuple[Numbered, ...]]] = field(default_factory=dict)

    def kernel(self, group: Group, dtypes: Mapping[str, str]) -> tuple[int, list[str], list[str]]:
        """The number of the group's function, and the buffers and size symbols to call it with. Groups with the same
        body share a function; for those that are equal but for their buffers, it is generated once."""
        key = group_key(group, dtypes)
        if key is None:
            return self._generated(group, dtypes)
        exact = key.exact  # it is large, and its hash is computed at each use
        found = self._by_group.get(exact)
        if found is None:
            number, bufs, symbols = self._generated(group, dtypes)
            assert not symbols  # a group with a key has none
            found = self._by_group[exact] = number, key.numbered(bufs)
        number, numbered = found
        return number, key.named(numbered), []

    def _generated(self, group: Group, dtypes: Mapping[str, str]) -> tuple[int, list[str], list[str]]:
        kernel = Kernel(group, dtypes)
        number = self._by_body.get(kernel.body)
        if number is None:
            number = self._by_body[kernel.body] = len(self.names)
            self.names.append(f"k{number}")
            self._texts.append(_comment(group) + kernel.text(f"k{number}"))
        return number, kernel.bufs, kernel.symbols

    def texts(self) -> list[str]:
        """Translation units of about equal length, each long enough to be worth starting a compiler."""
        total = sum(map(len, self._texts))
        units = max(1, min(os.cpu_count() or 1, MAX_UNITS, total // UNIT_CHARACTERS)) if self._texts else 0
        filled: list[list[str]] = [[] for _ in range(units)]
        for text in sorted(self._texts, key=len, reverse=True):
            min(filled, key=lambda unit: sum(map(len, unit))).append(text)
        return [USE_SLEEF + "#include <vec.h>\n\n" + "\n".join(unit) for unit in filled]


def user_lines(group: Group) -> list[str]:
    """The places in the user's code where the group's operators are called, as "file:line: text", each once."""
    lines: dict[str, None] = {}
    for member in group.members:
        for origin in member.node.origins:
            place = user_place(origin)
            if place:
                lines[_NOT_TEXT.sub("?", str(place))] = None
    return list(lines)


def _comment(group: Group) -> str:
    names = ", ".join(m.node.name for m in group.members)
    return "".join(f"// {line}\n" for line in [names, *user_lines(group)])
