"""Generates the Triton kernels of 2-d convolutions in channels_last (implicit GEMM), with their epilogues.

The tile, what follows the sums, and how a sum is split are those of a matrix product. Only the loop over the summed
dimension differs: it runs over the taps of the filter, and over blocks of channels within each tap. If the channels are
not a multiple of the block, a block contains elements of several taps, and each computes its own tap.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schedule.product import Product, ProductConfig
from .product import ProductKernel, terms_of
from .work import Scratch

_NAMES = "down", "across"


class ConvolutionKernel(ProductKernel):
    """Computes tiles of a convolution; partial sums into scratch memory if there is any."""

    def __init__(
        self, product: Product, dtypes: Mapping[str, str], chosen: ProductConfig, scratch: Scratch | None
    ) -> None:
        super().__init__(product, dtypes, chosen, scratch)
        assert product.convolution is not None
        self.convolution = product.convolution

    def dot(self, begin: str, span: int, whole: bool) -> None:
        """As in the base class."""
        self._pixels()
        by_tap = self.convolution.channels % self.chosen.depth == 0
        if by_tap:
            place, lanes = self._one_tap(begin, whole), "channel"
        else:
            place, lanes = self._several_taps(begin), ""
        image, filters = self._corners(lanes)
        over = [] if whole else [f"(depth < {self.sizes.depth})"]
        left = [*(["ymask"] if "y" in self.masked else []), *self._inside(by_tap)]
        left += [f"{mask}[None, :]" for mask in over]
        right = [*(["xmask"] if "x" in self.masked else []), *(f"{mask}[:, None]" for mask in over)]
        row, column = ("", "") if by_tap else ("[None, :]", "[:, None]")
        self.lines += [
            *(["channel = tl.arange(0, KBLOCK)"] if by_tap else []),
            f"image = {image}", f"filters = {filters}", "sums = tl.zeros([YBLOCK, XBLOCK], tl.float32)",
            f"for step in range(0, {span}, KBLOCK):", *(f"    {line}" for line in place),
            f"    a = {self.load_block(f'image + at{row}', left)}",
            f"    b = {self.load_block(f'filters + of{column}', right)}",
            f"    sums = {self.dot_text()}",
        ]  # fmt: skip

    def _pixels(self) -> None:
        """Writes the lines that compute, for each row of the tile, the number of its image and the pixel below the
        first tap of the filter."""
        found = self.convolution
        height, width = found.result.size[2:]
        self.lines += [f"number = yindex // {height * width}", f"down = yindex // {width} % {height}"]
        self.lines.append(f"across = yindex % {width}")
        for name, stride, padding in zip(_NAMES, found.stride, found.padding):
            self.lines.append(f"{name} = {name} * {stride} - {padding}")

    def _corners(self, channel: str) -> tuple[str, str]:
        """The text of pointers to the elements below the first tap, and to the first tap of the filters, at these
        channels (none: the first one)."""
        found, (image, filters) = self.convolution, self.product.kernel.args[:2]
        each, own = found.image.stride, found.filters.stride
        rows = [("number", each[0]), ("down", each[2]), ("across", each[3]), (str(found.image.offset), 1)]
        columns = [("xindex", own[0]), (str(found.filters.offset), 1)]
        if channel:
            rows.append((f"{channel}[None, :]", 1))
            columns.append((f"{channel}[:, None]", 1))
        names = [self.pointer_to(getattr(operand, "buffer", operand).name) for operand in (image, filters)]
        return f"{names[0]} + ({terms_of(*rows)})", f"{names[1]} + ({terms_of(*columns)})"

    def _one_tap(self, begin: str, whole: bool) -> list[str]:
        """The lines that compute the tap of a step, and the distances from the pointers: `at` and `of`."""
        channels = self.convolution.channels
        start = f"({begin}step)" if begin else "step"
        lines = [] if whole else [f"depth = {start} + tl.arange(0, KBLOCK)"]
        lines += [f"tap = {start} // {channels}", f"first = {start} - tap * {channels}"]  # known to be a multiple
        return [*lines, *self._distances("first")]

    def _several_taps(self, begin: str) -> list[str]:
        """Like `_one_tap`, for each element of the block."""
        channels = self.convolution.channels
        lines = [f"depth = {begin}step + tl.arange(0, KBLOCK)", f"tap = depth // {channels}"]
        return [*lines, *self._distances(f"depth % {channels}")]

    def _distances(self, channel: str) -> list[str]:
        found = self.convolution
        across = found.taps[1]
        steps = [f"tap // {across}", f"tap % {across}"] if across > 1 else ["tap", "tap * 0"]
        lines = [f"u = {steps[0]}", f"v = {steps[1]}"]
        image = terms_of(*((x, d * s) for x, d, s in zip("uv", found.dilation, found.image.stride[2:])), (channel, 1))
        filters = terms_of(*zip("uv", found.filters.stride[2:]), (channel, 1))
        return [*lines, f"at = {image}", f"of = {filters}"]

    def _inside(self, by_tap: bool) -> list[str]:
        """The masks of elements that lie inside the image, as far as some do not."""
        masks = []
        for dimension, (name, tap) in enumerate(zip(_NAMES, "uv")):
            before, behind = self.convolution.reaches_outside(dimension)
            dilation, size = self.convolution.dilation[dimension], self.convolution.image.size[2 + dimension]
            place = f"{name} + {tap if by_tap else f'{tap}[None, :]'} * {dilation}"
            masks += [f"({place} >= 0)"] if before else []
            masks += [f"({place} < {size})"] if behind else []
        return masks
