"""The base class of the emitters of C++ and of Triton kernels: names of variables, and arguments for the buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .values import COUNTERS, STATUS


class HostNumber(NamedTuple):
    """A kernel argument: element `position` of a buffer on the CPU, by value."""

    buf: str
    position: int


class KernelWriter:
    """Base of the emitters. `bufs` collects the kernel's arguments in order: the names of buffers whose address it
    takes, and HostNumbers. `lines` are the lines of the scope that is being written. `dtypes` are those of all buffers
    by name."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self.dtypes = {**dtypes, STATUS: "int64", COUNTERS: "int32"}
        self.bufs: list[Any] = []
        self.lines: list[str] = []
        self._count = 0

    def fresh(self, prefix: str = "t") -> str:
        """An unused name for a variable of the kernel."""
        self._count += 1
        return f"{prefix}{self._count}"

    def pointer_to(self, buf: str | HostNumber) -> str:
        """The name of the kernel argument that points to a buffer or is a number, added at first use."""
        if buf not in self.bufs:
            self.bufs.append(buf)
        return f"b{self.bufs.index(buf)}"
