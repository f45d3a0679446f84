"""Graphs traced with and without remembered calls are the same, down to the metadata and memory of each value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from inductor.aot import fake, trace_memo
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.training_decompositions import training_decompositions


def described(graph: torch.fx.GraphModule) -> list[Any]:
    """What the rest of the compiler may read of each node."""
    memory: dict[int, int] = {}

    def value(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x), [value(y) for y in x]
        if not isinstance(x, torch.Tensor):
            return repr(x)
        storage = x.untyped_storage()
        shared = memory.setdefault(storage._cdata, len(memory))
        layout = x.shape, x.stride(), x.storage_offset(), storage.nbytes(), shared
        return type(x), layout, x.dtype, x.device, x.requires_grad, x.is_inference()

    return [
        (node.format_node(), value(node.meta.get("val")), node.meta.get("tensor_meta"), node.meta.get("stack_trace"),
         str(node.meta.get("original_aten")), sorted(node.meta))
        for node in graph.graph.nodes
    ]  # fmt: skip


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.norm(self.conv(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm(x)).reshape(2, 3, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        return x + self.out(nn.functional.dropout(y.transpose(1, 2).flatten(2), 0.5, self.training))


def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views, of one tensor and of two, views of views, the same tensor twice, and calls that return an argument."""
    first, second = x.split(2)[0], x.split(2)[1]
    third, fourth = x.chunk(2, 1)[0], x.chunk(2, 1)[1]
    parts = first.t().contiguous(), second.t().contiguous(), third.contiguous().expand(2, -1, -1), fourth.contiguous()
    same = torch.cat([x, x], 1), torch.cat([x, y], 1), torch.cat([y, x], 1), x * x, x * y, y * y
    return (*parts, *same, x.reshape(4, 4).to(torch.float32), x.view(2, 8).view(16)[3:5], x.view(2, 8).sum(0))


def numbers(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Arguments that are equal, or look equal, without being the same: 1, 1.0, True, 0.0, -0.0 and nan."""
    return tuple([x + 1, x + 1.0, x + True, y + 0.0, y + -0.0, x.clamp(min=float("nan")), x.clamp(min=float("nan"))])


def writes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Writes to intermediates and through views, between calls that would otherwise be the same."""
    z = x.sin()
    w = x.sin()
    z[1].mul_(2)
    w.t()[0].copy_(y[0])
    z.add_(1)
    return z, w, x.sin() + x.sin().detach(), x.max(0)[1], x.max(0)[0], x.topk(2)[0], x.topk(2)[1]


def constants(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Tensors that are created in the graph."""
    made = x.new_zeros(4), x.new_zeros(4), x.new_ones(4), torch.zeros_like(x), torch.zeros_like(x)
    return (*made, x + x.new_full((), 3), x + x.new_full((), 4), torch.where(x > 0, x, 0.0), torch.where(y > 0, y, 0.0))


def traced(make: Callable[[], torch.fx.GraphModule], memo: bool, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    with monkeypatch.context() as patch:
        if not memo:
            patch.setattr(fake, "remember_calls", lambda function: function)
        make()  # fills torch's cache of fake results: for a result with gaps, it gives another size of the memory
        return described(make())


def check(gm: torch.fx.GraphModule, x: torch.Tensor, train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traces of `gm` with and without the memo are equal."""

    def make() -> torch.fx.GraphModule:
        if train:
            return to_joint(gm, [x], training_decompositions()).graph
        with torch.no_grad():
            return to_aten(gm, [x], decompositions()).graph

    for copied, every in zip(traced(make, True, monkeypatch), traced(make, False, monkeypatch), strict=True):
        assert copied == every


@pytest.mark.parametrize("layer", [Residual, Attention])
@pytest.mark.parametrize("train", [False, True])
def test_layers(layer: Callable[[], nn.Module], train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gm = torch.fx.symbolic_trace(nn.Sequential(*[layer() for _ in range(3)]).train(train))
    x = torch.randn(2, 4, 6, 6) if layer is Residual else torch.randn(2, 3, 8)
    check(gm, x, train, monkeypatch)


@pytest.mark.parametrize("program", [views, numbers, writes, constants])
@pytest.mark.parametrize("train", [False, True])
def test_programs(program: Callable[..., Any], train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gm = torch.fx.symbolic_trace(program)
    x, y = torch.randn(4, 4, requires_grad=train), torch.randn(4, 4, requires_grad=train)

    def make() -> torch.fx.GraphModule:
        if train:
            return to_joint(gm, [x, y], training_decompositions()).graph
        with torch.no_grad():
            return to_aten(gm, [x, y], decompositions()).graph

    for copied, every in zip(traced(make, True, monkeypatch), traced(make, False, monkeypatch), strict=True):
        assert copied == every


def with_constants() -> torch.fx.GraphModule:
    """Layers that each append to an empty tensor, and calls on constants only."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    sums = []
    for value in ([], [], [2.0], [3.0], [], []):
        given = graph.call_function(torch.tensor, (value,))
        x = graph.call_function(torch.cat, ([given, graph.call_function(torch.sin, (x,))],))
        sums.append(graph.call_function(torch.sum, (given,)))
        sums.append(graph.call_function(torch.cat, ([given, given],)))
    graph.output((x, *sums))
    return torch.fx.GraphModule({}, graph)


@pytest.mark.parametrize("train", [False, True])
def test_constants(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gm, x = with_constants(), torch.randn(4, requires_grad=train)
    check(gm, x, train, monkeypatch)


def test_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most calls of a network of equal layers are copies."""
    copied: list[Any] = []
    follow = trace_memo._follow
    monkeypatch.setattr(trace_memo, "_follow", lambda recipe, *args: copied.append(recipe) or follow(recipe, *args))
    gm = torch.fx.symbolic_trace(nn.Sequential(*[Residual() for _ in range(8)]))
    joint = to_joint(gm, [torch.randn(2, 4, 6, 6)], training_decompositions())
    computed = [node for node in joint.graph.graph.nodes if node.op == "call_function"]
    assert sum(len(recipe.steps) for recipe in copied) > len(computed) / 2
