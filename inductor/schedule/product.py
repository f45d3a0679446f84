"""Matrix products that a generated kernel can compute instead of ATen, with the loops around them.

`products` finds them in a schedule: for each call of `mm`, `addmm`, `bmm`, `baddbmm`, `_scaled_mm` (of 8-bit floats),
`_grouped_mm` or `convolution`, the call, the group of loops that reads its result element by element (the *epilogue*),
and the groups that compute its factors, such as the dequantization of a weight or a conversion of the rows (the
*prologues*), where there are such groups. A `Product` in the place of all of them makes code generation write a kernel
for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..ir.buffer import ComputedBuffer, ExternKernel, Layout, View
from ..ir.nodes import GraphIR
from . import convolution
from .convolution import Convolution
from .index import Affine
from .node import Group
from .operator_group import OperatorGroup
from .scheduler import extern_reads, output_names

aten = torch.ops.aten
# The operators with a template: the position of the first factor.
FACTORS = {
    aten.mm.default: 0, aten.bmm.default: 0,
    aten.addmm.default: 1, aten.baddbmm.default: 1, aten._addmm_activation.default: 1, convolution.TARGET: 0,
    aten._scaled_mm.default: 0, aten._grouped_mm.default: 0,
}  # fmt: skip
SCALED, GROUPED = aten._scaled_mm.default, aten._grouped_mm.default
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SCALED_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
LEAST_SCALED_DEPTH = 32  # the shortest sum of 8-bit floats that tensor cores take
SCALED_TERMS = 128  # of 8-bit floats that are added up with fewer bits, unless all may be
MAX_PROLOGUE_OPS = 60  # of a group that is computed again for each tile that needs its elements
FEW_ROWS = 16  # up to here a product is bound by reading the second factor, and each element is read about once
Variables = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ProductConfig:
    """How a kernel computes a product.

    kind: "dot", with tensor cores, a tile of rows by columns per program; "descriptors": likewise, but the copy engine
    brings the factors, and each of `programs` programs computes several tiles; "vector": one row per program, for
    products that are bound by reading the second factor. `rows`, `columns`, `depth`: sizes of the blocks of the result
    and of the steps along the summed dimension. `split`: into how many parts the sum is divided; a second kernel adds
    them. `apart`: kernels of their own compute the factors, where there are prologues.
    """

    kind: str
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    split: int = 1
    programs: int = 0
    apart: bool = False


@dataclass(frozen=True)
class Sizes:
    """A batch of products of a [rows, depth] and a [depth, columns] matrix."""

    batch: int
    rows: int
    depth: int
    columns: int


@dataclass(frozen=True, eq=False)
class Prologue:
    """The group that computes the first (`position` 0) or the second factor (1), which is not in memory then.

    `batch`, `first` and `second` are the variables of the group that make up each dimension of the factor, outermost
    first: of the first factor those of the rows and of the summed dimension, of the second one those of the summed
    dimension and of the columns. `buffer` is the name of the factor's buffer.
    """

    group: Group
    position: int
    batch: Variables
    first: Variables
    second: Variables
    buffer: str


@dataclass(eq=False)
class Product(OperatorGroup):
    """A product with its epilogue, as one unit of the schedule; `outer` is the iteration space of the result.

    `batch`, `rows` and `columns` are the variables of the epilogue that make up each dimension of the result, outermost
    first. `stored` contains the result's name if it must reach memory. Without an epilogue there are no members.
    """

    batch: Variables = ()
    rows: Variables = ()
    columns: Variables = ()
    config: ProductConfig | None = None
    epilogue: Group | None = field(default=None, repr=False)
    prologues: tuple[Prologue, ...] = ()

    def prologue(self, position: int) -> Prologue | None:
        """The group that computes the first (0) or the second factor (1), if one does."""
        return next((found for found in self.prologues if found.position == position), None)

    @property
    def factors(self) -> tuple[Layout, Layout]:
        """The layouts of the two factors."""
        first = FACTORS[self.kernel.target]
        left, right = self.kernel.args[first : first + 2]
        return left.layout, right.layout

    @property
    def convolution(self) -> Convolution | None:
        """The convolution that is computed as this product, if it is one."""
        return Convolution.of(self.kernel) if self.kernel.target == convolution.TARGET else None

    @property
    def bias(self) -> Any:
        """The operand that is added to the sums; None without one."""
        if self.kernel.target == convolution.TARGET:
            return self.kernel.args[2]
        if self.kernel.target == SCALED:
            return _argument(self.kernel, 4, "bias")
        return self.kernel.args[0] if FACTORS[self.kernel.target] == 1 else None

    @property
    def ends(self) -> Any:
        """The operand with the row behind the last one of each group, for a grouped product; None for others."""
        return self.kernel.args[2] if self.kernel.target == GROUPED else None

    @property
    def scales(self) -> tuple[Any, ...]:
        """The operands with which the sums are multiplied: of the rows and of the columns, or of all; () for none."""
        return self.kernel.args[2:4] if self.kernel.target == SCALED else ()

    @property
    def imprecise(self) -> int | None:
        """For how many terms the tensor cores may add up 8-bit floats with fewer bits than float32 has; None: all."""
        slow = self.kernel.target == SCALED and not _argument(self.kernel, 7, "use_fast_accum")
        return SCALED_TERMS if slow else None

    @property
    def result_strides(self) -> tuple[int, int, int]:
        """The strides of the result along the batch, the rows and the columns."""
        if self.kernel.target == convolution.TARGET:
            return 0, self.sizes.columns, 1
        *batch, rows, columns = self.result.layout.stride
        return batch[0] if batch else 0, rows, columns

    @property
    def sizes(self) -> Sizes:
        """The sizes of the product."""
        if self.kernel.target == convolution.TARGET:
            return Sizes(1, *Convolution.of(self.kernel).sizes)
        left, right = self.factors
        return Sizes(math.prod(left.size[:-2]), left.size[-2], left.size[-1], right.size[-1])

    def read_names(self) -> set[str]:
        """Buffers that the product or its epilogue reads."""
        names = (super().read_names() - {self.result.name}) | set(extern_reads(self.kernel))
        for prologue in self.prologues:
            names = names - {prologue.buffer} | prologue.group.read_names()
        return names

    def written_names(self) -> set[str]:
        """Buffers that the product or its epilogue writes."""
        return super().written_names() | {self.result.name}

    def configured(self, config: ProductConfig) -> Product:
        """The same product, computed as `config` says."""
        return replace(self, config=config, prologues=() if config.apart else self.prologues)


def _argument(kernel: ExternKernel, position: int, name: str) -> Any:
    return kernel.args[position] if len(kernel.args) > position else kernel.kwargs.get(name)


def _scaled(kernel: ExternKernel, layouts: Sequence[Layout]) -> bool:
    """Whether there is a template for this call of `_scaled_mm`: with one scale each, or one per row and column."""
    left, right, *scales, result = layouts[0], layouts[1], layouts[2], layouts[3], layouts[-1]
    if any(at.dtype not in SCALED_DTYPES or len(at.size) != 2 for at in (left, right)) or result.dtype not in DTYPES:
        return False
    if _argument(kernel, 5, "scale_result") is not None or left.size[1] < LEAST_SCALED_DEPTH:
        return False
    whole = all(at.numel == 1 for at in scales)
    each = [at.size for at in scales] == [(left.size[0], 1), (1, right.size[1])]
    bias = _argument(kernel, 4, "bias")
    floats = all(at.dtype == torch.float32 for at in scales) and (bias is None or bias.layout.dtype in DTYPES)
    return floats and (whole or each)


def _grouped(kernel: ExternKernel, layouts: Sequence[Layout]) -> bool:
    """Whether there is a template for this call of `_grouped_mm`: of groups of rows, each with a matrix of its own."""
    if _argument(kernel, 2, "offs") is None or len(layouts) != 4 or len(kernel.args) < 3:
        return False  # without ends of groups it is a batch of products; the fourth layout is the result's
    left, right, ends, result = layouts
    one = left.dtype == right.dtype == result.dtype and left.dtype in DTYPES
    return one and [len(at.size) for at in layouts] == [2, 3, 1, 2] and ends.dtype == torch.int32


def is_eligible(kernel: ExternKernel) -> bool:
    """Whether there is a template for this call: static sizes, no empty tensor, one dtype, on a GPU."""
    if kernel.target not in FACTORS or len(kernel.outputs) != 1 or kernel.outputs[0] is None:
        return False
    operands = list(kernel.operands())
    layouts = [x.layout for x in (*operands, kernel.outputs[0])]
    numbers = [n for at in layouts for n in (*at.size, *at.stride, at.offset)]
    scales = kernel.kwargs.values()
    if any(type(n) is not int for n in numbers):
        return False
    if kernel.target in (SCALED, GROUPED):
        fits = all(at.device.type == "cuda" and at.numel for at in layouts)
        return fits and (_scaled if kernel.target == SCALED else _grouped)(kernel, layouts)
    if any(type(v) not in (int, float, bool) for v in scales):
        return False
    (dtype, *others) = {at.dtype for at in layouts}
    on_gpu = all(at.device.type == "cuda" for at in layouts)
    if not on_gpu or others or dtype not in DTYPES or not all(at.numel for at in layouts):
        return False
    return kernel.target != convolution.TARGET or convolution.is_eligible(kernel)


def alone(kernel: ExternKernel) -> Product:
    """The product without an epilogue."""
    layout = kernel.outputs[0].layout  # type: ignore[union-attr]
    dimensions = [((f"o{d}", size),) for d, size in enumerate(layout.size)]
    batch, rows, columns = _roles(kernel, dimensions)
    return Product(
        list(layout.size), [], [], stored={kernel.outputs[0].name}, kernel=kernel,  # type: ignore[union-attr]
        batch=batch, rows=rows, columns=columns,
    )  # fmt: skip


def _roles(kernel: ExternKernel, dimensions: Sequence[Variables]) -> tuple[Variables, Variables, Variables]:
    """The variables of batch, rows and columns of a product, from those of each dimension of its result."""
    if kernel.target == convolution.TARGET:
        n, filters, down, across = dimensions
        return (), (*n, *down, *across), filters
    *batch, rows, columns = dimensions
    return batch[0] if batch else (), rows, columns


def with_epilogue(kernel: ExternKernel, group: Group, keep: bool) -> Product | None:
    """The product with `group` as its epilogue; None if the group does not read each element of the result once, at the
    point of its iteration space that belongs to the element. `keep`: the result must reach memory as well."""
    out = kernel.outputs[0]
    assert out is not None
    if group.reduces or not group.fusible or group.by_value or any(type(n) is not int for n in group.outer):
        return None
    if group.written_names() & set(extern_reads(kernel)):
        return None  # programs that finish early would overwrite operands of others
    found = {access.index for m in group.members for access in m.reads() if access.buf == out.name}
    if len(found) != 1:
        return None
    (index,) = found
    dimensions = _dimensions(index, group.outer_vars(), out.layout) if isinstance(index, Affine) else None
    if dimensions is None:
        return None
    batch, rows, columns = _roles(kernel, dimensions)
    stored = group.stored | ({out.name} if keep else set())
    return Product(
        group.outer, [], group.members, stored=stored, kernel=kernel, batch=batch, rows=rows, columns=columns,
        epilogue=group,
    )  # fmt: skip


def _dimensions(index: Affine, variables: Sequence[tuple[str, Any]], layout: Layout) -> list[Variables] | None:
    """The variables that make up each dimension of a buffer that is read at `index`, outermost first; None if the index
    does not count up each dimension."""
    left = sorted(variables, key=lambda v: index.coef(v[0]))
    if index.const != layout.offset or index.names() != {name for name, _ in variables}:
        return None
    found: list[Variables] = []
    order = sorted(range(len(layout.size)), key=lambda d: (layout.stride[d], layout.size[d] != 1, -d))
    for size, stride in ((layout.size[d], layout.stride[d]) for d in order):
        taken: list[tuple[str, int]] = []
        have = 1
        while have < size:
            if not left or index.coef(left[0][0]) != stride * have or size % (have * left[0][1]):
                return None
            taken.insert(0, left.pop(0))
            have *= taken[0][1]
        found.append(tuple(taken))
    return None if left else [found[order.index(d)] for d in range(len(order))]


@dataclass(frozen=True)
class Candidate:
    """A product in a schedule: the positions of the call, of its epilogue (None without one) and of its prologues."""

    product: Product
    call: int
    epilogue: int | None
    prologues: tuple[int, ...] = ()


def products(steps: Sequence[Group | ExternKernel], graph: GraphIR) -> list[Candidate]:
    """The products of a schedule for which there is a template, each with its epilogue and prologues if it has any."""
    outputs = output_names(graph)
    found: list[Candidate] = []
    taken: set[int | None] = set()
    for at in reversed(range(len(steps))):  # of several products that could take a group, the last does
        step = steps[at]
        if isinstance(step, ExternKernel) and is_eligible(step):
            fused = _fused(steps, at, step, outputs)
            if fused is None or fused.epilogue in taken:
                fused = Candidate(alone(step), at, None)
            found.append(fused)
            taken.add(fused.epilogue)
    # A group that could be either is an epilogue, which is computed once.
    return [_with_prologues(steps, candidate, outputs, taken) for candidate in found[::-1]]


def _fused(steps: Sequence[Group | ExternKernel], at: int, kernel: ExternKernel, outputs: set[str]) -> Candidate | None:
    out = kernel.outputs[0]
    assert out is not None
    readers = [k for k in range(at + 1, len(steps)) if out.name in _reads(steps[k])]
    if not readers:
        return None
    group = steps[readers[0]]
    between = set().union(*(_writes(step) for step in steps[at + 1 : readers[0]]))
    if not isinstance(group, Group) or isinstance(group, Product) or between & set(extern_reads(kernel)):
        return None
    product = with_epilogue(kernel, group, keep=len(readers) > 1 or out.name in outputs)
    return None if product is None else Candidate(product, at, readers[0])


def _with_prologues(
    steps: Sequence[Group | ExternKernel], candidate: Candidate, outputs: set[str], taken: set[int | None]
) -> Candidate:
    """The candidate with the groups that compute its factors, as far as only the product reads these and no product has
    `taken` the group."""
    product, places = candidate.product, list[int]()
    if product.kernel.target in (convolution.TARGET, SCALED, GROUPED):
        return candidate
    for position in (0, 1):
        at = _writer_of_factor(steps, candidate, position, outputs)
        group = None if at is None or at in taken or at in places else steps[at]
        prologue = _prologue(group, product, position) if isinstance(group, Group) else None
        if prologue is not None and at is not None:
            product = replace(product, prologues=(*product.prologues, prologue))
            places.append(at)
    return replace(candidate, product=product, prologues=tuple(places))


def _factor(product: Product, position: int) -> Any:
    return product.kernel.args[FACTORS[product.kernel.target] + position]


def _name(operand: Any) -> str:
    return str((operand.buffer if isinstance(operand, View) else operand).name)


def _writer_of_factor(
    steps: Sequence[Group | ExternKernel], candidate: Candidate, position: int, outputs: set[str]
) -> int | None:
    """The position of the step that computes a factor, if nothing but the product needs the factor and the step may run
    as late as the product."""
    name = _name(_factor(candidate.product, position))
    at = next((k for k in range(candidate.call) if name in _writes(steps[k])), None)
    readers = [k for k, step in enumerate(steps) if name in _reads(step)]
    same = [x for x in candidate.product.kernel.operands() if _name(x) == name]
    if at is None or readers != [candidate.call] or name in outputs or len(same) != 1:
        return None
    end = candidate.call if candidate.epilogue is None else candidate.epilogue
    between = set[str]().union(*(_writes(step) for step in steps[at + 1 : end + 1]))
    return None if between & set(_reads(steps[at])) else at


def _prologue(group: Group, product: Product, position: int) -> Prologue | None:
    """`group` as what computes a factor of a product; None if it does not compute each element by itself."""
    operand = _factor(product, position)
    name = _name(operand)
    if isinstance(group, Product) or group.reduces or not group.fusible or group.by_value or group.stored != {name}:
        return None
    written = [access.index for m in group.members for access in m.writes() if access.buf == name]
    ops = sum(len(m.node.unnamed_ops) for m in group.members)
    if any(type(n) is not int for n in group.outer) or len(written) != 1 or ops > MAX_PROLOGUE_OPS:
        return None
    index = written[0]
    dimensions = _dimensions(index, group.outer_vars(), operand.layout) if isinstance(index, Affine) else None
    if dimensions is None:
        return None
    *batch, first, second = dimensions
    return Prologue(group, position, batch[0] if batch else (), first, second, name)


def _reads(step: Group | ExternKernel) -> set[str]:
    return step.read_names() if isinstance(step, Group) else set(extern_reads(step))


def _writes(step: Group | ExternKernel) -> set[str]:
    if isinstance(step, Group):
        return step.written_names()
    return {o.name for o in step.outputs if o is not None} | ({step.mutates} if step.mutates else set())


def replaced(steps: Sequence[Group | ExternKernel], chosen: Sequence[tuple[Candidate, Product]]) -> list[Any]:
    """The schedule with the chosen products in the place of their calls and epilogues."""
    result: list[Any] = list(steps)
    for candidate, product in chosen:
        result[candidate.call] = product if candidate.epilogue is None else None
        for at in candidate.prologues if product.prologues else ():
            result[at] = None
        if candidate.epilogue is not None:
            result[candidate.epilogue] = product
    return [step for step in result if step is not None]


def buffers_of(product: Product, graph: GraphIR) -> list[ComputedBuffer]:
    """The computed buffers of the members of prologue and epilogue."""
    before = [m for prologue in product.prologues for m in prologue.group.members]
    names = {m.node.name for m in (*before, *product.members)}
    return [b for b in graph.buffers if isinstance(b, ComputedBuffer) and b.name in names]

