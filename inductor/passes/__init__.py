"""Passes over ATen graphs before they are lowered: each one file with one function from graph to graph, in place."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from .bias import biases_apart
from .convolution import without_bias
from .layout import channels_last
from .matmul import products_of_convolutions

__all__ = ["run_passes"]


def run_passes(gm: fx.GraphModule, shared: Sequence[int | None], force: bool = False) -> fx.GraphModule:
    """`gm`, whose nodes carry fake tensors, as a faster graph with the same results in the same strides.

    `shared`: as for `lower_graph`. `force`: whether it pays or not.
    """
    biases_apart(gm)
    if channels_last(gm, shared, force):
        products_of_convolutions(gm)
        without_bias(gm)
        gm.graph.eliminate_dead_code()
        gm.graph.lint()
        gm.recompile()
    return gm
