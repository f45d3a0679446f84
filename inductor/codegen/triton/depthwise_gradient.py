"""Generates the Triton kernels of the gradient of a depthwise convolution's weight (`schedule/depthwise_gradient.py`).

A lane is a column of pixels of one image. Programs take some lanes and some channels and go down the rows; they have a
sum for each tap. Their sums go to scratch memory, and a second kernel adds them up, always in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...dtypes import dtype_name
from ...ir.buffer import View
from ...schedule.depthwise_gradient import DepthwiseGradient, Operand
from .gpu import Gpu
from .heuristics import Config, ceil_div, power
from .kernel import Draft
from .ops import ELEMENT, POINTER
from .work import Scratch

WARPS = 4
EACH, EACH_OF_MANY, MANY_TAPS = 8, 4, 12  # elements of a thread, which has a sum for each tap of each of them
CHANNELS = (64, 32, 16)  # of a program
WASTE = 1.15  # share of channels that a program may take beyond the last one, plus 1
WAVES, WAVES_OF_MANY = 4, 3  # programs per multiprocessor: as many as their registers allow
UNITS = 4  # segments of lanes for each program, if rows suffice: then all programs take about as long
LEAST_ROWS = 1  # of a segment, times the height of a filter: ahead of each segment one row less than that is read
JOINED, JOINED_PARTS, JOIN_WARPS = 16, 256, 8  # elements of the result and sums of each for a join


@dataclass(frozen=True)
class _Sizes:
    """Sizes of the problem, and how it is divided: into blocks of `block` channels, `lanes` blocks of `lane` lanes,
    `segments` segments of `rows` rows, and `parts` programs for each block of channels."""

    images: int
    channels: int
    height: int
    width: int
    in_height: int
    in_width: int
    taps: tuple[int, int]
    block: int
    lane: int
    rows: int
    parts: int

    @property
    def blocks(self) -> int:
        return ceil_div(self.channels, self.block)

    @property
    def lanes(self) -> int:
        return ceil_div(self.images * self.width, self.lane)

    @property
    def units(self) -> int:
        return self.lanes * ceil_div(self.in_height, self.rows)

    @property
    def results(self) -> int:
        return self.taps[0] * self.taps[1] * self.channels


def _sizes(group: DepthwiseGradient, gpu: Gpu) -> _Sizes:
    (images, channels, height, width), (_, _, in_height, in_width) = group.grad.layout.size, group.x.layout.size
    taps = group.result.layout.size[2:]
    fitting = [n for n in CHANNELS if ceil_div(channels, n) * n <= WASTE * channels]
    block = fitting[0] if fitting else CHANNELS[-1]
    each, waves = (EACH_OF_MANY, WAVES_OF_MANY) if taps[0] * taps[1] > MANY_TAPS else (EACH, WAVES)
    lane = WARPS * 32 * each // block
    blocks, lanes = ceil_div(channels, block), ceil_div(images * width, lane)
    wanted = max(1, ceil_div(waves * gpu.multiprocessors, blocks))
    segments = max(1, min(ceil_div(UNITS * wanted, lanes), in_height // (LEAST_ROWS * taps[0])))
    rows = ceil_div(in_height, segments)
    units = lanes * ceil_div(in_height, rows)
    parts = ceil_div(units, ceil_div(units, wanted))
    return _Sizes(images, channels, height, width, in_height, in_width, (taps[0], taps[1]), block, lane, rows, parts)


def depthwise_gradient_drafts(
    group: DepthwiseGradient, dtypes: Mapping[str, str], gpu: Gpu, unaligned: Collection[str] = ()
) -> tuple[list[Draft], list[Scratch]]:
    """The two kernels in launch order, and the scratch memory that they share."""
    sizes = _sizes(group, gpu)
    sums = Scratch(f"%{group.result.name}.sums", "float32", sizes.parts * sizes.results)
    known = {**dtypes, sums.name: sums.dtype}
    grad, x = _name(group.grad), _name(group.x)
    first = _draft("depthwise_gradient", _partial(group, sizes), [grad, x, sums.name], known, unaligned,
                   sizes.blocks * sizes.parts, WARPS, {"XBLOCK": sizes.block, "LBLOCK": sizes.lane})  # fmt: skip
    second = _draft("depthwise_gradient_join", _joined(group, sizes), [sums.name, group.result.name], known, unaligned,
                    ceil_div(sizes.results, JOINED), JOIN_WARPS, {"KBLOCK": JOINED, "PBLOCK": min(
                        JOINED_PARTS, power(sizes.parts))})  # fmt: skip
    return [first, second], [sums]


def _name(operand: Operand) -> str:
    return (operand.buffer if isinstance(operand, View) else operand).name


def _draft(
    kind: str, lines: list[str], bufs: list[str], dtypes: Mapping[str, str], unaligned: Collection[str], programs: int,
    warps: int, constants: dict[str, int],
) -> Draft:
    taken = list(dict.fromkeys(bufs))
    names = {f"p{k}": f"b{taken.index(buf)}" for k, buf in enumerate(bufs)}
    head = [f"{name} = {argument}" for name, argument in names.items()]
    signature = tuple(POINTER[dtypes[name]] for name in taken)
    aligned = tuple(i for i, name in enumerate(taken) if name not in unaligned)
    return Draft(kind, (*head, *lines), tuple(taken), constants, (programs,), Config((), warps), signature, aligned, (),
                 frozenset())  # fmt: skip


def _partial(group: DepthwiseGradient, sizes: _Sizes) -> list[str]:
    """The kernel that reads the gradient (p0) and the input (p1), and stores sums (p2). `h0`, `h1` ...: the rows of the
    gradient that meet a row of the input at the first, second ... row of taps."""
    (up, left), (height, width) = group.padding, sizes.taps
    across, in_across = sizes.width * sizes.channels, sizes.in_width * sizes.channels
    offsets = group.grad.layout.offset, group.x.layout.offset

    def row(place: str) -> str:
        """The text of a row of the gradient."""
        valid = f"inside & ({place} >= 0) & ({place} < {sizes.height})"
        return f"tl.load(g + ({place}) * {across}, mask={valid}, other=0.0).to(tl.float32)"

    unit = [
        f"lane = unit % {sizes.lanes} * LBLOCK + tl.arange(0, LBLOCK)[:, None]",
        f"image = lane // {sizes.width}", f"column = lane % {sizes.width} - {left}",
        f"inside = (lane < {sizes.images * sizes.width}) & (channel < {sizes.channels})",
        f"begin = unit // {sizes.lanes} * {sizes.rows}",
        f"end = tl.minimum(begin + {sizes.rows}, {sizes.in_height})",
        f"g = p0 + (image * {sizes.height * across} + (column + {left}) * {sizes.channels} + channel + {offsets[0]})",
        f"x = p1 + (image * {sizes.in_height * in_across} + column * {sizes.channels} + channel + {offsets[1]})",
        *(f"m{j} = inside & (column + {j} >= 0) & (column + {j} < {sizes.in_width})" for j in range(width)),
        *(f"h{i} = {row(f'begin + {up - i}')}" for i in range(1, height)),
        "for y in range(begin, end):",
    ]  # fmt: skip
    body = [f"h0 = {row(f'y + {up}')}"]
    for j in range(width):
        place = f"x + (y * {in_across} + {j * sizes.channels})"
        body.append(f"t = tl.load({place}, mask=m{j}, other=0.0).to(tl.float32)")
        body += [f"a{i * width + j} += h{i} * t" for i in range(height)]
    body += [f"h{i} = h{i - 1}" for i in range(height - 1, 0, -1)]
    return [
        "pid = tl.program_id(0)",
        f"channel = pid % {sizes.blocks} * XBLOCK + tl.arange(0, XBLOCK)[None, :]", f"part = pid // {sizes.blocks}",
        *(f"a{k} = tl.zeros([LBLOCK, XBLOCK], tl.float32)" for k in range(height * width)),
        f"for unit in range(part, {sizes.units}, {sizes.parts}):",
        *(f"    {line}" for line in [*unit, *(f"    {line}" for line in body)]),
        *(f"tl.store(p2 + ((part * {height * width} + {k}) * {sizes.channels} + channel), "
          f"tl.sum(a{k}, 0, keep_dims=True), mask=channel < {sizes.channels})" for k in range(height * width)),
    ]  # fmt: skip


def _joined(group: DepthwiseGradient, sizes: _Sizes) -> list[str]:
    """The kernel that adds up the sums (p0) of all parts for the result (p1)."""
    taps, dtype, offset = sizes.taps[0] * sizes.taps[1], dtype_name(group.result.dtype), group.result.layout.offset
    rounded = "total" if dtype == "float32" else f"total.to({ELEMENT[dtype]})"
    return [
        "k = tl.program_id(0) * KBLOCK + tl.arange(0, KBLOCK)[None, :]",
        "totals = tl.zeros([PBLOCK, KBLOCK], tl.float32)",
        f"for start in range(0, {sizes.parts}, PBLOCK):",
        "    part = start + tl.arange(0, PBLOCK)[:, None]",
        f"    mask = (part < {sizes.parts}) & (k < {sizes.results})",
        f"    totals += tl.load(p0 + (part * {sizes.results} + k), mask=mask, other=0.0)",
        "total = tl.sum(totals, 0, keep_dims=True)",
        f"place = k % {sizes.channels} * {taps} + k // {sizes.channels} + {offset}",
        f"tl.store(p1 + place, {rounded}, mask=k < {sizes.results})",
    ]
