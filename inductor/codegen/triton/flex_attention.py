"""Generates the Triton kernels of flex_attention: the forward, and what it shares with the backward.

A program holds a block of rows of the query and loops over blocks of columns, with a running maximum and sum of each
row (online softmax). It visits only the blocks that the mask lists: first those in which each score has to be masked,
then those that are kept as a whole. The functions of the program are computed on tiles of scores in registers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...dtypes import dtype_name
from ...ir.buffer import Buffer, Layout, View
from ...ir.flex_attention import CHANGED, DIFFERENTIATED, GRADIENT, KEPT, SCORE, Blocks
from ...schedule.flex_attention import FlexGroup
from ..values import Val, Values
from . import flex_configs
from .axes import Axes, Axis
from .emit import Piece
from .flex_configs import FlexConfig, FlexShape
from .gpu import Gpu
from .heuristics import Config, ceil_div, power
from .kernel import Draft, Kernel
from .ops import ELEMENT

LOG2_E = math.log2(math.e)
FIRST, SECOND = "[:, None]", "[None, :]"


def shape_of(group: FlexGroup) -> FlexShape:
    """The sizes on which the choice of blocks depends."""
    kernel = group.kernel
    _, _, rows, dim = kernel.query.layout.size
    _, _, columns, value_dim = kernel.value.layout.size
    return FlexShape(rows, columns, max(dim, value_dim), kernel.query.layout.dtype.itemsize, kernel.block_size)


class FlexKernelBase(Kernel):
    """A kernel of attention. `across`: it loops over columns for a block of rows, otherwise over rows for a block of
    columns, and tiles are transposed."""

    def __init__(self, group: FlexGroup, dtypes: Mapping[str, str], config: FlexConfig, across: bool) -> None:
        batch, heads, rows, columns = group.outer
        own = {SCORE: "float32", GRADIENT: "float32", CHANGED: "float32", DIFFERENTIATED: "float32", KEPT: "bool"}
        y, x = Axis("y", (("m", rows),)), Axis("x", (("n", columns),))
        axes = Axes((y, x) if across else (x, y), (("zb", batch), ("zh", heads)), {}, "x", False)
        blocks = (("y", config.rows), ("x", config.columns))
        values = Values(group.member_group(), {}, {"n" if across else "m"}, {**dtypes, **own})
        for value in values.table.values():  # operands come first
            held = value.op == "load" and value.attrs[0] in own  # differs in each step, whatever its index
            value.loop = value.loop or held or any(each.loop for each in value.args)
        super().__init__(values, axes, {**dtypes, **own}, Config(blocks, config.warps, stages=config.stages))
        self.group_, self.attention, self.across = group, group.kernel, across
        self.rough = self.attention.query.layout.dtype.itemsize == flex_configs.HALF
        self.results: dict[str, Val] = {store.buf: store.value for store in self.values.stores}
        self.registers: dict[str, str] = {}
        self.sizes: tuple[int, int, int, int] = (batch, heads, rows, columns)  # type: ignore[assignment]
        self.together = self.sizes[1] // self.attention.key.layout.size[1]  # heads of the query per head of the key
        dims = self.attention.query.layout.size[3], self.attention.value.layout.size[3]
        self.dims = {"d": dims[0], "e": dims[1]}
        for letter, n in self.dims.items():
            self.constants[f"{letter.upper()}BLOCK"] = max(power(n), flex_configs.LEAST)
        self.dtype = dtype_name(self.attention.query.layout.dtype)

    # ---- memory

    def operand(self, operand: Buffer | View) -> tuple[str, Layout]:
        """The name of the argument that points to an operand's buffer, and the layout of the operand in it."""
        buffer = operand.buffer if isinstance(operand, View) else operand
        return self.pointer_to(buffer.name), operand.layout

    def matrix(self, operand: Buffer | View, head: str, rows: str, columns: str) -> str:
        """The text of pointers to a block of a matrix of one head, at these indices."""
        name, layout = self.operand(operand)
        long = ".to(tl.int64)" if layout.extent >= 2**31 else ""
        parts = [f"({index}){long} * {n}" if n != 1 else f"({index})"
                 for index, n in zip(("zb", head, rows, columns), layout.stride) if n != 0]  # fmt: skip
        return f"{name} + ({' + '.join([*parts, str(layout.offset)])})"

    def row_pointers(self, operand: Buffer | View, row: str) -> str:
        """The text of pointers to numbers of the rows of a head."""
        name, layout = self.operand(operand)
        terms = [f"{index} * {n}" for index, n in zip(("zb", "zh", row), layout.stride)]
        return f"{name} + ({' + '.join([*terms, str(layout.offset)])})"

    def dim_masks(self, letter: str, index: str) -> list[str]:
        """The mask of the existing elements of a head."""
        dim = self.dims[letter]
        return [] if power(dim) == dim and dim >= flex_configs.LEAST else [f"({index} < {dim})"]

    def load(self, pointers: str, masks: Sequence[str]) -> str:
        """The text of a load, of zeros where a mask is false."""
        return f"tl.load({pointers}, mask={' & '.join(masks)}, other=0.0)" if masks else f"tl.load({pointers})"

    def dot(self, left: str, right: str, sums: str = "") -> str:
        """The text of a product of two tiles, added to `sums` if given."""
        precision = "" if self.dtype != "float32" else f', input_precision="{_precision()}"'
        return f"tl.dot({left}, {right}{', ' + sums if sums else ''}{precision})"

    def rounded(self, text: str) -> str:
        """The text of a tile of float32 in the dtype of the inputs."""
        return text if self.dtype == "float32" else f"{text}.to({ELEMENT[self.dtype]})"

    def lanes(self, letter: str, first: bool) -> str:
        """The text of the indices along a block, as a column or as a row."""
        return f"tl.arange(0, {letter.upper()}BLOCK){FIRST if first else SECOND}"

    # ---- functions of the program

    def _load(self, value: Val) -> Piece:
        name = value.attrs[0]
        if name in self.registers:
            return Piece(self.registers[name], "f", self.whole())
        return super()._load(value)

    def identity(self) -> bool:
        """Whether scores are not changed."""
        value = self.results[CHANGED]
        return value.op == "load" and value.attrs[0] == SCORE

    def keeps_all(self) -> bool:
        """Whether the mask keeps every score."""
        value = self.results[KEPT]
        return value.op == "constant" and bool(value.attrs[1])

    def tile(self, text: str) -> str:
        """A tile with the value of a text that may vary along fewer axes."""
        return f"tl.broadcast_to({text}, {self.shape(self.whole())})"

    def kept(self, partial: bool) -> list[str]:
        """The masks of the scores that are kept, in a block that is masked or kept as a whole."""
        letter = "x" if self.across else "y"  # of the loop
        masks = [f"{letter}mask"] if letter in self.masked else []
        if partial and not self.keeps_all():
            masks.append(self.as_kind(self.results[KEPT], "m"))
        return masks

    def changed(self, product: str, partial: bool) -> list[str]:
        """Writes the lines that compute `changed`, the changed scores in units of log(2) with -inf where they are
        masked, from a tile of products. Returns the masks."""
        scale = self.attention.scale
        if self.identity():
            text = f"{product} * {scale * LOG2_E!r}"
            if DIFFERENTIATED in self.results:
                self.lines.append(f"score = {product} * {scale!r}")
        else:
            self.lines.append(f"score = {product} * {scale!r}")
            text = ""
        self.registers[SCORE] = "score"
        if not text:
            text = f"{self.tile(self.as_kind(self.results[CHANGED], 'f'))} * {LOG2_E!r}"
        masks = self.kept(partial)
        self.lines.append(f"changed = {text}")
        if masks:
            self.lines.append(f'changed = tl.where({" & ".join(masks)}, changed, float("-inf"))')
        return masks

    # ---- loops over the blocks of a mask

    def visit(self, blocks: Blocks | None, at: str, length: int, block: int) -> tuple[list[str], list[str]]:
        """The lines before a loop over the listed blocks and its first line, and the last lines of its body. The loop
        takes `block` rows or columns at a time, from `start` on, of `length`. `at`: the row or column of blocks."""
        if blocks is None:
            return ["start = 0", f"for step in range(0, {ceil_div(length, block)}):"], [f"start = (step + 1) * {block}"]
        of_mask = self.attention.block_size[1 if self.across else 0]
        steps = ceil_div(min(of_mask, length), block)
        counts, list_of = self._listed(blocks.counts, (at,)), self._listed(blocks.places, (at, "0"))
        wide = f" * {of_mask}" if of_mask < length else ""
        before = [f"places = {list_of}", f"steps = tl.load({counts}) * {steps}"]
        first = f"start = tl.load(places){wide}" if wide else "start = 0"
        later = "step + 1" if steps == 1 else f"(step + 1) // {steps}"
        ahead = f"tl.load(places + {later}, mask=step + 1 < steps, other=0)"
        inner = "" if steps == 1 else f" + (step + 1) % {steps} * {block}"
        after = f"start = {ahead}{wide}{inner}" if wide else f"start = (step + 1) * {block}"
        return [*before, first, "for step in range(0, steps):"], [after]

    def _listed(self, operand: Buffer | View, rest: tuple[str, ...]) -> str:
        name, layout = self.operand(operand)
        indices = ("zb" if layout.size[0] > 1 else "0", "zh" if layout.size[1] > 1 else "0", *rest)
        terms = [f"{i} * {n}" for i, n in zip(indices, layout.stride) if i != "0"]
        return f"{name} + ({' + '.join([*terms, str(layout.offset)])})"

    def program_number(self, axis: int) -> str:
        """The text of this program's number along an axis of the grid."""
        return f"tl.program_id({axis}){'.to(tl.int64)' if self.wide else ''}"

    def start(self) -> str:
        """The text of the first row or column of a step of the loop."""
        return "(start + tl.zeros([], tl.int64))" if self.wide else "start"

    def block_number(self, index: str) -> str:
        """The text of the number of the mask's block that contains this row or column, for which the program works."""
        of_mask, length = self.attention.block_size[0 if self.across else 1], self.sizes[2 if self.across else 3]
        return f"{index} // {of_mask}" if of_mask < length else "0"

    def directions(self) -> list[tuple[Blocks | None, bool]]:
        """The lists of blocks that the kernel visits, and whether they are masked."""
        which = 0 if self.across else 1
        full = self.attention.full[which : which + 1]
        return [(self.attention.partial[which], True), *((blocks, False) for blocks in full)]

    def finished_over(self, kind: str, grid: tuple[int, ...], unaligned: Collection[str]) -> Draft:
        """The draft made from the lines written so far."""
        return replace(self.finished(kind, grid[0], unaligned), grid=grid)


