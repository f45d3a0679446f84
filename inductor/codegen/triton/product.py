"""Generates the Triton kernels of a matrix product and its epilogue.

A program computes a tile of the result in float32, applies bias and scale, rounds to the product's dtype as ATen does,
and continues with the pointwise operations of the epilogue on the tile in registers. If the summed dimension is split,
programs write partial sums to scratch memory, and a second kernel adds them and applies the rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import torch

from ...errors import Unsupported
from ...schedule.product import FACTORS, Product, ProductConfig
from ..values import Val, Values
from .axes import Axes, Axis
from .emit import Piece
from .heuristics import Config, ceil_div, power
from .kernel import Draft, Kernel
from .ops import ARITHMETIC, ELEMENT, POINTER
from .product_prologue import PrologueBlocks
from .work import Scratch

ROWS_TOGETHER = 8  # rows of tiles that run at about the same time, so that they find the second factor in the cache
JOIN_ROWS, JOIN_COLUMNS, JOIN_WARPS = 4, 64, 2
GELU_SCALE, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def _axes(product: Product) -> Axes:
    return Axes((Axis("y", product.rows), Axis("x", product.columns)), product.batch, {}, "x", False)


def terms_of(*terms: tuple[str, int]) -> str:
    """The text of a sum of products of an index and a stride."""
    parts = [name if stride == 1 else f"{name} * {stride}" for name, stride in terms if stride != 0 and name != "0"]
    return " + ".join(parts) or "0"


def _name(product: Product) -> str:
    return str(product.kernel.target).split(".")[1].strip("_")


class _Tile(Kernel):
    """What both kernels of a product share: the place of a tile, and what happens to its sums."""

    # Factors may be 8-bit floats; loops do not read these.
    pointers: ClassVar[Mapping[str, str]] = {**POINTER, "float8_e4m3fn": "*fp8e4nv", "float8_e5m2": "*fp8e5"}

    def __init__(self, product: Product, dtypes: Mapping[str, str], config: Config, scratch: Scratch | None) -> None:
        own = {scratch.name: scratch.dtype} if scratch else {}
        super().__init__(Values(product, {}, set(), dtypes), _axes(product), {**dtypes, **own}, config)
        self.product, self.sizes, self.scratch = product, product.sizes, scratch
        extents = [x.layout.extent for x in product.kernel.operands()] + [scratch.size if scratch else 0]
        self.wide = self.wide or any(n >= 2**31 for n in (*extents, product.result.layout.extent))
        self.sums: Piece | None = None
        self.batch = "0"
        self.counts = {
            "y": ceil_div(self.sizes.rows, config.block("y")), "x": ceil_div(self.sizes.columns, config.block("x"))
        }  # fmt: skip
        self.programs = self.counts["x"] * self.counts["y"] * self.sizes.batch

    def start(self, pid: str) -> None:
        """Writes the lines that compute the tile of program `pid` and the variables of its batch."""
        across, down = self.counts["x"], self.counts["y"]
        if self.sizes.batch > 1:
            self.lines += [f"batch = {pid} // {across * down}", f"tile = {pid} % {across * down}"]
            self.batch = "batch"
            stride = 1
            for name, size in reversed(self.product.batch):
                self.lines.append(f"{name} = batch // {stride} % {size}")
                stride *= size
        else:
            self.lines.append(f"tile = {pid}")
        if down == 1 or across == 1:
            self.lines += [f"ytile = tile // {across}", f"xtile = tile % {across}"]
        else:
            self.lines += [
                f"band = tile // {ROWS_TOGETHER * across}",
                f"within = tile % {ROWS_TOGETHER * across}",
                f"height = tl.minimum({down} - band * {ROWS_TOGETHER}, {ROWS_TOGETHER})",
                f"ytile = band * {ROWS_TOGETHER} + within % height",
                "xtile = within // height",
            ]
        self.lines += self.place("y", "ytile * YBLOCK") + self.place("x", "xtile * XBLOCK")

    def places(self) -> str:
        """The text of the elements of the tile in a contiguous result."""
        rows, columns = self.sizes.rows, self.sizes.columns
        return terms_of((self.batch, rows * columns), ("yindex", columns), ("xindex", 1))

    def finish(self, sums: str) -> None:
        """Writes what follows the sum, a tile of float32 named `sums`: bias, activation, rounding, epilogue, stores."""
        kernel, out = self.product.kernel, self.product.result
        alpha, beta = kernel.kwargs.get("alpha", 1), kernel.kwargs.get("beta", 1)
        for scale in self.product.scales:
            sums = self.emit("f", self.whole(), f"{sums} * {self._bias(scale)}").text
        if alpha != 1:
            sums = self.emit("f", self.whole(), f"{sums} * {float(alpha)!r}").text
        if self.product.bias is not None and beta != 0:
            bias = self._bias(self.product.bias)
            scaled = bias if beta == 1 else f"{bias} * {float(beta)!r}"
            sums = self.emit("f", self.whole(), f"{sums} + {scaled}").text
        if kernel.target is torch.ops.aten._addmm_activation.default:
            sums = self._activated(sums, bool(kernel.kwargs.get("use_gelu", False)))
        dtype = self.dtypes[out.name]
        rounded = sums if dtype == "float32" else f"{sums}.to({ELEMENT[dtype]}).to(tl.float32)"
        self.sums = self.emit("f", self.whole(), rounded)
        if out.name in self.product.stored:
            text = terms_of(*zip((self.batch, "yindex", "xindex"), self.product.result_strides))
            self._store_sums(out.name, f"{text} + {out.layout.offset}" if out.layout.offset else text)
        for store in self.values.stores:
            self.store(store)

    def _store_sums(self, name: str, place: str) -> None:
        assert self.sums is not None
        mask = self.mask(self.whole())
        pointer = f"{self.pointer_to(name)} + ({place})"
        self.lines.append(f"tl.store({pointer}, {self.sums.text}{', ' + mask if mask else ''})")

    def _bias(self, operand: Any) -> str:
        """The name of the bias of the tile, in float32, with extent 1 along the axes on which it does not vary."""
        buffer, layout = getattr(operand, "buffer", operand), operand.layout
        names = ("batch", "yindex", "xindex")[-len(layout.size) :] if layout.size else ()
        terms = [(n, s) for n, size, s in zip(names, layout.size, layout.stride) if size != 1 and s != 0]
        axes = frozenset(n[0] for n, _ in terms if n != "batch")
        text = terms_of(*[(self.batch if n == "batch" else n, s) for n, s in terms], (str(layout.offset), 1))
        mask = self.mask(axes)
        load = f"tl.load({self.pointer_to(buffer.name)} + ({text}){', ' + mask if mask else ''})"
        return self.emit("f", axes, f"{load}.to(tl.float32)").text

    def _activated(self, sums: str, gelu: bool) -> str:
        if not gelu:
            return self.emit("f", self.whole(), self.fill(ARITHMETIC["relu"], sums)).text
        inner = self.emit("f", self.whole(), f"{GELU_SCALE!r} * ({sums} + {GELU_CUBE} * {sums} * {sums} * {sums})").text
        curve = self.emit("f", self.whole(), self.fill(ARITHMETIC["tanh"], inner)).text
        return self.emit("f", self.whole(), f"0.5 * {sums} * (1.0 + {curve})").text

    def _load(self, value: Val) -> Piece:
        if value.attrs[0] == self.product.result.name:
            assert self.sums is not None
            return self.sums
        return super()._load(value)


class ProductKernel(_Tile):
    """Computes tiles of the product; partial sums into scratch memory if there is any."""

    def __init__(
        self, product: Product, dtypes: Mapping[str, str], chosen: ProductConfig, scratch: Scratch | None
    ) -> None:
        blocks = (("y", chosen.rows), ("x", chosen.columns))
        super().__init__(product, dtypes, Config(blocks, chosen.warps, stages=chosen.stages), scratch)
        self.chosen, self.name = chosen, _name(product)
        self.constants |= {"KBLOCK": chosen.depth}

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel."""
        pid, chosen = self.program(), self.chosen
        span = ceil_div(ceil_div(self.sizes.depth, chosen.depth), chosen.split) * chosen.depth
        if chosen.split > 1:
            self.lines.append(f"part = {pid} // {self.programs}")
            pid = f"{pid} % {self.programs}"
        self.lines.append(f"pid = {pid}")
        self.start("pid")
        begin = f"part * {span} + " if chosen.split > 1 else ""
        whole = self.sizes.depth % chosen.depth == 0 and span * chosen.split == self.sizes.depth
        if chosen.kind == "dot":
            self.dot(begin, span, whole)
        else:
            self._vector(begin, span, whole)
        if self.scratch is None:
            self.finish("sums")
        else:
            self.sums = Piece("sums", "f", self.whole())
            size = self.sizes.batch * self.sizes.rows * self.sizes.columns
            self._store_sums(self.scratch.name, f"part * {size} + {self.places()}")
        return self.finished(self.name, self.programs * chosen.split, unaligned)

    def operand(self, position: int) -> Any:
        """The operand that is the first (0) or the second factor (1)."""
        return self.product.kernel.args[FACTORS[self.product.kernel.target] + position]

    def _factor(self, position: int, rows: str, columns: str) -> str:
        """The text of pointers to a block of a factor, at these indices of rows and columns."""
        operand = self.operand(position)
        buffer, layout = getattr(operand, "buffer", operand), operand.layout
        terms = [(rows, layout.stride[-2]), (columns, layout.stride[-1])]
        if len(layout.size) == 3:
            terms.insert(0, (self.batch, layout.stride[0]))
        return f"{self.pointer_to(buffer.name)} + ({terms_of(*terms, (str(layout.offset), 1))})"

    def _strides(self) -> tuple[int, int]:
        """The strides of both factors along the summed dimension."""
        left, right = self.product.factors
        return left.stride[-1], right.stride[-2]

    @staticmethod
    def load_block(pointers: str, masks: Sequence[str]) -> str:
        """The text of a load of a block of a factor, of zeros where a mask is false."""
        mask = " & ".join(masks)
        return f"tl.load({pointers}, mask={mask}, other=0.0)" if mask else f"tl.load({pointers})"

    def dot(self, begin: str, span: int, whole: bool) -> None:
        """Writes the loop that sums up products of blocks, `sums`, with tensor cores. `begin`: the text of the place
        where the program's part of the sum begins, if not at 0, and ` + `; `span`: its length. `whole`: it consists of
        whole blocks."""
        along = ["depth = " + begin + "tl.arange(0, KBLOCK)"]
        left = None if self.product.prologue(0) else self._factor(0, "yindex", "depth[None, :]")
        right = None if self.product.prologue(1) else self._factor(1, "depth[:, None]", "xindex")
        over = "step + depth[{}] < " + str(self.sizes.depth)
        left_masks = (["ymask"] if "y" in self.masked else []) + ([] if whole else [f"({over.format('None, :')})"])
        right_masks = (["xmask"] if "x" in self.masked else []) + ([] if whole else [f"({over.format(':, None')})"])
        steps = self._strides()
        self.lines += [
            *along, *self._pointers("left", left), *self._pointers("right", right),
            "sums = tl.zeros([YBLOCK, XBLOCK], tl.float32)",
            f"for step in range(0, {span}, KBLOCK):",
            *self._block(0, begin, whole, False, left_masks), *self._block(1, begin, whole, False, right_masks),
            f"    sums = {self.dot_text()}", *self._advance(0, steps[0]), *self._advance(1, steps[1]),
        ]  # fmt: skip

    def dot_text(self) -> str:
        """The text of a product of two blocks, added to `sums`. In float32 it is exact, because torch's setting may
        change after compilation."""
        terms = self.product.imprecise
        limit = f", max_num_imprecise_acc={min(terms, self.chosen.depth)}" if terms else ""
        return f'tl.dot(a, b, sums, input_precision="ieee"{limit})'

    @staticmethod
    def _pointers(name: str, pointers: str | None) -> list[str]:
        return [] if pointers is None else [f"{name} = {pointers}"]

    def _advance(self, position: int, step: int) -> list[str]:
        name = ("left", "right")[position]
        return [] if self.product.prologue(position) else [f"    {name} += {terms_of(('KBLOCK', step))}"]

    def _block(self, position: int, begin: str, whole: bool, down: bool, masks: Sequence[str]) -> list[str]:
        """The lines of the loop that load or compute a block of the first (0) or the second factor (1)."""
        prologue = self.product.prologue(position)
        if prologue is None:
            return [f"    {'ab'[position]} = {self.load_block(('left', 'right')[position], masks)}"]
        return PrologueBlocks(self, prologue, self.chosen, self.sizes, self.batch, down).block(begin, whole)

    def _vector(self, begin: str, span: int, whole: bool) -> None:
        """One row of the first factor times a block of columns of the second, whose elements are read in order."""
        if self.product.prologue(0) is not None:
            raise Unsupported("a row that is computed where it is read")
        down = self._strides()[1] == 1  # the summed dimension is the contiguous one
        depth, columns = ("[None, :]", "[:, None]") if down else ("[:, None]", "[None, :]")
        left = self._factor(0, "row", f"depth{depth}")
        right = None if self.product.prologue(1) else self._factor(1, f"depth{depth}", f"column{columns}")
        over = [] if whole else [f"(step + depth{depth} < {self.sizes.depth})"]
        masks = ([f"(column{columns} < xnumel)"] if "x" in self.masked else []) + over
        steps = self._strides()
        shape, axis = ("[XBLOCK, KBLOCK]", 1) if down else ("[KBLOCK, XBLOCK]", 0)
        kept = "[None, :]"
        self.lines += [
            f"depth = {begin}tl.arange(0, KBLOCK)", "row = ytile", "column = xtile * XBLOCK + tl.arange(0, XBLOCK)",
            f"left = {left}", *self._pointers("right", right), f"parts = tl.zeros({shape}, tl.float32)",
            f"for step in range(0, {span}, KBLOCK):",
            f"    a = {self.load_block('left', over)}",
            *self._block(1, begin, whole, down, masks),
            "    parts += a.to(tl.float32) * b.to(tl.float32)",
            *self._advance(0, steps[0]), *self._advance(1, steps[1]),
            f"sums = tl.sum(parts, {axis}){kept}",
        ]  # fmt: skip


class JoinKernel(_Tile):
    """Adds the partial sums, and finishes the product."""

    def __init__(self, product: Product, dtypes: Mapping[str, str], scratch: Scratch) -> None:
        sizes = product.sizes
        blocks = (("y", min(JOIN_ROWS, power(sizes.rows))), ("x", min(JOIN_COLUMNS, power(sizes.columns))))
        super().__init__(product, dtypes, Config(blocks, JOIN_WARPS), scratch)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel."""
        assert self.product.config is not None and self.scratch is not None
        self.lines.append(f"pid = {self.program()}")
        self.start("pid")
        size, mask = self.sizes.batch * self.sizes.rows * self.sizes.columns, self.mask(self.whole())
        pointer = f"{self.pointer_to(self.scratch.name)} + part * {size} + ({self.places()})"
        self.lines += [
            "sums = tl.zeros([YBLOCK, XBLOCK], tl.float32)",
            f"for part in range({self.product.config.split}):",
            f"    sums += tl.load({pointer}{', ' + mask if mask else ''})",
        ]
        self.finish("sums")
        return self.finished(f"{_name(self.product)}_join", self.programs, unaligned)
