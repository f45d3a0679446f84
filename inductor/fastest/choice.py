"""Which of two ways to run a graph was found to be the faster one, and where that is remembered.

A choice holds for a class of sizes of one compiled graph: sizes of the same class differ by less than a factor of two
in each symbol. It is kept on disk under the graph's key and the processor, so that later processes measure nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ..cache.file_store import content_key, shared_cache
from ..process.processor import description

_SUFFIX = ".measured"
_Class = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Choice:
    """The median seconds of a call (with its backward, for a graph that has one) of the compiled graph and of ATen, and
    whether calls run ATen from then on. `remembered`: measured by another process or for other sizes of the class."""

    compiled: float
    aten: float
    keeps_aten: bool
    remembered: bool = False

    def __str__(self) -> str:
        kept, other = ("ATen", "compiled") if self.keeps_aten else ("compiled", "ATen")
        of_kept, of_other = (self.aten, self.compiled) if self.keeps_aten else (self.compiled, self.aten)
        earlier = ", measured earlier" if self.remembered else ""
        return f"{kept} is kept: {_microseconds(of_kept)} a call, {other} {_microseconds(of_other)}{earlier}"


class Choices:
    """The choices of one compiled graph, by class of sizes. `key`: the graph's key in the disk cache; None: it has
    none, and choices are forgotten with the graph."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._known: dict[_Class, Choice] = {}

    def find(self, sizes: Mapping[str, int]) -> Choice | None:
        """The choice for these values of the graph's symbols; None if nothing was measured yet."""
        kind = _class_of(sizes)
        if kind not in self._known and self._key is not None:
            data = shared_cache().get(_key_of(self._key, kind), _SUFFIX)
            if data is not None:
                self._known[kind] = Choice(**json.loads(data), remembered=True)
        return self._known.get(kind)

    def keep(self, sizes: Mapping[str, int], choice: Choice) -> None:
        """Remember a choice."""
        kind = _class_of(sizes)
        self._known[kind] = choice
        if self._key is not None:
            facts = {name: value for name, value in asdict(choice).items() if name != "remembered"}
            shared_cache().put(_key_of(self._key, kind), json.dumps(facts).encode(), _SUFFIX)


def _class_of(sizes: Mapping[str, int]) -> _Class:
    return tuple((name, value.bit_length()) for name, value in sorted(sizes.items()))


def _key_of(key: str, kind: _Class) -> str:
    # the graph's key has torch's number of threads, and the GPUs
    return content_key("measured", key, repr(kind), description("model name", "CPU part"))


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
