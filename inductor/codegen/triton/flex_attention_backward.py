"""Generates the Triton kernels of the backward of flex_attention.

One kernel holds rows of the query and loops over columns, for the gradient of the query; another holds columns and
loops over rows, for those of key and value. Both compute the weights again from the logsumexp of each row. `delta`, the
sum over a row of weight times gradient of weight, is computed before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...ir.buffer import Buffer, View
from ...ir.flex_attention import DIFFERENTIATED, GRADIENT, Blocks
from ...schedule.flex_attention import FlexGroup
from . import flex_configs
from .flex_attention import FlexKernelBase, shape_of
from .gpu import Gpu
from .heuristics import ceil_div
from .kernel import Draft


def backward_drafts(
    group: FlexGroup, dtypes: Mapping[str, str], gpu: Gpu, unaligned: Collection[str]
) -> list[Draft]:
    """The kernels of the gradients that are used."""
    of_query, of_key, of_value = group.kernel.outputs
    drafts = []
    if of_query is not None:
        drafts.append(_QueryGradient(group, dtypes, gpu).draft(unaligned))
    if of_key is not None or of_value is not None:
        drafts.append(_KeyGradient(group, dtypes, gpu).draft(unaligned))
    return drafts


class _Backward(FlexKernelBase):
    """What both kernels share."""

    def row_numbers(self) -> list[str]:
        """The lines that load logsumexp and delta of rows."""
        _, logsumexp, delta = self.attention.rows
        mask = ", mask=ymask, other=0.0" if "y" in self.masked else ""
        return [
            f"logsumexp = tl.load({self.row_pointers(logsumexp, 'yindex')}{mask})",
            'logsumexp = tl.where(logsumexp == float("-inf"), float("inf"), logsumexp)',  # no weight in an empty row
            f"delta = tl.load({self.row_pointers(delta, 'yindex')}{mask})",
        ]

    def differentiated(self, of_weights: str, masks: Sequence[str]) -> None:
        """Writes the lines that compute `differentiated`, the gradients of the scores, from those of the weights."""
        self.lines.append(f"gradients = weights * ({of_weights} - delta)")
        self.registers[GRADIENT] = "gradients"
        text = self.tile(self.as_kind(self.results[DIFFERENTIATED], "f"))
        self.lines.append(f"differentiated = {text}")
        if masks:
            self.lines.append(f"differentiated = tl.where({' & '.join(masks)}, differentiated, 0.0)")

    def store_rows(self, out: Buffer | View, head: str, letter: str, index: str, dims: str, text: str) -> None:
        """Writes a store of the block of a gradient that the program holds."""
        masks = [*([f"{letter}mask"] if letter in self.masked else []), *self.dim_masks(dims, self.lanes(dims, False))]
        pointers = self.matrix(out, head, index, self.lanes(dims, False))
        self.lines.append(f"tl.store({pointers}, {self.rounded(text)}{', mask=' + ' & '.join(masks) if masks else ''})")


class _QueryGradient(_Backward):
    """Computes the gradient of the query."""

    def __init__(self, group: FlexGroup, dtypes: Mapping[str, str], gpu: Gpu) -> None:
        super().__init__(group, dtypes, flex_configs.query_gradient(shape_of(group), gpu, group.kernel.options), True)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel."""
        batch, heads, rows, _ = self.sizes
        tiles = ceil_div(rows, self.config.block("y"))
        self.lines += [
            f"zb = {self.program_number(1)} // {heads}", f"zh = {self.program_number(1)} % {heads}",
            f"tile = {tiles - 1} - {self.program_number(0)}",
            *self.place("y", "tile * YBLOCK"),
            f"head = zh // {self.together}",
        ]  # fmt: skip
        row = ["ymask"] if "y" in self.masked else []
        wide, of_value = self.lanes("d", False), self.lanes("e", False)
        query = self.matrix(self.attention.query, "zh", "yindex", wide)
        gradient = self.matrix(self.attention.rows[0], "zh", "yindex", of_value)
        self.lines += [
            f"query = {self.load(query, [*row, *self.dim_masks('d', wide)])}",
            f"gradient = {self.load(gradient, [*row, *self.dim_masks('e', of_value)])}",
            *self.row_numbers(),
            "of_query = tl.zeros([YBLOCK, DBLOCK], tl.float32)",
        ]
        for blocks, partial in self.directions():
            self._loop_over(blocks, partial)
        out = self.attention.outputs[0]
        assert out is not None
        self.store_rows(out, "zh", "y", "yindex", "d", f"(of_query * {self.attention.scale!r})")
        return self.finished_over("flex_attention_query_gradient", (tiles, heads * batch), unaligned)

    def _loop_over(self, blocks: Blocks | None, partial: bool) -> None:
        number = self.block_number("(tile * YBLOCK)")
        before, after = self.visit(blocks, number, self.sizes[3], self.config.block("x"))
        with self.loop() as body:
            body += self.place("x", self.start())
            over = ["(xindex < xnumel)"] if "x" in self.masked else []
            down, of_value = self.lanes("d", True), self.lanes("e", True)
            key = self.matrix(self.attention.key, "head", "xindex", down)
            value = self.matrix(self.attention.value, "head", "xindex", of_value)
            body += [
                f"key = {self.load(key, [*over, *self.dim_masks('d', down)])}",
                f"product = {self.dot('query', 'key')}",
            ]
            masks = self.changed("product", partial)
            body += [
                "weights = tl.exp2(changed - logsumexp)",
                f"value = {self.load(value, [*over, *self.dim_masks('e', of_value)])}",
                f"of_weights = {self.dot('gradient', 'value')}",
            ]
            self.differentiated("of_weights", masks)
            step = self.dot(self.rounded("differentiated"), "tl.trans(key)", "of_query")
            body += [f"of_query = {step}", *after]
        self.lines += [*before, *(f"    {line}" for line in body)]


