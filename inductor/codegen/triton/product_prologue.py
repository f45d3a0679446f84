"""Computes blocks of a factor of a product within the loop of its kernel, instead of loading them."""

from __future__ import annotations

from ...errors import Unsupported
from ...schedule.index import variable
from ...schedule.product import ProductConfig, Prologue, Sizes, Variables
from ..values import Values
from .axes import Axes, Axis
from .heuristics import Config
from .kernel import Kernel
from .ops import ELEMENT


class PrologueBlocks(Kernel):
    """Writes the lines that compute a block, as a part of the kernel `kernel`, whose arguments it shares.

    `batch` is the text of the number of the product in its batch. The summed dimension is along the axis k; the rows of
    the first factor, or the columns of the second one, are along the axis v or w. `down`: columns are along the first
    dimension of the block of the second factor, and the summed dimension along the other one.
    """

    def __init__(
        self, kernel: Kernel, prologue: Prologue, chosen: ProductConfig, sizes: Sizes, batch: str, down: bool = False
    ) -> None:
        self.prologue, self.sizes, self.batch = prologue, sizes, batch
        names = {name: variable(f"p{name}") for name, _ in prologue.group.outer_vars()}
        if prologue.position == 0:
            tile = Axis("v", _named(prologue.first)), Axis("k", _named(prologue.second))
            other, block, contiguous = "v", chosen.rows, "k"
        else:
            tile = Axis("k", _named(prologue.first)), Axis("w", _named(prologue.second))
            tile, other, block, contiguous = tile[::-1] if down else tile, "w", chosen.columns, "k" if down else "w"
        axes = Axes(tile, _named(prologue.batch), names, contiguous, False)
        config = Config((("k", chosen.depth), (other, block)), chosen.warps)
        super().__init__(Values(prologue.group, names, set(), kernel.dtypes), axes, kernel.dtypes, config)
        if self.wide:
            raise Unsupported("a prologue whose indices need 64 bits")
        self.bufs, self.used, self.dtype = kernel.bufs, kernel.used, kernel.dtypes[prologue.buffer]
        self.letter = other
        kernel.constants |= self.constants

    def fresh(self, prefix: str = "p") -> str:
        """An unused name, different from those of the product's kernel."""
        return super().fresh(prefix)

    def block(self, begin: str, whole: bool) -> list[str]:
        """The lines that compute the block for the step `step` of the loop: `a` of the first, `b` of the second factor.
        `begin`: the text of the place where the program's part of the sum begins, if not at 0, and ` + `; `whole`: it
        consists of whole blocks."""
        if not whole:
            self.masked.add("k")
        stride = 1
        for name, size in reversed(self.axes.fixed):
            self.lines.append(f"{name} = {self.batch} // {stride} % {size}")
            stride *= int(size)
        at = "ytile * VBLOCK" if self.letter == "v" else "xtile * WBLOCK"
        self.lines += self.place("k", f"{begin}step") + self.place(self.letter, at)
        result, (store,) = "ab"[self.prologue.position], self.values.stores
        text = self.converted(self.get(store.value), "f") + f".to({ELEMENT[self.dtype]})"
        self.lines.append(f"{result} = tl.broadcast_to({text}, {self.shape(self.whole())})")
        mask = self.mask(self.whole())
        if mask:
            self.lines.append(f"{result} = tl.where({mask}, {result}, 0.0)")
        return [f"    {line}" for line in self.lines]


def _named(variables: Variables) -> Variables:
    return tuple((f"p{name}", size) for name, size in variables)
