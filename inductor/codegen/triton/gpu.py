"""The properties of a GPU on which the choice of block sizes depends."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Gpu:
    """A GPU. `multiprocessors` is their number, as torch reports it (for a part of a GPU, that of the part).
    `shared_bytes`: the most shared memory that a block of threads can use. `descriptors`: whether there is a copy
    engine for tensors."""

    multiprocessors: int
    shared_bytes: int = 99 << 10
    descriptors: bool = False


# By compute capability times ten, for compilation without a device: A100, H100 and H200, B200.
KNOWN = {80: Gpu(108, 163 << 10), 90: Gpu(132, 227 << 10, True), 100: Gpu(148, 227 << 10, True)}
DEFAULT = KNOWN[90]
# Kilobytes of shared memory per block, by compute capability; those of other GPUs with tensor cores have at least 64.
_SHARED = {70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}


def gpu_of(device: torch.device) -> Gpu:
    """The properties of a CUDA device; DEFAULT if this machine does not have it."""
    if not torch.cuda.is_available():
        return DEFAULT
    index = torch.cuda.current_device() if device.index is None else device.index
    return _present(index) if index < torch.cuda.device_count() else DEFAULT


@functools.cache
def _present(index: int) -> Gpu:
    found = torch.cuda.get_device_properties(index)
    shared = _SHARED.get(10 * found.major + found.minor, 64) << 10
    return Gpu(found.multi_processor_count, shared, found.major >= 9)
