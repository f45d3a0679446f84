"""Attention kernels compiled for GPUs that are not there: they compile, and hold their tiles in registers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from fake_gpu import on_gpu
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import pyframe
from inductor.aot import flex_attention as operator
from inductor.aot.joint import to_joint
from inductor.aot.partition import partition
from inductor.aot.training_decompositions import training_decompositions
from inductor.cache.file_store import Cache
from inductor.codegen.triton.gpu import KNOWN
from inductor.codegen.triton.source import TritonSource
from inductor.dtypes import dtype_name
from inductor.ir.buffer import Buffer, ExternKernel
from inductor.lower import lower_graph, separate_results
from inductor.passes import run_joint_passes
from inductor.runtime import triton_build
from inductor.schedule import schedule
from inductor.schedule.flex_attention import FlexGroup, with_flex_attention

triton = pytest.importorskip("triton")
TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
LENGTH, HEADS = 1024, 4
MAX_STACK = 48  # bytes: a few numbers, not tiles
SLOPES = torch.exp2(-torch.arange(1.0, HEADS + 1))
DOCUMENTS = torch.arange(LENGTH) // 100


def causal(b, h, q, k):
    return q >= k


def document(b, h, q, k):
    return (q >= k) & (DOCUMENTS[q] == DOCUMENTS[k])


def alibi(s, b, h, q, k):
    return s + SLOPES[h] * (k - q)


def kernels_of(dim, mask, score, dtype, arch):
    """The kernels of forward and backward."""
    args = [torch.randn(1, HEADS, LENGTH, dim, dtype=dtype) for _ in range(3)]
    blocks = create_block_mask(mask, None, None, LENGTH, LENGTH, device="cpu")
    found = []

    def backend(gm, inputs):
        leaves = [x.detach().requires_grad_(x.dtype == dtype and x.dim() == 4) for x in inputs]
        found.append((operator.with_flex_attention(gm), leaves))
        return gm

    pyframe.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks), backend=backend, fullgraph=True
    )(*args)
    joint = to_joint(*found[0], training_decompositions())
    on_gpu(joint.graph)
    run_joint_passes(joint.graph)
    halves = partition(joint)
    source = TritonSource(KNOWN[arch])
    for half in (halves.forward, halves.backward):
        graph = lower_graph(half, separate_results(half))
        made = [x for b in graph.buffers for x in (b.outputs if isinstance(b, ExternKernel) else (b,))]
        dtypes = {b.name: dtype_name(b.dtype) for b in (*graph.inputs, *made) if isinstance(b, Buffer)}
        for group in with_flex_attention(schedule(graph)):
            if isinstance(group, FlexGroup):
                source.group(group, dtypes)
    assert len(source.kernels) == 3
    return source.kernels


def stack_bytes(cubin, folder):
    """The local memory of a thread, in which registers are spilled."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin.data)
    text = subprocess.run([TOOL, "-res-usage", path], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", text).group(1))


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("dim", [64, 128])
def test_kernels_compile_without_spilling(arch, dim, tmp_path, monkeypatch):
    monkeypatch.setattr(operator, "DEVICES", ("cpu",))
    for mask, score in ((causal, None), (document, alibi)):
        kernels = kernels_of(dim, mask, score, torch.bfloat16, arch)
        for kernel, cubin in zip(kernels, triton_build.build_all(kernels, arch, Cache(tmp_path))):
            assert cubin.data and cubin.shared <= KNOWN[arch].shared_bytes
            if TOOL.exists():
                assert stack_bytes(cubin, tmp_path) <= MAX_STACK, kernel.name



@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("dim, dtype", [(16, torch.float16), (256, torch.bfloat16), (64, torch.float32)])
def test_other_kernels_compile(arch, dim, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(operator, "DEVICES", ("cpu",))
    kernels = kernels_of(dim, document, alibi, dtype, arch)
    for cubin in triton_build.build_all(kernels, arch, Cache(tmp_path)):
        assert cubin.data and cubin.shared <= KNOWN[arch].shared_bytes
