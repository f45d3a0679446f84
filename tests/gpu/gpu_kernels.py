"""Kernels of Triton for tests, compiled without Triton's own launcher."""

import pytest
import torch

from inductor.runtime.cuda import CudaKernel

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402


@triton.jit
def axpy(x, y, n, k, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y + at, k * tl.load(x + at, mask=inside) + 1, mask=inside)


def compile_axpy(capability: int = 0) -> CudaKernel:
    """y = k * x + 1 over n float32, 128 a block; for the current device unless a capability (90) is given."""
    if not capability:
        major, minor = torch.cuda.get_device_capability()
        capability = 10 * major + minor
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "k": "i32", "BLOCK": "constexpr"}
    source = ASTSource(axpy, signature=signature, constexprs={"BLOCK": 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4})
    return CudaKernel(compiled.asm["cubin"], compiled.metadata.name, compiled.metadata.num_warps,
                      compiled.metadata.shared)
