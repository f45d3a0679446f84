"""`TritonKernel`, a kernel to compile; its launches; a `Draft`, which has no name yet; and `Kernel`, the base class of
what generates drafts, which writes the lines that all kinds of kernels have."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...ir.size import AnySize, Size, hint, quotient, same
from ...schedule.index import Affine
from ..emitter import HostNumber
from ..group_key import LARGEST_POSITION, Position
from ..values import Store, Val, Values
from . import heuristics
from .axes import Axes
from .emit import Emitter, Piece
from .heuristics import Config
from .ops import NUMBER, POINTER
from .work import rough


@dataclass(frozen=True)
class TritonKernel:
    """A kernel to compile and launch. `text` is a Python module that defines the function `name`.

    The function takes `bufs` in order, of the types `signature` (pointers, and of HostNumbers numbers), then the 32-bit
    integers `sizes` (sizes that vary, then positions of elements), then the compile-time `constants` (sizes of the
    iteration space and of blocks) by name. `aligned`: the arguments whose address must be a multiple of 16.
    `ahead`: it reads settled memory before it waits for the kernel ahead.
    `workspace`: if not 0, the last of `bufs` is not an argument of the function but memory for Triton's own use, of so
    many bytes per program. `plain`: it may become one with others that are equal but for sizes (`shared_sizes.py`).
    """

    name: str
    text: str
    bufs: tuple[str | HostNumber, ...]
    constants: dict[str, int]
    grid: tuple[AnySize, ...]
    num_warps: int
    num_stages: int
    signature: tuple[str, ...]
    aligned: tuple[int, ...]
    sizes: tuple[str, ...] = ()
    workspace: int = 0
    plain: bool = False
    ahead: bool = False

    @property
    def early(self) -> bool:
        """Whether the launch should overlap with the end of the kernel before it."""
        most = heuristics.AHEAD_PROGRAMS if self.ahead else heuristics.EARLY_PROGRAMS
        return math.prod(map(hint, self.grid)) <= most


@dataclass(frozen=True)
class Launch:
    """A call of kernel number `kernel` of a source on these buffers, with these elements for its `positions`."""

    kernel: int
    bufs: tuple[str | HostNumber, ...]
    positions: tuple[Position, ...] = ()

    def ints(self, sizes: Sequence[str]) -> tuple[str | int, ...]:
        """The values of the kernel's arguments `sizes`: symbols, and positions."""
        return *sizes[: len(sizes) - len(self.positions)], *(element for _, element in self.positions)


@dataclass(frozen=True)
class Draft:
    """A kernel without a name; `lines` are the lines of its body. `used` is as in `ops.imports`, `workspace` as in
    TritonKernel. `positions`: the elements that the kernel takes the positions of, in the last of `sizes`."""

    kind: str
    lines: tuple[str, ...]
    bufs: tuple[str | HostNumber, ...]
    constants: dict[str, int]
    grid: tuple[AnySize, ...]
    config: Config
    signature: tuple[str, ...]
    aligned: tuple[int, ...]
    sizes: tuple[str, ...]
    used: frozenset[str]
    workspace: int = 0
    positions: tuple[Position, ...] = ()

    def text(self, name: str) -> str:
        """The source of the function, named `name`."""
        arguments = [f"b{i}" for i in range(len(self.signature))] + list(self.sizes)
        arguments += [f"{c}: tl.constexpr" for c in self.constants]
        lines = [f"    {line}\n" for line in self.lines]
        return f"@triton.jit\ndef {name}({', '.join(arguments)}):\n{''.join(lines)}"


