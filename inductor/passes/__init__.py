"""Rewrites graphs into faster ones before lowering; each module of this package holds one kind of rewrite.

`run_passes` takes an ATen graph without gradients and `run_joint_passes` a joint graph before it is partitioned; on the
forward and backward that result, `run_half_passes`. `without_known_masks` (`attention.py`) comes first of all:
it takes the torch-level graph, before it is traced to ATen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from torch import fx

from ..fx_utils.dead_code import remove_unused
from ..log.programs import note
from .attention import without_known_masks
from .bias import biases_apart
from .collective_buckets import joined_collectives
from .common import aten
from .complex_parts import parts_of_complex
from .convolution import without_bias
from .depthwise import filters_by_tap
from .devices import on_one_device
from .duplicates import without_duplicates
from .embedding_bags import bags_of_one_length
from .epilogue import activated_products
from .layout import channels_last
from .matmul import products_of_convolutions, products_of_gradients
from .onednn import products_of_onednn
from .onednn_convolution import convolutions_of_onednn
from .small_convolutions import products_of_pixels, products_of_small_convolutions
from .stacks import items_of_stacks
from .stem import blocks_of_pixels

__all__ = ["run_half_passes", "run_joint_passes", "run_passes", "without_known_masks"]


def run_passes(
    gm: fx.GraphModule, shared: Sequence[int | None], force: bool = False, buckets: bool = False,
    constant: Collection[fx.Node] = (),
) -> fx.GraphModule:
    """Rewrites `gm` in place into a faster graph whose results have the same values and strides; returns it.

    Nodes carry fake tensors. `shared` is as for `lower_graph`. `force` converts to channels_last, for a GPU, even
    if it is not expected to be faster. `buckets`: join collectives. `constant`: nodes that are computed once, before
    the calls.
    """
    _run(gm, items_of_stacks, on_one_device, without_duplicates, bags_of_one_length)
    if not force:
        _run(gm, partial(products_of_small_convolutions, constant=constant))
    run_half_passes(gm, buckets)
    converted = channels_last(gm, shared, force, on_cpu=True)
    if converted:
        note("channels_last", gm)
    if converted and not force and any(node.meta["val"].device.type == "cpu" for node in _convolutions(gm)):
        _run(gm, convolutions_of_onednn, partial(products_of_pixels, constant=constant))
    elif converted:
        _run(gm, products_of_convolutions, blocks_of_pixels, without_bias, filters_by_tap)
    if activated_products(gm) or converted:
        remove_unused(gm.graph)
        gm.graph.lint()
        gm.recompile()
        note("activated_products", gm)
    return gm


def _convolutions(gm: fx.GraphModule) -> Iterable[fx.Node]:
    return gm.graph.find_nodes(op="call_function", target=aten.convolution.default)


def _run(gm: fx.GraphModule, *passes: Callable[[fx.GraphModule], Any]) -> None:
    """Run passes in order."""
    for each in passes:
        each(gm)
        note(each.func.__name__ if isinstance(each, partial) else each.__name__, gm)


def run_half_passes(gm: fx.GraphModule, buckets: bool = False) -> None:
    """The passes for a graph without gradients and for the forward and backward of one with gradients. `buckets`: join
    collectives."""
    if buckets:
        _run(gm, joined_collectives)
    _run(gm, products_of_onednn, biases_apart, parts_of_complex)


def run_joint_passes(gm: fx.GraphModule, force: bool = False) -> None:
    """The passes for a joint graph (forward and backward), before it is partitioned."""
    _run(gm, items_of_stacks, on_one_device, bags_of_one_length)
    if channels_last(gm, force=force):
        note("channels_last", gm)
        _run(gm, products_of_gradients, products_of_convolutions)
        remove_unused(gm.graph)
        gm.graph.lint()
        gm.recompile()
