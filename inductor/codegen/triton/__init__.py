"""The Triton back end: turns groups into kernels for NVIDIA GPUs. It generates text and does not import triton."""

from .kernel import Launch, TritonKernel
from .source import GroupLaunches, TritonSource
from .work import Scratch

__all__ = ["GroupLaunches", "Launch", "Scratch", "TritonKernel", "TritonSource"]
