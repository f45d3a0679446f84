"""Attention whose scores a program's own functions change and mask (`flex_attention`), as a unit of a lowered graph."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from .body import LoopBody
from .buffer import Buffer, ExternKernel, View

# The names by which the loop bodies of the functions read and write what a kernel holds in registers.
SCORE, GRADIENT = "%score", "%gradient"  # read
CHANGED, KEPT, DIFFERENTIATED = "%changed", "%kept", "%differentiated"  # written
_numbers = itertools.count()


@dataclass(eq=False)
class FlexFunctions:
    """The functions of one call of flex_attention as ATen graphs on whole matrices of scores, of size [B, H, M, N].

    `score(scores, b, h, m, n, *others)` is the changed score, `gradient(gradients, scores, b, h, m, n, *others)` the
    gradient of the score for that of the changed one, and `mask(b, h, m, n, *others)` whether a score is kept. The
    indices are ranges. `block_size`: rows and columns of a block of the mask. `options`: the `kernel_options` of the
    program. `reference(query, key, value, scale, score_others, mask_others)` computes the same with ATen.

    Operators refer to it by `number`, because their arguments cannot be graphs; `functions_of` finds it while something
    else keeps it alive.
    """

    score: fx.GraphModule
    gradient: fx.GraphModule | None
    mask: fx.GraphModule
    block_size: tuple[int, int]
    options: dict[str, Any]
    reference: Any
    number: int = field(default_factory=lambda: next(_numbers))

    def __post_init__(self) -> None:
        _known[self.number] = self


_known: weakref.WeakValueDictionary[int, FlexFunctions] = weakref.WeakValueDictionary()


def functions_of(number: int) -> FlexFunctions:
    """The functions with this number."""
    return _known[number]


@dataclass(frozen=True)
class Blocks:
    """The blocks of a BlockMask that hold scores, along one direction: `counts` [B or 1, H or 1, blocks] of them in
    each row (or column) of blocks, and their `places` [B or 1, H or 1, blocks, most] in it."""

    counts: Buffer | View
    places: Buffer | View


@dataclass(eq=False)
class FlexKernel(ExternKernel):
    """A forward or backward of flex_attention, for which code generation writes kernels. Its outputs are: output,
    logsumexp and maximum of each row; of the backward the gradients of query, key and value.

    `query`: [B, Hq, M, D], `key`: [B, Hkv, N, D], `value`: [B, Hkv, N, Dv]. `partial` and `full`: the blocks in which
    the mask is applied (None: one block is everything), or need not be; of the backward first those of each row, then
    those of each column. `rows`: of the backward, the gradient of the output, the logsumexp, and `delta`, the sum over
    a row of weight times gradient. `body`: the functions as a loop nest over [B, Hq, M, N], which reads and writes the
    names above.
    """

    query: Buffer | View = None  # type: ignore[assignment]
    key: Buffer | View = None  # type: ignore[assignment]
    value: Buffer | View = None  # type: ignore[assignment]
    partial: tuple[Blocks | None, ...] = ()
    full: tuple[Blocks, ...] = ()
    rows: tuple[Buffer | View, ...] = ()
    body: LoopBody = None  # type: ignore[assignment]
    scale: float = 1.0
    block_size: tuple[int, int] = (128, 128)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def backward(self) -> bool:
        """Whether it computes gradients."""
        return bool(self.rows)
