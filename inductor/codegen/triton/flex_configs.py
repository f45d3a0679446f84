"""Block sizes of attention kernels, as pure functions of sizes and of the GPU's shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .gpu import Gpu
from .heuristics import power

LEAST = 16  # the smallest block that tensor cores take
HALF, NARROW = 2, 64  # bytes of half precision; a narrow head


@dataclass(frozen=True)
class FlexConfig:
    """`rows` and `columns`: of a tile of scores. The kernel loops over columns, or over rows for gradients of key and
    value."""

    rows: int
    columns: int
    warps: int
    stages: int


@dataclass(frozen=True)
class FlexShape:
    """What block sizes depend on: lengths of query and key, the wider head dimension, bytes of an element, and rows and
    columns of a block of the mask."""

    rows: int
    columns: int
    dim: int
    itemsize: int
    block_size: tuple[int, int]


SMALL = 200 << 10  # bytes of shared memory; of GPUs with less, tensor cores take their operands from registers


def forward(shape: FlexShape, gpu: Gpu, options: Mapping[str, Any]) -> FlexConfig:
    """The tile of the forward."""
    if shape.itemsize > HALF:
        config = FlexConfig(64, 32, 4, 2) if shape.dim <= NARROW else FlexConfig(32, 32, 4, 2)
    elif shape.dim <= NARROW:
        config = FlexConfig(128, 64, 4 if gpu.shared_bytes > SMALL else 8, 3)
    elif shape.dim <= 2 * NARROW:
        config = FlexConfig(128, 64, 8, 3)
    else:
        config = FlexConfig(64, 64, 8, 2)
    config = _asked(config, options, "fwd_", "BLOCK_M", "BLOCK_N")
    return _fitted(config, shape, gpu, 2 * power(shape.dim) * shape.itemsize, across=True)


def query_gradient(shape: FlexShape, gpu: Gpu, options: Mapping[str, Any]) -> FlexConfig:
    """The tile of the kernel of the gradient of the query."""
    config = _backward(shape, gpu, options, "BLOCK_M2", "BLOCK_N2")
    return _fitted(config, shape, gpu, 2 * power(shape.dim) * shape.itemsize, across=True)


def key_gradient(shape: FlexShape, gpu: Gpu, options: Mapping[str, Any]) -> FlexConfig:
    """The tile of the kernel of the gradients of key and value."""
    config = _backward(shape, gpu, {}, "", "")
    config = replace(config, rows=config.columns, columns=config.rows)
    config = _asked(config, options, "bwd_", "BLOCK_M1", "BLOCK_N1")
    return _fitted(config, shape, gpu, 2 * power(shape.dim) * shape.itemsize, across=False)


def _backward(shape: FlexShape, gpu: Gpu, options: Mapping[str, Any], rows: str, columns: str) -> FlexConfig:
    if shape.itemsize > HALF:
        config = FlexConfig(32, 32, 4, 1)
    elif shape.dim <= NARROW:
        config = FlexConfig(128, 64, 8, 2)
    elif shape.dim <= 2 * NARROW:
        config = FlexConfig(128, 64 if gpu.shared_bytes > SMALL else 32, 8, 2)
    else:
        config = FlexConfig(64, 32, 8, 1)
    return _asked(config, options, "bwd_", rows, columns)


def _asked(config: FlexConfig, options: Mapping[str, Any], prefix: str, rows: str, columns: str) -> FlexConfig:
    """The configuration with what the program's `kernel_options` say, with or without the prefix."""
    names = {"rows": rows, "columns": columns, "warps": "num_warps", "stages": "num_stages"}
    found = {field: options.get(prefix + name, options.get(name)) for field, name in names.items()}
    usable = {field: n for field, n in found.items() if type(n) is int and n > 0 and power(n) == n or field == "stages"}
    return replace(config, **{field: n for field, n in usable.items() if type(n) is int})


def _fitted(config: FlexConfig, shape: FlexShape, gpu: Gpu, step_bytes: int, across: bool) -> FlexConfig:
    """The configuration with blocks that divide those of the mask and are not much longer than the sequences, and with
    as many stages as shared memory holds. `step_bytes`: what a step of the loop loads per row or column."""
    rows = _dividing(config.rows, shape.block_size[0], shape.rows)
    columns = _dividing(config.columns, shape.block_size[1], shape.columns)
    along, held = (columns, rows) if across else (rows, columns)
    room = gpu.shared_bytes - held * step_bytes
    stages = max(1, min(config.stages, room // (along * step_bytes)))
    warps = config.warps if rows * columns >= config.rows * config.columns // 2 else min(config.warps, 4)
    return FlexConfig(rows, columns, warps, stages)


def _dividing(block: int, of_mask: int, length: int) -> int:
    """The largest power of 2 up to `block` that is useful and divides a block of the mask, unless that is the whole
    sequence."""
    block = min(block, max(power(length), LEAST))
    while of_mask < length and of_mask % block:
        block //= 2
    return max(block, LEAST)
