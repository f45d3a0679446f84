"""The properties of a GPU on which the choice of block sizes depends."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Gpu:
    """A GPU. `multiprocessors` is their number, as torch reports it (for a part of a GPU, that of the part)."""

    multiprocessors: int


# By compute capability times ten, for compilation without a device: A100, H100 and H200, B200.
KNOWN = {80: Gpu(108), 90: Gpu(132), 100: Gpu(148)}
DEFAULT = KNOWN[90]


def gpu_of(device: torch.device) -> Gpu:
    """The properties of a CUDA device; DEFAULT if this machine does not have it."""
    if not torch.cuda.is_available():
        return DEFAULT
    index = torch.cuda.current_device() if device.index is None else device.index
    return _present(index) if index < torch.cuda.device_count() else DEFAULT


@functools.cache
def _present(index: int) -> Gpu:
    return Gpu(torch.cuda.get_device_properties(index).multi_processor_count)
