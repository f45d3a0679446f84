"""Generates the Triton kernels of attention with one row of queries per head.

Each program reads a part of the keys and values of a head. Each row of its block of keys has its own running maximum,
sum of weights and sum of weighted values (online softmax), and the rows are combined at the end. If several programs
share a head, they write these to scratch memory, and the last one of them, as a counter says, combines them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...dtypes import dtype_name
from ...ir.buffer import View
from ...runtime import plan_spec as spec
from ...schedule.row_attention import Operand, RowAttention, sizes_of
from ..values import COUNTERS
from .gpu import Gpu
from .heuristics import Config, ceil_div, power
from .kernel import Draft
from .ops import ELEMENT, POINTER
from .work import Scratch

LOG2_E = math.log2(math.e)
TILE = 4096  # elements of a block of keys or values: their sums in float32 take 64 registers of each of 64 threads
WARPS = 2
WAVES = 4  # programs per multiprocessor, if there are enough keys
MAX_ROWS, MAX_PARTS = 128, 64


@dataclass
class _Lines:
    """The lines of a kernel and the buffers that it takes."""

    dtypes: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    bufs: list[str] = field(default_factory=list)

    def pointer(self, name: str) -> str:
        """The name of the argument that points to a buffer."""
        if name not in self.bufs:
            self.bufs.append(name)
        return f"b{self.bufs.index(name)}"

    def place(self, operand: Operand, head: str, row: str, column: str) -> str:
        """The text of pointers to elements of an operand with four dimensions, of batch `zb`. Dimensions of size 1 are
        read at 0."""
        name, layout = (operand.buffer if isinstance(operand, View) else operand).name, operand.layout
        indices = zip(("zb", head, row, column), layout.size, layout.stride)
        terms = [index if n == 1 else f"{index} * {n}" for index, size, n in indices if size > 1 and n != 0]
        return f"{self.pointer(name)} + ({' + '.join([*terms, str(layout.offset)])})"

    def draft(
        self, kind: str, programs: int, warps: int, constants: dict[str, int], unaligned: Collection[str]
    ) -> Draft:
        """The kernel."""
        signature = tuple(POINTER[self.dtypes[name]] for name in self.bufs)
        aligned = tuple(i for i, name in enumerate(self.bufs) if name not in unaligned)
        return Draft(kind, tuple(self.lines), tuple(self.bufs), dict(constants), (programs,),
                     Config((), warps), signature, aligned, (), frozenset(("nan_max",)))  # fmt: skip


def row_attention_drafts(
    group: RowAttention, dtypes: Mapping[str, str], gpu: Gpu, unaligned: Collection[str] = ()
) -> tuple[list[Draft], list[Scratch]]:
    """The kernels of a call in launch order, and the scratch memory that they share."""
    sizes = sizes_of(group)
    heads, columns = sizes["B"] * sizes["H"], sizes["N"]
    lanes = {"DBLOCK": power(sizes["D"]), "EBLOCK": power(sizes["E"])}
    rows = min(max(TILE // max(lanes.values()), 16), MAX_ROWS, power(columns))
    most = min(MAX_PARTS, ceil_div(columns, rows), WAVES * gpu.multiprocessors // heads)
    parts = 1 << max(most, 1).bit_length() - 1 if heads <= spec.COUNTERS else 1
    span = ceil_div(ceil_div(columns, rows), parts) * rows
    sums: list[Scratch] = []
    if parts > 1:
        name = f"%{group.result.name}"
        sums.append(Scratch(f"{name}.sums", "float32", heads * parts * sizes["E"]))
        sums += [Scratch(f"{name}.{what}", "float32", heads * parts) for what in ("tops", "totals")]
    known = {**dtypes, COUNTERS: "int32", **{s.name: s.dtype for s in sums}}
    partial = _partial(group, known, sizes, parts, span, sums)
    constants = {"NBLOCK": rows, **lanes}
    if sums:
        _last(partial, group, sizes, parts, sums)
        constants["PBLOCK"] = parts
    return [partial.draft("row_attention", heads * parts, WARPS, constants, unaligned)], sums


def _long(group: RowAttention) -> str:
    """What makes the number of a program 64 bits wide, if indices need it."""
    operands = (group.query, group.key, group.value, group.result, *([] if group.mask is None else [group.mask]))
    return ".to(tl.int64)" if any(operand.layout.extent >= 2**31 for operand in operands) else ""


def _partial(
    group: RowAttention, dtypes: Mapping[str, str], sizes: Mapping[str, int], parts: int, span: int, sums: list[Scratch]
) -> _Lines:
    """The kernel that reads keys and values. Scores are in units of log(2)."""
    out, columns = _Lines(dtypes), sizes["N"]
    whole = columns % span == 0
    d_mask = [] if power(sizes["D"]) == sizes["D"] else [f"(d < {sizes['D']})"]
    e_mask = _e_mask(sizes)
    rows = [] if whole else ["inside[:, None]"]
    wide, long = (" * tl.full([], 1, tl.int64)" if _long(group) else ""), _long(group)
    out.lines += [
        f"pid = tl.program_id(0){long}", f"part = pid % {parts}", f"zh = pid // {parts} % {sizes['H']}",
        f"zb = pid // {parts * sizes['H']}", f"head = zh // {sizes['H'] // sizes['K']}",
        "d = tl.arange(0, DBLOCK)", "e = tl.arange(0, EBLOCK)",
        f"query = {_load(out.place(group.query, 'zh', '0', 'd'), d_mask)}.to(tl.float32) * {group.scale * LOG2_E!r}",
        'top = tl.full([NBLOCK], float("-inf"), tl.float32)', "total = tl.zeros([NBLOCK], tl.float32)",
        "output = tl.zeros([NBLOCK, EBLOCK], tl.float32)",
        f"for step in range(0, {span}, NBLOCK):",
    ]  # fmt: skip
    key = _load(out.place(group.key, "head", "n[:, None]", "d[None, :]"), [*rows, *(f"{m}[None, :]" for m in d_mask)])
    place = out.place(group.value, "head", "n[:, None]", "e[None, :]")
    value = _load(place, [*rows, *(f"{m}[None, :]" for m in e_mask)])
    body = [f"n = part * {span} + step + tl.arange(0, NBLOCK){wide}"]
    body += [] if whole else [f"inside = n < {columns}"]
    body += [f"key = {key}", f"value = {value}", "score = tl.sum(key.to(tl.float32) * query[None, :], 1)"]
    if group.mask is not None:
        added = _load(out.place(group.mask, "zh", "0", "n"), [] if whole else ["inside"])
        body.append(f"score += {added}.to(tl.float32) * {LOG2_E!r}")
    body += [] if whole else ['score = tl.where(inside, score, float("-inf"))']
    body += [
        "largest = nan_max(top, score)",
        'base = tl.where(largest == float("-inf"), 0.0, largest)',  # there may be no score yet
        "weight = tl.exp2(score - base)", "factor = tl.exp2(top - base)", "total = total * factor + weight",
        "output = output * factor[:, None] + weight[:, None] * value.to(tl.float32)", "top = largest",
    ]  # fmt: skip
    out.lines += [*(f"    {line}" for line in body), *_combined()]
    if sums:
        places = [f"{out.pointer(sums[0].name)} + pid * {sizes['E']} + e"]
        places += [f"{out.pointer(s.name)} + pid" for s in sums[1:]]
        out.lines += [
            f"tl.store({places[0]}, output{_masked(e_mask)})", f"tl.store({places[1]}, top)",
            f"tl.store({places[2]}, total)",
        ]  # fmt: skip
    else:
        out.lines += _finish(out, group, e_mask)
    return out


def _last(out: _Lines, group: RowAttention, sizes: Mapping[str, int], parts: int, sums: list[Scratch]) -> None:
    """Writes what the last program of a head does once all have stored their parts: it combines them, always in the
    same order. As in `kernel.py`, the increment orders the memory accesses, and the counter is 0 afterwards."""
    counter, names = f"{out.pointer(COUNTERS)} + pid // {parts}", [out.pointer(s.name) for s in sums]
    masks, cached = [f"{m}[None, :]" for m in _e_mask(sizes)], ', cache_modifier=".cg"'
    rows = f"{names[0]} + each[:, None] * {sizes['E']} + e[None, :]"
    lines = [
        f"tl.store({counter}, 0)", f"each = pid // {parts} * {parts} + tl.arange(0, PBLOCK)",
        f"all_top = tl.load({names[1]} + each{cached})", f"all_total = tl.load({names[2]} + each{cached})",
        f"all_output = {_load(rows, masks, cached)}",
        *_combined("all_"), *_finish(out, group, _e_mask(sizes), "all_"),
    ]  # fmt: skip
    out.lines += ["tl.debug_barrier()", f'if tl.atomic_add({counter}, 1, sem="acq_rel") == {parts - 1}:']
    out.lines += [f"    {line}" for line in lines]


def _e_mask(sizes: Mapping[str, int]) -> list[str]:
    return [] if power(sizes["E"]) == sizes["E"] else [f"(e < {sizes['E']})"]


def _combined(p: str = "") -> list[str]:
    """The lines that combine rows, each with a maximum, a sum of weights and a sum of weighted values. `p`: what the
    names of these begin with."""
    return [
        f"{p}largest = tl.reduce({p}top, 0, nan_max)",
        f"{p}base = tl.where({p}largest == float('-inf'), 0.0, {p}largest)",
        f"{p}factor = tl.exp2({p}top - {p}base)",
        f"{p}total = tl.sum({p}total * {p}factor, 0)",
        f"{p}output = tl.sum({p}output * {p}factor[:, None], 0)",
        f"{p}top = {p}largest",
    ]


def _finish(out: _Lines, group: RowAttention, e_mask: list[str], p: str = "") -> list[str]:
    """The lines that divide by the sum of weights and store the result, zeros where every score is -inf, as ATen's.
    `p` as in `_combined`."""
    dtype = dtype_name(group.result.dtype)
    rounded = f"{p}output" if dtype == "float32" else f"{p}output.to({ELEMENT[dtype]})"
    return [
        f"{p}output = {p}output / tl.where({p}total == 0.0, 1.0, {p}total)",
        f"tl.store({out.place(group.result, 'zh', '0', 'e')}, {rounded}{_masked(e_mask)})",
    ]


def _load(pointers: str, masks: list[str], options: str = "") -> str:
    mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    return f"tl.load({pointers}{mask}{options})"


def _masked(masks: list[str]) -> str:
    return f", mask={' & '.join(masks)}" if masks else ""
