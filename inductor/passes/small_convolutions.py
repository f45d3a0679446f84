"""Convolutions on the CPU as matrix products, where that saves copies of the weight.

oneDNN lays out the weight of a convolution at each call, and a convolution in channels_last needs a copy of it in that
layout before. A product reads the weight as it is. It needs a matrix with a row for each pixel of the result, which
holds the part of the input that this pixel depends on:

- a convolution whose filters cover the whole input has one such row per image, the image itself;
- a 1x1 convolution of a tensor in channels_last finds these rows in memory;
- otherwise the rows are copies, which pays if they are smaller than the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx

from ..aot.calls import call
from ..lower.convolution import is_channels_last
from .common import Convolution, aten, in_onednn

mkldnn = torch.ops.mkldnn


def products_of_small_convolutions(gm: fx.GraphModule, constant: Collection[fx.Node] = ()) -> None:
    """Rewrites convolutions whose filters cover the input, and those whose result has fewer pixels than filters.
    Weights in `constant` will be laid out once, so only the first kind of convolutions of these is rewritten."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        given = Convolution.of(node)
        make: Callable[[fx.Graph, fx.Node, Convolution], fx.Node] | None = None
        if not _is_dense(node, given):
            continue
        if _covers(given):
            make = _of_images
        elif given.weight not in constant and _copies_pay(node, given):
            make = _of_patches
        if make is not None:
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(make(gm.graph, node, given))
            gm.graph.erase_node(node)


def products_of_pixels(gm: fx.GraphModule, constant: Collection[fx.Node] = ()) -> None:
    """Rewrites oneDNN's 1x1 convolutions in channels_last, with the activations in them, as oneDNN's products, unless
    the weight is in `constant`."""
    for node in gm.graph.find_nodes(op="call_function", target=mkldnn._convolution_pointwise.default):
        x, weight, bias, padding, stride, _, groups, *activation = node.args
        filters = weight.meta["val"]
        plain = groups == 1 and not any(padding) and all(s == 1 for s in stride)
        if weight in constant or not plain or filters.shape[2:].numel() != 1 or not _is_static(x.meta["val"]):
            continue
        with gm.graph.inserting_before(node):
            rows = _pixels(gm.graph, x, node)
            matrix = call(gm.graph, aten.view.default, weight, list(filters.shape[:2]), like=node)
            taken = rows, matrix, bias, *activation
            product = call(gm.graph, mkldnn._linear_pointwise.default, *taken, like=node)
            node.replace_all_uses_with(_as_images(gm.graph, product, node))
        gm.graph.erase_node(node)


def _is_dense(node: fx.Node, given: Convolution) -> bool:
    """Whether this is a convolution of images of known size on the CPU without groups."""
    val, pixels, filters = node.meta["val"], given.pixels, given.filters
    if val.dim() != 4 or given.transposed or given.groups != 1 or not in_onednn(val):
        return False
    given_dtypes = {x.meta["val"].dtype for x in (given.x, given.weight, given.bias) if x is not None}
    if given_dtypes != {val.dtype}:
        return False
    return _is_static(pixels) and _is_static(filters) and 0 not in (*val.shape, *filters.shape)


def _is_static(val: torch.Tensor) -> bool:
    return all(type(n) is int for n in val.shape)


def _covers(given: Convolution) -> bool:
    """Whether the filters are as large as the input."""
    return given.filters.shape[2:] == given.pixels.shape[2:] and not any(given.padding)


def _copies_pay(node: fx.Node, given: Convolution) -> bool:
    """Whether the rows that are copied, one for each pixel of the result, are fewer than the filters."""
    n, filters, h, w = node.meta["val"].shape
    return n * h * w < filters and (given.filters.shape[2:].numel() > 1 or any(s != 1 for s in _pair(given.stride)))


def _pair(numbers: Any) -> list[int]:
    return list(numbers) * (2 // len(numbers))


def _of_images(graph: fx.Graph, node: fx.Node, given: Convolution) -> fx.Node:
    n, *size = given.pixels.shape
    rows = call(graph, aten.reshape.default, given.x, [n, torch.Size(size).numel()], like=node)
    product = _product(graph, rows, node, given)
    return call(graph, aten.view.default, product, list(node.meta["val"].shape), like=node)


def _of_patches(graph: fx.Graph, node: fx.Node, given: Convolution) -> fx.Node:
    (down, across), stride, dilation = _pair(given.padding), _pair(given.stride), _pair(given.dilation)
    x = given.x
    if down or across:
        x = call(graph, aten.constant_pad_nd.default, x, [across, across, down, down], 0.0, like=node)
    for dim in (2, 3):
        length = dilation[dim - 2] * (given.filters.shape[dim] - 1) + 1
        x = call(graph, aten.unfold.default, x, dim, length, stride[dim - 2], like=node)
    for dim in (4, 5):  # of the taps
        if dilation[dim - 4] != 1:
            x = call(graph, aten.slice.Tensor, x, dim, 0, 2**63 - 1, dilation[dim - 4], like=node)
    n, _, h, w = node.meta["val"].shape
    x = call(graph, aten.permute.default, x, [0, 2, 3, 1, 4, 5], like=node)
    rows = call(graph, aten.reshape.default, x, [n * h * w, given.filters.shape[1:].numel()], like=node)
    images = _as_images(graph, _product(graph, rows, node, given), node)
    val = node.meta["val"]
    last = is_channels_last(val) and not val.is_contiguous()
    layout = torch.channels_last if last else torch.contiguous_format
    return call(graph, aten.clone.default, images, memory_format=layout, like=node)


def _product(graph: fx.Graph, rows: fx.Node, node: fx.Node, given: Convolution) -> fx.Node:
    filters = given.filters.shape[0]
    matrix = call(graph, aten.reshape.default, given.weight, [filters, given.filters.shape[1:].numel()], like=node)
    matrix = call(graph, aten.permute.default, matrix, [1, 0], like=node)
    if given.bias is None:
        return call(graph, aten.mm.default, rows, matrix, like=node)
    return call(graph, aten.addmm.default, given.bias, rows, matrix, like=node)


def _pixels(graph: fx.Graph, x: fx.Node, like: fx.Node) -> fx.Node:
    """A view of a tensor in channels_last as a matrix whose rows are the channels of one pixel."""
    n, channels, h, w = x.meta["val"].shape
    rows = call(graph, aten.permute.default, x, [0, 2, 3, 1], like=like)
    return call(graph, aten.view.default, rows, [n * h * w, channels], like=like)


def _as_images(graph: fx.Graph, product: fx.Node, node: fx.Node) -> fx.Node:
    """A product with a row for each pixel as the images that the node returns."""
    n, filters, h, w = node.meta["val"].shape
    images = call(graph, aten.view.default, product, [n, h, w, filters], like=node)
    return call(graph, aten.permute.default, images, [0, 3, 1, 2], like=node)
