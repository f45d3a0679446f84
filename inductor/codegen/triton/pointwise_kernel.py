"""Kernels without reductions: each point of a tile is computed by itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from ...ir.size import ceil_of, hint
from ..group_key import Position
from ..values import Values
from . import heuristics
from .axes import Axes
from .emit import Piece
from .gpu import Gpu
from .kernel import Draft, Kernel, KernelWithPositions


class PointwiseKernel(KernelWithPositions):
    """A kernel without reductions: each point of the tile is independent."""

    def __init__(self, values: Values, axes: Axes, dtypes: Mapping[str, str], gpu: Gpu) -> None:
        sms = gpu.multiprocessors
        sizes, times = [hint(a.size) for a in axes.tile], math.prod(hint(s) for _, s in axes.fixed)
        config = heuristics.tiled(sizes[0], sizes[1], times, sms) if len(sizes) > 1 else (
            heuristics.pointwise(sizes[0], sms, len(values.table) <= heuristics.LIGHT_VALUES))
        super().__init__(values, axes, dtypes, config)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel."""
        counts = {a.letter: ceil_of(a.size, self.config.block(a.letter)) for a in reversed(self.axes.tile)}
        if len(counts) == 1:
            self.lines += self.place("x", f"{self.program()} * XBLOCK")
        else:
            self.constants |= {f"{letter}blocks": n for letter, n in counts.items()}
            self.lines.append(f"pid = {self.program()}")
            self.lines += self.place("x", "pid % xblocks * XBLOCK")
            self.lines += self.place("y", "pid // xblocks % yblocks * YBLOCK")
            self.lines += self.fixed("xblocks * yblocks")
        if self.values.overwrites_loads():
            self.load_all(self.values.stores)
        for store in self.values.stores:
            self.store(store)
        programs = math.prod(counts.values()) * math.prod(s for _, s in self.axes.fixed)
        return self.finished("pointwise" if len(counts) == 1 else "tiled", programs, unaligned)


class FlatKernel(Kernel):
    """A pointwise kernel along one axis, as a part of a kernel for several groups (`horizontal.py`): `xnumel` and the
    number `start` of the first program are variables, and the number of elements need not fill the last block.

    `offsets` are the positions of the numbers that all elements share, such as a learning rate in a tensor of several;
    the code calls them c0, c1 ...
    """

    def __init__(self, values: Values, axes: Axes, dtypes: Mapping[str, str], gpu: Gpu) -> None:
        super().__init__(values, axes, dtypes, heuristics.pointwise(hint(axes.axis("x").size), gpu.multiprocessors))
        self.masked.add("x")
        self.offsets: list[Position] = []
        self._named: dict[tuple[str, int], str] = {}

    def pointer(self, buf: str, at: Piece, axes: frozenset[str]) -> str:
        """The text of a pointer; a constant position is a variable."""
        if at.text.isdecimal():
            key = buf, int(at.text)
            if key not in self._named:
                self._named[key] = f"c{len(self.offsets)}"
                self.offsets.append(key)
            at = replace(at, text=self._named[key])
        return super().pointer(buf, at, axes)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel, without the lines that set `pid`, `start` and `xnumel`."""
        self.lines += self.place("x", "(pid - start) * XBLOCK")
        if self.values.overwrites_loads():
            self.load_all(self.values.stores)
        for store in self.values.stores:
            self.store(store)
        return self.finished("several", 1, unaligned)
