"""Gradients of the weights of depthwise convolutions that move by one pixel, as units of a schedule.

Loops that read each tap of each pixel take most of their time for loads and for finding the pixels. Kernels of these
groups go down the rows of the images and keep the gradient's last rows in registers: each row of the input is read once
for each tap of a row, and each row of the gradient once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..ir.buffer import Buffer, ExternKernel, View
from ..lower.convolution import can_go_down_rows
from .node import Group
from .operator_group import OperatorGroup

Operand = Buffer | View


@dataclass(eq=False)
class DepthwiseGradient(OperatorGroup):
    """The gradient of the weight, [C, 1, h, w], from that of the result, `grad`: [N, C, H, W], and the input `x`:
    [N, C, H + h - 1 - 2 * padding[0], W + w - 1 - 2 * padding[1]], both channels_last. No members."""

    grad: Operand = None  # type: ignore[assignment]
    x: Operand = None  # type: ignore[assignment]
    padding: tuple[int, int] = (0, 0)

    @property
    def result(self) -> Buffer:
        """The buffer of the weight's gradient."""
        out = self.kernel.outputs[1]
        assert out is not None
        return out

    def read_names(self) -> set[str]:
        """Buffers that its kernels read."""
        return {(x.buffer if isinstance(x, View) else x).name for x in (self.grad, self.x)}

    def written_names(self) -> set[str]:
        """The result."""
        return {self.result.name}


def with_depthwise_gradients(steps: Sequence[Group | ExternKernel]) -> list[Group | ExternKernel]:
    """The schedule with groups in the place of the calls that `lower/convolution.py` makes for them."""
    return [(_group(step) if isinstance(step, ExternKernel) else None) or step for step in steps]


def _group(kernel: ExternKernel) -> DepthwiseGradient | None:
    if kernel.target is not torch.ops.aten.convolution_backward.default:
        return None
    grad, x, weight, _, stride, padding, dilation, transposed, _, groups, wanted = kernel.args
    out = kernel.outputs[1]
    if transposed or list(wanted) != [False, True, False] or out is None or groups != weight.layout.size[0]:
        return None
    if groups != x.layout.size[1] or not can_go_down_rows(grad.layout, x.layout, out.layout, stride, dilation):
        return None
    return DepthwiseGradient(
        [*out.layout.size], [], [], False, {out.name}, kernel=kernel, grad=grad, x=x, padding=tuple(padding)
    )
