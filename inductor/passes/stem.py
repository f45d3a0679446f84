"""Rewrites stride-2 convolutions over images of few channels (the stem of a model) for tensor cores, by turning
neighbouring pixels into channels.

A filter of stride 2 reads pixels 2i + u. With u = 2v + d and the 2 x 2 pixels of each block as channels, it becomes a
filter of half the size and stride 1.
"""

from __future__ import annotations

import torch
from torch import fx

from ..aot.calls import call
from ..fx_utils.arguments import node_at
from ..lower.convolution import is_channels_last
from .common import Convolution, aten

_COLOURS = 4  # channels after padding; blocks of 2 x 2 pixels turn them into 16
_FEW = 16  # with fewer filters tensor cores are not used well anyway


def blocks_of_pixels(gm: fx.GraphModule) -> None:
    """Rewrites convolutions of stride 2 over at most four input channels."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _fits(node):
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(_rewritten(gm.graph, node))
            gm.graph.erase_node(node)


def _fits(node: fx.Node) -> bool:
    given = Convolution.of(node)
    filters, colours, *taps = given.filters.shape
    if given.pixels.dim() != 4 or given.transposed or given.groups != 1 or filters < _FEW or colours > _COLOURS:
        return False
    steps = all(s == 2 for s in given.stride) and all(d == 1 for d in given.dilation)
    return steps and min(taps) > 1 and is_channels_last(node.meta["val"])


def _rewritten(graph: fx.Graph, node: fx.Node) -> fx.Node:
    given = Convolution.of(node)
    out, taps = node.meta["val"].shape[2:], given.filters.shape[2:]
    padding = [given.padding[0], given.padding[-1]]
    half = [-(-k // 2) for k in taps]
    size = [n + k - 1 for n, k in zip(out, half)]
    pixels = _blocks(graph, node, _source(given.x), size, padding)
    filters = _blocks(graph, node, _source(given.weight), half, [0, 0])
    rest = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    return call(graph, aten.convolution.default, pixels, filters, given.bias, *rest, like=node)


def _source(x: fx.Node) -> fx.Node:
    """The tensor that the channels_last pass cloned, or `x`: one copy is enough."""
    return node_at(x) if x.target is aten.clone.default else x


def _blocks(graph: fx.Graph, node: fx.Node, x: fx.Node, size: list[int], before: list[int]) -> fx.Node:
    """`x` padded with zeros to `size` blocks of 2 x 2 pixels per dimension, with the pixels of a block as channels, in
    channels_last. `before` is the padding before the first pixel."""
    n, channels, *space = x.meta["val"].shape
    after = [2 * s - b - h for s, b, h in zip(size, before, space)]
    pad = [before[1], after[1], before[0], after[0], 0, _COLOURS - channels]
    x = call(graph, aten.constant_pad_nd.default, x, pad, 0.0, like=node)
    x = call(graph, aten.clone.default, x, memory_format=torch.contiguous_format, like=node)
    x = call(graph, aten.view.default, x, [n, _COLOURS, size[0], 2, size[1], 2], like=node)
    x = call(graph, aten.permute.default, x, [0, 2, 4, 1, 3, 5], like=node)
    x = call(graph, aten.clone.default, x, memory_format=torch.contiguous_format, like=node)
    x = call(graph, aten.view.default, x, [n, *size, 4 * _COLOURS], like=node)
    return call(graph, aten.permute.default, x, [0, 3, 1, 2], like=node)
