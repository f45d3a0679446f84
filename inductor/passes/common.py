"""What several passes ask of nodes: the arguments of a convolution, and whether oneDNN computes in a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import fx

aten = torch.ops.aten


class Convolution(NamedTuple):
    """The arguments of `aten.convolution`."""

    x: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    @staticmethod
    def of(node: fx.Node) -> Convolution:
        """The arguments of a node that calls `aten.convolution`."""
        return Convolution(*cast(tuple[Any, ...], node.args))

    @property
    def pixels(self) -> torch.Tensor:
        """The fake tensor of the input."""
        return self.x.meta["val"]

    @property
    def filters(self) -> torch.Tensor:
        """The fake tensor of the weight."""
        return self.weight.meta["val"]


def in_onednn(val: torch.Tensor) -> bool:
    """Whether oneDNN computes convolutions and products of this tensor's dtype on this processor at full speed."""
    if val.device.type != "cpu" or not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    return val.dtype == torch.float32 or val.dtype == torch.bfloat16 and _multiplies_bfloat16()


def _multiplies_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
