"""The Triton back end: groups to kernels for NVIDIA GPUs. Nothing here imports triton."""

from .kernel import Launch, Scratch, TritonKernel
from .source import GroupLaunches, TritonSource

__all__ = ["GroupLaunches", "Launch", "Scratch", "TritonKernel", "TritonSource"]
