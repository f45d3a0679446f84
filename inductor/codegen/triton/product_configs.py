"""The configurations of a product's kernel that are worth measuring, by its shape and the limits of the GPU."""

from __future__ import annotations

from dataclasses import replace

from ...schedule.product import FEW_ROWS, Product, ProductConfig, Sizes
from .gpu import Gpu
from .heuristics import ceil_div, power
from .product_descriptors import fits

LEAST_DOT = 16  # the smallest block along any dimension that tensor cores take
MAX_SPLIT = 16
# (rows, columns, depth, warps, stages), of a tile in half precision
TILES = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4), (64, 64, 128, 4, 3), (64, 32, 64, 4, 5), (32, 64, 128, 4, 4), (32, 32, 128, 4, 4),
)  # fmt: skip
FLAT_TILES = ((16, 32, 128, 4, 4), (16, 64, 128, 4, 4), (16, 32, 256, 4, 3), (16, 128, 64, 4, 4))
# (rows, columns, depth, warps, stages), with tensor descriptors. None has specialized warps: for Hopper, Triton 3.6
# fails to compile some of these kernels with them, and others give wrong results or read memory that is not theirs.
DESCRIPTOR_TILES = (
    (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 4, 4),
)
LEAST_TILES = 16  # for fewer, the time in which a descriptor is made counts
# (columns, depth, warps) of a block of the second factor, whose summed dimension is contiguous, or the other one
DOWN_BLOCKS = ((1, 1024, 2), (2, 1024, 4), (4, 512, 4), (8, 256, 4), (16, 256, 8))
ACROSS_BLOCKS = ((64, 32, 4), (128, 32, 4), (128, 64, 8), (256, 16, 4))
MOST_CONFIGS = 16


def configs(product: Product, gpu: Gpu) -> list[ProductConfig]:
    """The configurations to measure, at most MOST_CONFIGS. Where factors are computed first, half of them leave that to
    kernels of their own, unless each element of the factor is needed about once."""
    once = all(found.position == 1 for found in product.prologues) and product.sizes.rows <= FEW_ROWS
    if not product.prologues or once:
        return _configs(product, gpu)[:MOST_CONFIGS]
    apart = _configs(replace(product, prologues=()), gpu)[: MOST_CONFIGS // 2]
    return [*_configs(product, gpu)[: MOST_CONFIGS // 2], *(replace(config, apart=True) for config in apart)]


def _configs(product: Product, gpu: Gpu) -> list[ProductConfig]:
    sizes, itemsize = product.sizes, product.factors[0].dtype.itemsize
    if product.scales and not gpu.descriptors:  # tensor cores for 8-bit floats are as recent as that
        return []
    found: list[ProductConfig] = []
    one = sizes.rows == 1 and product.prologue(0) is None
    if one and product.convolution is None and product.ends is None and not product.scales:
        found += _vectors(product, gpu)
    if sizes.depth >= LEAST_DOT:
        flat = sizes.rows <= FEW_ROWS
        for rows, columns, depth, warps, stages in FLAT_TILES if flat else TILES:
            tile = ProductConfig("dot", rows, columns, min(depth * 2 // itemsize, _block(sizes.depth)), warps, stages)
            fitting = _splits(tile, sizes, gpu, itemsize)
            found += fitting if product.ends is None else [c for c in fitting if c.split == 1]
    if gpu.descriptors and fits(product):
        found = [*_descriptors(sizes, gpu), *found]
    return list(dict.fromkeys(found))


def _descriptors(sizes: Sizes, gpu: Gpu) -> list[ProductConfig]:
    """The configurations with tensor descriptors, for products of at least a few tiles."""
    found = []
    for rows, columns, depth, warps, stages in DESCRIPTOR_TILES:
        tile = ProductConfig("descriptors", rows, columns, depth, warps, stages, 1, gpu.multiprocessors)
        many = ceil_div(sizes.rows, rows) * ceil_div(sizes.columns, columns) >= LEAST_TILES
        if many and sizes.depth >= depth and rows <= sizes.rows and columns <= sizes.columns:
            found += [tile] if shared_bytes(tile, 2) <= gpu.shared_bytes else []
    return found


def _block(size: int) -> int:
    return max(power(size), LEAST_DOT)


def _splits(tile: ProductConfig, sizes: Sizes, gpu: Gpu, itemsize: int) -> list[ProductConfig]:
    """The tile if it fits the product and the device's shared memory, and with the sum split if programs are few."""
    wide = tile.rows >= 2 * _block(sizes.rows) or tile.columns >= 2 * _block(sizes.columns)
    if wide or shared_bytes(tile, itemsize) > gpu.shared_bytes:
        return []
    programs = sizes.batch * ceil_div(sizes.rows, tile.rows) * ceil_div(sizes.columns, tile.columns)
    steps = ceil_div(sizes.depth, tile.depth)
    most = min(MAX_SPLIT, steps // 4, 2 * gpu.multiprocessors // programs)
    split = 1 << max(most, 1).bit_length() - 1
    return [tile] if split == 1 else [tile, replace(tile, split=split)]


def shared_bytes(tile: ProductConfig, itemsize: int) -> int:
    """The shared memory of a program that loads `stages` steps ahead."""
    return (tile.rows + tile.columns) * tile.depth * itemsize * tile.stages


def _vectors(product: Product, gpu: Gpu) -> list[ProductConfig]:
    sizes, (_, right) = product.sizes, product.factors
    blocks = DOWN_BLOCKS if right.stride[-2] == 1 else ACROSS_BLOCKS
    found = []
    for columns, depth, warps in blocks:
        config = ProductConfig("vector", 1, columns, min(depth, power(sizes.depth)), warps, 2)
        programs = sizes.batch * ceil_div(sizes.columns, columns)
        most = min(MAX_SPLIT, ceil_div(sizes.depth, config.depth) // 2, 4 * gpu.multiprocessors // programs)
        split = 1 << max(most, 1).bit_length() - 1
        found.append(config if split == 1 else replace(config, split=split))
    return found
