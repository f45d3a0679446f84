"""Generates the Triton kernels of grouped matrix products: consecutive groups of rows, each times a matrix of its own,
as in mixtures of experts. Where groups end is known only when the kernel runs, so each program looks for its group.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schedule.product import Product, ProductConfig
from .product import ProductKernel
from .work import Scratch


class GroupedKernel(ProductKernel):
    """Computes tiles of a grouped product. A tile has rows of one group only, so there are up to one more per group."""

    def __init__(
        self, product: Product, dtypes: Mapping[str, str], chosen: ProductConfig, scratch: Scratch | None
    ) -> None:
        super().__init__(product, dtypes, chosen, scratch)
        assert product.ends is not None
        self.groups = product.ends.layout.size[0]
        self.programs = self.counts["x"] * (self.counts["y"] + self.groups)

    def start(self, pid: str) -> None:
        """As in the base class; the number of the group takes the place of that of the batch."""
        operand = self.product.ends
        layout = operand.layout
        ends = f"{self.pointer_to(getattr(operand, 'buffer', operand).name)} + {layout.offset}"
        self.batch = "group"
        self.masked.add("y")
        self.lines += [
            f"xtile = {pid} % {self.counts['x']}", f"number = {pid} // {self.counts['x']}",
            "group = number * 0", "top = number * 0", "bottom = number * 0", "begin = number * 0", "tiles = number * 0",
            f"for each in range({self.groups}):",
            f"    end = tl.load({ends} + each * {layout.stride[0]}).to(begin.dtype)",
            "    more = (end - begin + YBLOCK - 1) // YBLOCK",
            "    here = (number >= tiles) & (number < tiles + more)",
            "    group = tl.where(here, each, group)",
            "    top = tl.where(here, begin + (number - tiles) * YBLOCK, top)",
            "    bottom = tl.where(here, end, bottom)",  # if it stays 0, there is no tile for this program
            "    tiles += more", "    begin = end",
            "yindex = top + tl.arange(0, YBLOCK)[:, None]", "ymask = yindex < bottom",
            *self.axes.axis("y").lines(self.printer), *self.place("x", "xtile * XBLOCK"),
        ]  # fmt: skip
