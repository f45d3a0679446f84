"""Lowering of ATen graphs to loop IR."""

from . import creation, indexing, pointwise, reductions, views
from .graph import GraphLowering, lower_graph
from .registry import LOWERINGS, Unlowered, Unsupported, lowering

__all__ = ["LOWERINGS", "GraphLowering", "Unlowered", "Unsupported", "lower_graph", "lowering"]

_MODULES = (creation, indexing, pointwise, reductions, views)  # imported for what they register
