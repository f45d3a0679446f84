"""What equal layers have in common is compiled once: the result is the same as if each were compiled by itself.

Networks of equal layers are compiled with everything that the compiler remembers of earlier layers, and without; plans
and sources must be equal, and results must be eager's.
"""

from __future__ import annotations

import contextlib
import sys
from unittest import mock

import pytest
import torch
from torch import nn

import pyframe
from inductor.aot import fake
from inductor.codegen.cpp import source as cpp_source
from inductor.codegen.group_key import group_key
from inductor.codegen.plan import codegen
from inductor.codegen.triton import horizontal
from inductor.codegen.triton import source as triton_source
from inductor.compile import compile_fx
from inductor.compile_report import keeping_artifacts
from inductor.schedule import schedule
from tools import fake_gpu

LAYERS = 4


class Block(nn.Module):
    """A transformer layer with attention, dropout and a gated product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        b, n, d = x.shape
        parts = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        seen = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        scores = (q @ k.transpose(-1, -2) * 0.25).masked_fill(~seen, float("-inf")).softmax(-1)
        x = x + self.dropout(self.out((scores @ v).transpose(1, 2).reshape(b, n, d)))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * up)


class Residual(nn.Module):
    """Two convolutions with batch norm around a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = nn.functional.pad(self.norm1(self.conv1(x)).relu(), (1, 1, 1, 1))
        y = nn.functional.avg_pool2d(y, 3, stride=1)
        return nn.functional.gelu(self.norm2(self.conv2(y)) + x)


def transformer():
    return nn.Sequential(*(Block(16, 2) for _ in range(LAYERS)), nn.LayerNorm(16)), torch.randn(2, 6, 16)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), *(Residual(8) for _ in range(LAYERS))), torch.randn(2, 3, 8, 8)


NETWORKS = {"transformer": transformer, "convolutions": convolutions}


@contextlib.contextmanager
def forgetting():
    """Everything is compiled as if nothing equal had been before."""
    with (
        mock.patch.object(fake, "remember_calls", lambda function: function),
        mock.patch.object(fake, "remembering", lambda mode, run: run),
        mock.patch.object(cpp_source, "group_key", lambda *args: None),
        mock.patch.object(triton_source, "group_key", lambda *args: None),
        mock.patch.object(horizontal, "group_key", lambda *args: None),
    ):
        yield


def network(name, training):
    torch.manual_seed(0)
    model, x = NETWORKS[name]()
    return model.train(training).requires_grad_(training), x


def compiled(model, x, training):
    """The plans and sources of all graphs of a model, its results, and gradients if it is trained."""
    kept = []

    def backend(gm, inputs):
        call = compile_fx(gm, inputs, options={"cache": False, "strict": True})
        kept.extend(gm.meta["compile_report"].artifacts)
        return call

    torch.manual_seed(1)
    with keeping_artifacts():
        y = pyframe.compile(model, backend=backend)(x)
    results = [y.detach(), *(torch.autograd.grad(y.square().sum(), list(model.parameters())) if training else ())]
    parts = [(part.spec, part.sources) for part in kept]
    assert parts
    return repr(parts), results


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_to_layers_compiled_one_by_one(name, training):
    model, x = network(name, training)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found, results = compiled(model, x, training)
    model.load_state_dict(state)
    with forgetting():
        one_by_one, others = compiled(model, x, training)
    assert found == one_by_one
    for result, other in zip(results, others, strict=True):
        assert torch.equal(result, other)
    model.load_state_dict(state)
    torch.manual_seed(1)
    y = model(x)
    wanted = [y.detach(), *(torch.autograd.grad(y.square().sum(), list(model.parameters())) if training else ())]
    for result, want in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, want, rtol=1e-3, atol=1e-4)


def for_gpu(name, training):
    """The plans and sources of a network as for a GPU."""
    parts = [(spec, source.texts(), source.host.texts(), source.kernels) for source, spec in gpu_parts(name, training)]
    assert parts
    return repr(parts)


def gpu_parts(name, training):
    """The sources and plans of the graphs of a network as for a GPU."""
    model, x = network(name, training)
    parts = []

    def backend(gm, inputs):
        graphs = fake_gpu.lowered_training(gm, inputs) if training else [fake_gpu.lowered_inference(gm, inputs)]
        for graph in graphs:
            parts.append(codegen(schedule(graph), graph, training=training))
        return gm.forward

    pyframe.compile(model, backend=backend)(x)
    return parts


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_for_a_gpu(name, training):
    found = for_gpu(name, training)
    with forgetting():
        assert for_gpu(name, training) == found


def test_layers_with_random_numbers_of_their_own_share_kernels(monkeypatch):
    counts = []
    for layers in (3, 6):
        monkeypatch.setattr(sys.modules[__name__], "LAYERS", layers)
        counts.append([len(source.kernels) for source, _ in gpu_parts("transformer", True)])
    assert counts[0] == counts[1]


def groups_of(fn, *args):
    """The groups of loops of a function, and the dtypes of all buffers."""
    found = []

    def backend(gm, inputs):
        graph = fake_gpu.lowered_inference(gm, inputs)
        dtypes = {b.name: "float32" for b in (*graph.inputs, *graph.buffers)}
        found.extend((group, dtypes) for group in schedule(graph))
        return gm.forward

    pyframe.compile(fn, backend=backend)(*args)
    return found


def test_keys_are_equal_for_other_buffers_only():
    x, y = torch.randn(3, 4), torch.randn(3, 4)

    def key(fn, *args):
        ((group, dtypes),) = groups_of(fn, *args)
        return group_key(group, dtypes).key

    plain = key(lambda a, b: (a + 1) * b, x, y)
    assert key(lambda a, b: (a + 1) * b, y, x) == plain
    others = [
        key(lambda a, b: (a + 2) * b, x, y), key(lambda a, b: (a + 1) * a, x, y), key(lambda a, b: (a - 1) * b, x, y),
        key(lambda a, b: (a + 1) * b, x[:2], y[:2]), key(lambda a, b: (a + 1) * b, x.t().contiguous().t(), y),
        key(lambda a, b: (a + 1) * b, x, y.double()), key(lambda a, b: ((a + 1) * b).sum(0), x, y),
    ]  # fmt: skip
    assert len({plain, *others}) == len(others) + 1


def test_constants_that_python_takes_for_equal_differ():
    x = torch.randn(5)

    def key(value):
        ((group, dtypes),) = groups_of(lambda a: torch.where(a > 0, a, value), x)
        return group_key(group, dtypes).key

    assert key(0.0) != key(-0.0)


def test_groups_that_differ_in_what_is_stored():
    ((group, dtypes),) = groups_of(lambda a: (a + 1).sum(), torch.randn(5))
    before = group_key(group, dtypes).key
    group.stored = set()
    assert group_key(group, dtypes).key != before


def test_equal_groups_are_generated_once(monkeypatch):
    made = []

    class Counted(cpp_source.Kernel):
        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(cpp_source, "Kernel", Counted)
    counts = []
    for layers in (2, 6):
        made.clear()
        model = nn.Sequential(*(Block(16, 2) for _ in range(layers)))
        with torch.no_grad():
            compiled(model.eval(), torch.randn(2, 6, 16), False)
        counts.append(len(made))
    assert counts[0] == counts[1]
