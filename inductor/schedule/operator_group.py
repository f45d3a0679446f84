"""Calls of operators that kernels of ours compute, as units of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..ir.buffer import Buffer, ExternKernel
from .node import Group


@dataclass(eq=False)
class OperatorGroup(Group):
    """The call `kernel` of an operator whose first output is what kernels of ours compute."""

    kernel: ExternKernel = None  # type: ignore[assignment]

    @property
    def result(self) -> Buffer:
        """The buffer of the operator's result. It is in memory only if `stored` contains its name."""
        out = self.kernel.outputs[0]
        assert out is not None
        return out

    @property
    def device(self) -> torch.device:
        """The device of the result."""
        return self.result.layout.device
