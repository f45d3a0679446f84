"""Generates Triton kernels of matrix products whose factors the GPU's copy engine brings (tensor descriptors), on GPUs
of compute capability 9 and later.

There are about as many programs as multiprocessors, and each runs through several tiles, so that a descriptor is made
once per program. The descriptors are in memory of Triton's own, the *workspace*, which is passed behind the arguments
of the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...schedule.product import Product
from .heuristics import ceil_div
from .kernel import Draft
from .product import ProductKernel
from .work import Scratch

DESCRIPTOR = 128  # bytes
ALIGNED = 16  # bytes, of addresses and strides


def fits(product: Product) -> bool:
    """Whether both factors can be read through descriptors: two matrices in memory, in half precision, contiguous along
    one dimension and with rows (or columns) that begin at multiples of 16 bytes."""
    if product.convolution is not None or product.prologues or product.sizes.batch != 1:
        return False
    for layout in product.factors:
        itemsize, strides = layout.dtype.itemsize, layout.stride[-2:]
        if itemsize != 2 or len(layout.size) != 2 or layout.offset * itemsize % ALIGNED:
            return False
        if 1 not in strides or max(strides) * itemsize % ALIGNED or max(strides) < layout.size[strides.index(1)]:
            return False
    return True


class DescriptorKernel(ProductKernel):
    """Computes tiles of a product, several per program."""

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel. Its last buffer is the workspace."""
        chosen, programs = self.chosen, min(self.chosen.programs, self.programs)
        left, right = self._descriptor(0, "YBLOCK"), self._descriptor(1, "XBLOCK")
        header = [f"left = {left[0]}", f"right = {right[0]}"]
        header.append(f"for pid in range({self.program()}, {self.programs}, {programs}):")
        self.lines.clear()
        self.start("pid")
        self.lines += [
            "top = (ytile * YBLOCK).to(tl.int32)", "side = (xtile * XBLOCK).to(tl.int32)",
            "sums = tl.zeros([YBLOCK, XBLOCK], tl.float32)",
            f"for step in range(0, {ceil_div(self.sizes.depth, chosen.depth) * chosen.depth}, KBLOCK):",
            f"    a = {left[1].format('top', 'step')}", f"    b = {right[1].format('side', 'step')}",
            f"    sums = {self.dot_text()}",
        ]  # fmt: skip
        self.finish("sums")
        self.lines[:] = [*header, *(f"    {line}" for line in self.lines)]
        draft = self.finished(f"{self.name}_descriptors", programs, unaligned)
        return replace(draft, bufs=(*draft.bufs, self.workspace.name), workspace=2 * DESCRIPTOR)

    @property
    def workspace(self) -> Scratch:
        """Memory for the descriptors of all programs."""
        size = min(self.chosen.programs, self.programs) * 2 * DESCRIPTOR
        return Scratch(f"%{self.product.result.name}.descriptors", "uint8", size)

    def _descriptor(self, position: int, block: str) -> tuple[str, str]:
        """The text of a factor's descriptor, and that of a load of a block from a place along the rows (or columns) and
        along the sum; of the first factor [rows, depth], of the second [depth, columns]."""
        operand = self.operand(position)
        layout, along = operand.layout, position == 0
        pointer = f"{self.pointer_to(getattr(operand, 'buffer', operand).name)} + {layout.offset}"
        outer, depth = (0, 1) if along else (1, 0)
        in_order = layout.stride[depth] == 1  # the summed dimension is the contiguous one
        dims, blocks, places = [outer, depth], [block, "KBLOCK"], "{0}, {1}"
        if not in_order:
            dims, blocks, places = dims[::-1], blocks[::-1], "{1}, {0}"
        sizes = ", ".join(str(layout.size[d]) for d in dims)
        stride = layout.stride[dims[0]]
        made = f"tl.make_tensor_descriptor({pointer}, [{sizes}], [{stride}, 1], [{', '.join(blocks)}])"
        turned = "" if in_order == along else ".T"
        return made, f"{'left' if along else 'right'}.load([{places}]){turned}"


def descriptor_drafts(
    product: Product, dtypes: Mapping[str, str], unaligned: Collection[str]
) -> tuple[list[Draft], list[Scratch]]:
    """The kernel of a product, and its workspace."""
    assert product.config is not None
    kernel = DescriptorKernel(product, dtypes, product.config, None)
    return [kernel.draft(unaligned)], [kernel.workspace]
