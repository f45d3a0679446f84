"""The properties of a GPU on which the choice of block sizes depends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Gpu:
    """A GPU. `multiprocessors` is their number, as torch reports it (for a part of a GPU, that of the part).
    `shared_bytes`: the most shared memory that a block of threads can use. `descriptors`: whether there is a copy
    engine for tensors. `doubles`: whether arithmetic of float64 is at least half as fast as that of float32; elsewhere
    it takes 32 or 64 times as long."""

    multiprocessors: int
    shared_bytes: int = 99 << 10
    descriptors: bool = False
    doubles: bool = False


# By compute capability times ten, for compilation without a device: A100, H100 and H200, B200.
KNOWN = {
    80: Gpu(108, 163 << 10, doubles=True), 90: Gpu(132, 227 << 10, True, True), 100: Gpu(148, 227 << 10, True, True)
}  # fmt: skip
DEFAULT = KNOWN[90]
# Kilobytes of shared memory per block, by compute capability; those of other GPUs with tensor cores have at least 64.
_SHARED = {70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
_FAST_DOUBLES = (70, 80, 90, 100)

_chosen: list[Gpu] = []


@contextlib.contextmanager
def compiling_for(arch: int) -> Iterator[None]:
    """Compile for a GPU of this compute capability, times ten, whatever this machine has. ValueError for one that is
    not in KNOWN. The caller holds the compile lock."""
    if arch not in KNOWN:
        raise ValueError(f"sm_{arch} is not one of {', '.join(f'sm_{known}' for known in KNOWN)}")
    _chosen.append(KNOWN[arch])
    try:
        yield
    finally:
        _chosen.pop()


def gpu_of(device: torch.device) -> Gpu:
    """The properties of a CUDA device; DEFAULT if this machine does not have it."""
    if _chosen:
        return _chosen[-1]
    if not torch.cuda.is_available():
        return DEFAULT
    index = torch.cuda.current_device() if device.index is None else device.index
    return _present(index) if index < torch.cuda.device_count() else DEFAULT


@functools.cache
def _present(index: int) -> Gpu:
    found = torch.cuda.get_device_properties(index)
    capability = 10 * found.major + found.minor
    shared = _SHARED.get(capability, 64) << 10
    return Gpu(found.multi_processor_count, shared, found.major >= 9, capability in _FAST_DOUBLES)
