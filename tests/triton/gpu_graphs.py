"""The Triton kernels of whole programs as they would be made on a GPU, without one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import pyframe
from benchmarks import programs_gpu, programs_training
from inductor.aot import batch_norm
from inductor.codegen.triton import TritonSource
from inductor.dtypes import dtype_name
from inductor.ir.buffer import Buffer, ExternKernel, part_dtype
from inductor.schedule import Group, schedule
from tools.fake_gpu import lowered_inference, lowered_training


def kernels_of(graph):
    """The kernels of a lowered graph."""
    buffers = [*graph.inputs, *graph.constants]
    for node in graph.buffers:
        buffers += [x for x in node.outputs if x is not None] if isinstance(node, ExternKernel) else [node]
    dtypes = {b.name: dtype_name(part_dtype(b.dtype)) for b in buffers if isinstance(b, Buffer)}
    source = TritonSource()
    for group in schedule(graph):
        if isinstance(group, Group) and 0 not in group.outer:
            source.group(group, dtypes)
    return source.kernels


def distinct(kernels):
    """One kernel of those whose code differs in nothing but its name, where it comes from, and how much there is."""
    found = {}
    for kernel in kernels:
        code = "\n".join(line for line in kernel.text.splitlines() if not line.startswith("#"))
        found.setdefault((code.replace(kernel.name, ""), kernel.signature, kernel.aligned), kernel)
    return list(found.values())


def captured(model, args):
    """The graph of a call of `model`, and its inputs."""
    found = []

    def backend(gm, inputs):
        found.append((gm, list(inputs)))
        return gm.forward

    pyframe.compile(model, backend=backend, fullgraph=True)(*args)
    (graph,) = found
    return graph


def channels_last_if_given(x, weight, *rest):
    """What cuDNN says of the layout of a convolution's result."""
    last = [y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous() for y in (x, weight)]
    return torch.channels_last if any(last) else torch.contiguous_format


class Bottleneck(nn.Module):
    """Of ResNet-50, with its second path."""

    def __init__(self, before, inner, out, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(before, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.other = nn.Sequential(nn.Conv2d(before, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.path(x) + self.other(x))


class ConvNet(nn.Module):
    """The loss of a convolutional network, in sizes that fill a GPU."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        self.blocks = nn.Sequential(Bottleneck(64, 64, 256, 1), Bottleneck(256, 128, 512, 2))
        self.head = nn.Linear(512, 1000)

    def forward(self, x, target):
        x = self.blocks(F.max_pool2d(self.stem(x), 3, 2, 1))
        return F.cross_entropy(self.head(x.mean((2, 3))), target)


def convolutions():
    """The kernels of a step of such a network, layouts and batch norm as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._C, "_conv_determine_backend_memory_format", channels_last_if_given)
        patch.setattr(batch_norm, "_rewritten", lambda x: True)
        args = [torch.empty(32, 3, 224, 224), torch.zeros(32, dtype=torch.int64)]
        return step(fx.symbolic_trace(ConvNet().train()), args)


def inference(name):
    """The kernels of a benchmark's model in bfloat16."""
    model, args = programs_gpu.on("cpu", torch.bfloat16, programs_gpu.GPU[name](**programs_gpu.SMALL[name]))
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._C, "_conv_determine_backend_memory_format", channels_last_if_given)
        gm, inputs = captured(model, args)
        return kernels_of(lowered_inference(gm, inputs))


def writes_of_a_cache():
    """The kernels of a step of decoding that writes rotated keys, and values, at a position of their caches, and adds
    to a position."""

    def fn(c, k, pos, cos, sin, d, v):
        half = k.shape[-1] // 2
        c.index_copy_(2, pos, k * cos + torch.cat((-k[..., half:], k[..., :half]), -1) * sin)
        d[:, :, pos] = v * 2
        c.scatter_(2, pos.view(1, 1, 1, 1).expand(1, 32, 1, 64) - 1, k)
        return torch.zeros_like(c, dtype=torch.float32).index_add(2, pos, k.float() * 2)

    make = lambda *size: torch.randn(*size, dtype=torch.bfloat16)  # noqa: E731
    k, cos = make(1, 32, 1, 64), make(1, 64)
    c = make(1, 32, 128, 64)
    args = (c, k, torch.tensor([5]), cos, cos.clone(), c.clone(), k.clone())
    return kernels_of(lowered_inference(*captured(fn, args)))


def sorts():
    """Kernels that sort rows, choose the greatest elements and find medians."""
    programs = (
        (lambda x: tuple(x.sort(-1)), torch.float32, 512),
        (lambda x: tuple(x.sort(0, descending=True)), torch.bfloat16, 30),
        (lambda x: tuple(x.softmax(-1).topk(3)), torch.float16, 100),
        (lambda x: tuple(x.topk(64)), torch.float32, 1024),
        (lambda x: tuple(x.topk(5, largest=False)), torch.bfloat16, 2000),
        (lambda x: x.nanmedian(-1)[0], torch.float64, 100),
        (lambda x: x.kthvalue(5)[1], torch.int64, 60),
        (lambda x: tuple(x.sort(-1)), torch.bool, 20),
    )
    graphs = [captured(fn, (torch.ones(200, n).to(dtype),)) for fn, dtype, n in programs]
    return [kernel for graph in graphs for kernel in kernels_of(lowered_inference(*graph))]


def index_reductions():
    """Kernels that combine elements at indices, search sorted rows, and reduce bags of rows of a table."""
    rows, at, table = torch.ones(300, 64), torch.arange(300), torch.ones(500, 96)
    bags = torch.arange(0, 300, 10)

    def combined(x, at, y):
        where = at[:, None].expand_as(y)
        return [x.scatter_reduce(0, where, y.exp(), kind) for kind in ("sum", "mean", "prod", "amax", "amin")]

    programs = [(combined, rows.to(dtype), at, rows.to(dtype)) for dtype in (torch.float32, torch.float64, torch.half)]
    programs += [(lambda x, b: torch.bucketize(x, b, right=True), rows, torch.arange(1000.0))]
    for mode in ("sum", "mean", "max"):
        def bagged(indices, offsets, table, mode=mode):
            return F.embedding_bag(indices, table, offsets, mode=mode, padding_idx=3)

        programs.append((bagged, at, bags, table.to(torch.bfloat16)))
    grads, tokens = torch.ones(16384, 1024, dtype=torch.bfloat16), torch.zeros(16384, dtype=torch.int64)
    backward = torch.ops.aten.embedding_dense_backward
    programs.append((lambda g, tokens: backward(g, tokens, 32000, -1, False), grads, tokens))
    return [kernel for fn, *args in programs for kernel in kernels_of(lowered_inference(*captured(fn, args)))]


def step(gm, inputs):
    """The kernels of a graph's forward and backward, with autocast to bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return [kernel for half in lowered_training(gm, inputs) for kernel in kernels_of(half)]


def training_program(name):
    """The kernels of a step of a benchmark's program."""
    program = programs_training.GPU[name]
    model, args = program.make(**program.tiny)
    with torch.autocast("cpu", torch.bfloat16):
        graph = captured(model.train(), args)
    return step(*graph)