def _precision() -> str:
    """How float32 is multiplied, as torch's setting says."""
    import torch

    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


class ForwardKernel(FlexKernelBase):
    """Computes output, logsumexp and maximum."""

    def __init__(self, group: FlexGroup, dtypes: Mapping[str, str], gpu: Gpu) -> None:
        super().__init__(group, dtypes, flex_configs.forward(shape_of(group), gpu, group.kernel.options), True)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel."""
        batch, heads, rows, columns = self.sizes
        tiles = ceil_div(rows, self.config.block("y"))
        self.lines += [
            f"zb = {self.program_number(1)} // {heads}", f"zh = {self.program_number(1)} % {heads}",
            f"tile = {tiles - 1} - {self.program_number(0)}",  # with a causal mask the last rows have most to do
            *self.place("y", "tile * YBLOCK"),
            f"head = zh // {self.together}",
        ]  # fmt: skip
        query = self.matrix(self.attention.query, "zh", "yindex", self.lanes("d", False))
        masks = [*(["ymask"] if "y" in self.masked else []), *self.dim_masks("d", self.lanes("d", False))]
        self.lines += [
            f"query = {self.load(query, masks)}",
            'top = tl.full([YBLOCK], float("-inf"), tl.float32)', "total = tl.zeros([YBLOCK], tl.float32)",
            "output = tl.zeros([YBLOCK, EBLOCK], tl.float32)",
        ]  # fmt: skip
        for blocks, partial in self.directions():
            self._loop_over(blocks, partial)
        self._results()
        return self.finished_over("flex_attention", (tiles, heads * batch), unaligned)

    def _loop_over(self, blocks: Blocks | None, partial: bool) -> None:
        block = self.config.block("x")
        number = self.block_number("(tile * YBLOCK)")
        before, after = self.visit(blocks, number, self.sizes[3], block)
        with self.loop() as body:
            body += self.place("x", self.start())
            over = ["xmask"] if "x" in self.masked else []
            turned = ["(xindex < xnumel)"] if over else []
            key = self.matrix(self.attention.key, "head", "xindex", self.lanes("d", True))
            column = f"{self.start()} + {self.lanes('x', True)}"
            value = self.matrix(self.attention.value, "head", column, self.lanes("e", False))
            rows = [f"({column} < xnumel)"] if over else []
            body += [
                f"key = {self.load(key, [*turned, *self.dim_masks('d', self.lanes('d', True))])}",
                f"product = {self.dot('query', 'key')}",
            ]
            masks = self.changed("product", partial)
            none = bool(masks) or not self.identity()  # a row may have no score yet
            body += [
                "largest = tl.maximum(top, tl.max(changed, 1))",
                f"base = {'tl.where(largest == float(' + repr('-inf') + '), 0.0, largest)' if none else 'largest'}",
                "weights = tl.exp2(changed - base[:, None])",
                "factor = tl.exp2(top - base)",
                "total = total * factor + tl.sum(weights, 1)",
                "output = output * factor[:, None]",
                f"value = {self.load(value, [*rows, *self.dim_masks('e', self.lanes('e', False))])}",
                f"output = {self.dot(self.rounded('weights'), 'value', 'output')}",
                "top = largest",
                *after,
            ]
        self.lines += [*before, *(f"    {line}" for line in body)]

    def _results(self) -> None:
        output, logsumexp, largest = self.attention.outputs
        self.lines.append("empty = total == 0.0")
        row = ["ymask"] if "y" in self.masked else []
        if output is not None:
            pointers = self.matrix(output, "zh", "yindex", self.lanes("e", False))
            masks = [*row, *self.dim_masks("e", self.lanes("e", False))]
            value = self.rounded("(output / tl.where(empty, 1.0, total)[:, None])")
            self.lines.append(f"tl.store({pointers}, {value}{', mask=' + ' & '.join(masks) if masks else ''})")
        texts = ('tl.where(empty, float("-inf"), top + tl.log2(total))', "top")
        for out, text in zip((logsumexp, largest), texts):
            if out is not None:
                mask = ", mask=ymask" if row else ""
                self.lines.append(f"tl.store({self.row_pointers(out, 'yindex')}, ({text})[:, None]{mask})")
