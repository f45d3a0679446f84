"""Names the arguments of a convolution node, for the passes that rewrite convolutions."""

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