class _KeyGradient(_Backward):
    """Computes the gradients of key and value."""

    def __init__(self, group: FlexGroup, dtypes: Mapping[str, str], gpu: Gpu) -> None:
        super().__init__(group, dtypes, flex_configs.key_gradient(shape_of(group), gpu, group.kernel.options), False)

    def draft(self, unaligned: Collection[str]) -> Draft:
        """The kernel. A program adds up the gradients of all heads of the query that share a head of the key."""
        batch, heads, _, columns = self.sizes
        tiles, of_key = ceil_div(columns, self.config.block("x")), heads // self.together
        self.lines += [
            f"zb = {self.program_number(1)} // {of_key}", f"head = {self.program_number(1)} % {of_key}",
            f"tile = {self.program_number(0)}",
            *self.place("x", "tile * XBLOCK"),
        ]  # fmt: skip
        over = ["xmask"] if "x" in self.masked else []
        for name, dims, operand in (("key", "d", self.attention.key), ("value", "e", self.attention.value)):
            pointers = self.matrix(operand, "head", "xindex", self.lanes(dims, False))
            masks = [*over, *self.dim_masks(dims, self.lanes(dims, False))]
            zeros = f"tl.zeros([XBLOCK, {dims.upper()}BLOCK], tl.float32)"
            self.lines += [f"{name} = {self.load(pointers, masks)}", f"of_{name} = {zeros}"]
        header = self.lines
        self.lines = self.row_lines = []
        self.lines.append(f"zh = head * {self.together} + shared" if self.together > 1 else "zh = head")
        for blocks, partial in self.directions():
            self._loop_over(blocks, partial)
        if self.together > 1:
            header.append(f"for shared in range({self.together}):")
        header += [f"    {line}" if self.together > 1 else line for line in self.lines]
        self.lines = self.row_lines = header
        _, of_key_out, of_value_out = self.attention.outputs
        if of_key_out is not None:
            self.store_rows(of_key_out, "head", "x", "xindex", "d", f"(of_key * {self.attention.scale!r})")
        if of_value_out is not None:
            self.store_rows(of_value_out, "head", "x", "xindex", "e", "of_value")
        return self.finished_over("flex_attention_key_gradient", (tiles, of_key * batch), unaligned)

    def _loop_over(self, blocks: Blocks | None, partial: bool) -> None:
        number = self.block_number("(tile * XBLOCK)")
        before, after = self.visit(blocks, number, self.sizes[2], self.config.block("y"))
        with self.loop() as body:
            body += self.place("y", self.start())
            row = f"({self.start()} + {self.lanes('y', True)})"
            over = [f"({row} < ynumel)"] if "y" in self.masked else []
            wide, of_value = self.lanes("d", False), self.lanes("e", False)
            query = self.matrix(self.attention.query, "zh", row, wide)
            gradient = self.matrix(self.attention.rows[0], "zh", row, of_value)
            body += [
                f"query = {self.load(query, [*over, *self.dim_masks('d', wide)])}",
                f"product = {self.dot('key', 'tl.trans(query)')}",
            ]
            masks = self.changed("product", partial)
            body += [
                *self.row_numbers(),
                "weights = tl.exp2(changed - logsumexp)",
                f"gradient = {self.load(gradient, [*over, *self.dim_masks('e', of_value)])}",
                f"of_value = {self.dot(self.rounded('weights'), 'gradient', 'of_value')}",
                f"of_weights = {self.dot('value', 'tl.trans(gradient)')}",
            ]
            self.differentiated("of_weights", masks)
            body += [f"of_key = {self.dot(self.rounded('differentiated'), 'query', 'of_key')}", *after]
        self.lines += [*before, *(f"    {line}" for line in body)]
