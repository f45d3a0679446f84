"""Prepares a graph's Triton kernels for one GPU, in the form that the C Plan loads and launches.

`load_cubins` asks the GPU for its compute capability and lets `triton_build` compile the kernels for it or find them in
the cache. `triton_build` holds all of the compilation and needs no GPU; this module holds what depends on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import triton_build

WARP_SIZE = 32


@dataclass(frozen=True)
class CudaKernel:
    """A compiled kernel. `cubin` is the output of Triton's compiler, or PTX text; `name` is the entry point.

    A block has `num_warps` warps and `shared` bytes of dynamic shared memory. `waits`: the kernel waits itself for the
    one before it in the stream, so that the GPU may start it early.
    """

    cubin: bytes
    name: str
    num_warps: int
    shared: int
    waits: bool = False

    def encode(self) -> tuple[Any, ...]:
        """What the C Plan takes: (code, name, threads per block, bytes of shared memory, whether it waits)."""
        return (self.cubin, self.name, WARP_SIZE * self.num_warps, self.shared, self.waits)


def loadable(cubin: triton_build.Cubin) -> CudaKernel:
    """A compiled kernel in the form that a plan takes."""
    return CudaKernel(cubin.data, cubin.name, cubin.num_warps, cubin.shared, cubin.waits)


def load_cubins(kernels: Sequence[triton_build.KernelSource], device: torch.device) -> list[CudaKernel]:
    """Compiles the kernels for a device, or takes them from the cache. Raises BuildError if that fails."""
    major, minor = torch.cuda.get_device_capability(device)
    cubins = triton_build.build_all(kernels, 10 * major + minor)
    return [loadable(cubin) for cubin in cubins]
