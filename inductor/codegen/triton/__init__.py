"""The Triton back end: turns groups into kernels for NVIDIA GPUs. It generates text and does not import triton."""

from .kernel import Launch, Scratch, TritonKernel
from .source import GroupLaunches, TritonSource

__all__ = ["GroupLaunches", "Launch", "Scratch", "TritonKernel", "TritonSource"]
