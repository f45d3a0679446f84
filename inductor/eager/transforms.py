"""Calls of `torch.vmap` and `torch.func.grad_and_value` on a graph, as objects that can be inspected and saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx


class Vmapped:
    """`torch.vmap` of a graph with these settings, whose dimensions are one for each tensor."""

    def __init__(
        self, gm: fx.GraphModule, in_dims: Sequence[int | None], out_dims: Sequence[int | None], randomness: str,
        chunk_size: int | None,
    ) -> None:
        self.gm, self.in_dims, self.out_dims = gm, tuple(in_dims), tuple(out_dims)
        self.randomness, self.chunk_size = randomness, chunk_size
        self.label = ""  # what a printed program calls it
        self.__name__ = self.__qualname__ = "vmapped"  # torch.fx names nodes after functions
        self.__module__ = __name__

    def __call__(self, *values: torch.Tensor) -> Any:
        # torch.vmap's annotations have no None among the dimensions
        mapped = torch.vmap(
            self.gm, in_dims=self.in_dims, out_dims=self.out_dims,  # type: ignore[arg-type]
            randomness=self.randomness, chunk_size=self.chunk_size,
        )  # fmt: skip
        return mapped(*values)


class GradAndValue:
    """The gradients of the first result of a graph with respect to the arguments at `places`, followed by its
    results."""

    def __init__(self, gm: fx.GraphModule, places: Sequence[int]) -> None:
        self.gm, self.places = gm, tuple(places)
        self.label = ""
        self.__name__ = self.__qualname__ = "grad_and_value"
        self.__module__ = __name__

    def __call__(self, *values: torch.Tensor) -> Any:
        def parts(*inner: torch.Tensor) -> Any:
            first, *rest = self.gm(*inner)
            return first, tuple(rest)

        gradients, (value, rest) = torch.func.grad_and_value(parts, argnums=self.places, has_aux=True)(*values)
        return (*gradients, value, *rest)
