"""The base class of the emitters of C++ and of Triton kernels: names of variables, and arguments for the buffers."""

from __future__ import annotations

from collections.abc import Mapping

from .values import STATUS


class KernelWriter:
    """Base of the emitters. `bufs` collects the names of the kernel's buffer arguments in order, `lines` the lines of
    the scope that is being written. `dtypes` are those of all buffers by name."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self.dtypes = {**dtypes, STATUS: "int64"}
        self.bufs: list[str] = []
        self.lines: list[str] = []
        self._count = 0

    def fresh(self, prefix: str = "t") -> str:
        """An unused name for a variable of the kernel."""
        self._count += 1
        return f"{prefix}{self._count}"

    def pointer_to(self, buf: str) -> str:
        """The name of the kernel argument that points to a buffer, added at first use."""
        if buf not in self.bufs:
            self.bufs.append(buf)
        return f"b{self.bufs.index(buf)}"