class Kernel(Emitter):
    """The base class of the kernels of pointwise groups, reductions and matrix products. `pointers`: the types of
    pointers in a signature, by dtype."""

    pointers: ClassVar[Mapping[str, str]] = POINTER

    def __init__(self, values: Values, axes: Axes, dtypes: Mapping[str, str], config: Config) -> None:
        super().__init__(values, axes, dtypes, rough(values, dtypes))
        self.config = config
        self.positions: dict[Position, str] = {}  # the names of the arguments for fixed positions
        self.wide = self.widest()
        self.constants: dict[str, AnySize] = {f"{a.letter}numel": a.size for a in axes.tile}
        self.constants |= {f"{a.letter.upper()}BLOCK": config.block(a.letter) for a in axes.tile}

    def place(self, letter: str, start: str) -> list[str]:
        """The lines that compute the index along an axis from `start` on, its mask, and its variables."""
        axis, block = self.axes.axis(letter), self.config.block(letter)
        dims = [":" if a.letter == letter else "None" for a in self.axes.tile]
        lanes = f"tl.arange(0, {letter.upper()}BLOCK)" + (f"[{', '.join(dims)}]" if len(dims) > 1 else "")
        lines = [f"{letter}index = {start + ' + ' if start else ''}{lanes}"]
        if quotient(axis.size, block) is None or letter in self.masked:
            self.masked.add(letter)
            lines.append(f"{letter}mask = {letter}index < {letter}numel")
        return lines + axis.lines(self.printer)

    def in_pairs(self, counter: Val) -> bool:
        """As the base class says; the blocks of a kernel begin at multiples of their length."""
        axis, (index, used) = self.axes.tile[-1], counter.attrs if counter.op == "index" else (None, ())
        if not isinstance(index, Affine) or used or not axis.variables or self.config.block(axis.letter) < 2:
            return False
        last, size = axis.variables[-1]
        rest = [c for name, c in (*index.terms, ("", index.const)) if name != last]
        whole = len(axis.variables) == 1 or quotient(size, 2) is not None
        return whole and same(index.coef(last), 1) and all(quotient(c, 2) is not None for c in rest)

    def load_all(self, stores: Sequence[Store]) -> None:
        """Writes all loads of these stores, before the first store. Several threads may load an element that one of
        them overwrites, so they synchronize."""
        for store in stores:
            for value in store.operands():
                self.get(value)
            self.index(store.index, store.symbols)
        self.lines.append("tl.debug_barrier()")

    def program(self) -> str:
        """The text of this program's number."""
        return "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"

    def fixed(self, programs: str) -> list[str]:
        """The lines that compute the fixed variables of this program, of which there are `programs` for each value."""
        lines: list[str] = []
        stride: AnySize = 1
        for name, size in reversed(self.axes.fixed):
            lines.append(f"{name} = pid // ({programs} * {self.printer.size(stride)}) % {self.printer.size(size)}")
            stride *= size
        return lines

    def finished(self, kind: str, programs: AnySize, unaligned: Collection[str]) -> Draft:
        """The draft made from the lines written so far."""
        signature = tuple(
            NUMBER[self.dtypes[b.buf]] if isinstance(b, HostNumber) else self.pointers[self.dtypes[b]]
            for b in self.bufs
        )
        aligned = tuple(i for i, b in enumerate(self.bufs) if isinstance(b, str) and b not in unaligned)
        varying = {name: value for name, value in self.constants.items() if isinstance(value, Size)}
        constants = {name: value for name, value in self.constants.items() if not isinstance(value, Size)}
        counts = [f"{name} = {self.printer.size(value)}" for name, value in varying.items()]
        sizes = sorted(self.printer.symbols)
        widened = [f"{name} = {name}.to(tl.int64)" for name in sizes] if self.wide else []
        sizes += self.positions.values()
        return Draft(kind, (*widened, *counts, *self.lines), tuple(self.bufs), constants, (programs,), self.config,
                     signature, aligned, tuple(sizes), frozenset(self.used),
                     positions=tuple(self.positions))  # fmt: skip


class KernelWithPositions(Kernel):
    """A kernel that takes fixed positions in buffers as arguments p0, p1 ..., so that it serves all groups that differ
    in nothing else."""

    def pointer(self, buf: str, at: Piece, axes: frozenset[str]) -> str:
        """The text of a pointer; a position other than 0 is an argument."""
        if at.text.isdecimal() and 0 < int(at.text) <= LARGEST_POSITION and not self.values.folded:
            name = self.positions.setdefault((buf, int(at.text)), f"p{len(self.positions)}")
            at = replace(at, text=name)
        return super().pointer(buf, at, axes)
