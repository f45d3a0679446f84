"""Lowering of ATen graphs to the loop IR. Importing this package registers all lowerings."""

from ..errors import Unsupported
from . import (
    batch_norm,
    complex_memory,
    convolution,
    creation,
    embedding_bags,
    flex_attention,
    index_reductions,
    index_writes,
    indexing,
    interpolation,
    padding,
    partial_writes,
    patches,
    pointwise,
    pooling,
    products,
    random,
    reductions,
    resizing,
    scans,
    searching,
    segments,
    sorting,
    views,
)
from .graph import GraphLowering, lower_graph
from .registry import LOWERINGS, Unlowered, lowering
from .results import separate_results

__all__ = ["LOWERINGS", "GraphLowering", "Unlowered", "Unsupported", "lower_graph", "lowering", "separate_results"]

# Importing these modules registers their lowerings.
_MODULES = (
    batch_norm, complex_memory, convolution, creation, embedding_bags, flex_attention, index_reductions, index_writes,
    indexing, interpolation, padding, partial_writes, patches, pointwise, pooling, products, random, reductions,
    resizing, scans, searching, segments, sorting, views,
)  # fmt: skip
