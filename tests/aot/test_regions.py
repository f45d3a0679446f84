"""Graphs in which equal layers are traced once are those in which each layer is traced, down to the metadata and memory
of each value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from inductor.aot import regions
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.training_decompositions import training_decompositions
from tests.aot.test_trace_memo import described

LAYERS = 6


class Layer(nn.Module):
    """With attention, so that values are views, and a residual connection. `number`: read by nothing."""

    def __init__(self, number: int = 0, dropout: float = 0.0, width: int = 8) -> None:
        super().__init__()
        self.number, self.dropout, self.flag = number, dropout, True
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).reshape(2, 3, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(nn.functional.dropout(y.transpose(1, 2).flatten(2), self.dropout, self.training))
        y = nn.functional.gelu(self.up(x)) if self.flag else torch.relu(self.up(x))
        return x + self.down(y)


class Network(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x).sum()


class TwoResults(Network):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(x)
        return logits, logits.logsumexp(-1).mean()


class AllStates(Network):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], mask))
        return tuple(states)


class Written(Network):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x.mul_(2.0)).sum()


def equal(count: int = LAYERS, **options: Any) -> list[nn.Module]:
    return [Layer(k, **options) for k in range(count)]


def one_other(change: Callable[[nn.Module], Any], at: int = 3) -> list[nn.Module]:
    layers = equal(9)
    change(layers[at])
    return layers


def captured(model: nn.Module, *inputs: Any) -> tuple[torch.fx.GraphModule, list[Any]]:
    found: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append((gm, inputs))
        return gm.forward

    pyframe.compile(model, backend=backend, fullgraph=True)(*inputs)
    ((gm, inputs_of_graph),) = found
    return gm, inputs_of_graph


def both(trace: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, int]:
    """What `trace` returns with and without copied ranges, and how many were copied."""
    monkeypatch.setattr(regions, "enabled", False)
    each = trace()
    monkeypatch.setattr(regions, "enabled", True)
    monkeypatch.setattr(regions, "copied_ranges", 0)
    return trace(), each, regions.copied_ranges


def computed(graph: torch.fx.GraphModule, known: dict[Any, int]) -> list[int]:
    """Numbers for the results, equal for results that are computed in the same way, whatever the order of the nodes."""
    numbers: dict[torch.fx.Node, int] = {}
    for node in graph.graph.nodes:
        name = node.target if node.op == "placeholder" else None
        value = str(node.meta.get("tensor_meta"))
        args = torch.fx.map_arg((node.args, node.kwargs), lambda x: ("node", numbers[x]))
        numbers[node] = known.setdefault((node.op, str(node.target), name, repr(args), value), len(known))
    return sorted(numbers.values())


def check_same(once: Any, each: Any, ordered: bool = True) -> None:
    """Two JointGraphs or AtenGraphs are the same, except for tensors, which are other objects, and except for the order
    of the nodes if not `ordered`."""
    known: dict[Any, int] = {}
    if ordered:
        assert described(once.graph) == described(each.graph)
    else:
        assert computed(once.graph, known) == computed(each.graph, known)
    for field in dataclasses.fields(once):
        if field.name not in ("graph", "attributes", "tangents"):
            assert getattr(once, field.name) == getattr(each, field.name), field.name
    for x, y in zip(getattr(once, "tangents", ()), getattr(each, "tangents", ()), strict=True):
        assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)


def other_weight(layer: nn.Module) -> None:
    layer.up.weight = nn.Parameter(torch.randn(8, 8).t())


# The first layer differs if its input needs no gradient, and the last is not copied in training.
TRAINING = {
    "equal": (lambda: Network(equal()), LAYERS - 2),
    "dropout": (lambda: Network(equal(dropout=0.5)), LAYERS - 2),
    "two results": (lambda: TwoResults(equal()), LAYERS - 2),
    "all states": (lambda: AllStates(equal()), 0),  # the gradients of each state would be added in another order
    "one flag": (lambda: Network(one_other(lambda layer: setattr(layer, "flag", False))), 4),
    "one width": (lambda: Network(one_other(lambda layer: layer.__init__(width=16))), 4),
    "one layout": (lambda: Network(one_other(other_weight)), 4),
    "one frozen": (lambda: Network(one_other(lambda layer: layer.norm.requires_grad_(False))), 4),
    "frozen layers": (lambda: Network([x.requires_grad_(False) for x in equal()]), LAYERS - 2),
    "one hook": (
        lambda: Network(one_other(lambda layer: layer.register_forward_hook(lambda m, args, y: y * 2))), None,
    ),
    "shared layer": (lambda: Network([Layer()] * LAYERS), LAYERS - 2),
    "written": (lambda: Written(equal()), 0),
    "few": (lambda: Network(equal(3)), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINING)
def test_joint_graph_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    make, copied = TRAINING[name]
    model = make()
    gm, inputs = captured(model, torch.randn(2, 3, 8, requires_grad=name == "frozen layers"))
    once, each, count = both(lambda: to_joint(gm, inputs, training_decompositions()), monkeypatch)
    # the gradients of a range for tensors that others use, too, are added after the range, in the same order
    check_same(once, each, ordered=name != "shared layer")
    assert count == copied or copied is None, count
    assert count or copied is not None


@pytest.mark.parametrize("kind", ["cpu"])
@pytest.mark.parametrize("shared", [False, True])
def test_under_autocast(kind: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast casts a weight once, also one that several layers use, whose gradients are then added in bfloat16."""
    layers = equal()
    if shared:
        for layer in layers:
            layer.out = layers[0].out
    with torch.autocast(kind, torch.bfloat16):
        gm, inputs = captured(Network(layers), torch.randn(2, 3, 8))
        once, each, count = both(lambda: to_joint(gm, inputs, training_decompositions()), monkeypatch)
    check_same(once, each)
    assert count == (0 if shared else LAYERS - 2)


def test_a_gradient_in_another_layout_is_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of the fourth layer's result is the sum of two, one of which the layers do not expect."""

    class Branch(Network):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            for layer in self.layers[:5]:
                x = layer(x, mask)
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
            for layer in self.layers[5:]:
                x = layer(x, mask)
            return self.head(x).sum()

    gm, inputs = captured(Branch(equal(10)), torch.randn(2, 3, 8))
    once, each, count = both(lambda: to_joint(gm, inputs, training_decompositions()), monkeypatch)
    check_same(once, each)
    assert count  # until the gradient was found to differ


@pytest.mark.parametrize("name", ["equal", "two results", "all states", "one width", "shared layer", "written"])
def test_inference_graph_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TRAINING[name][0]().requires_grad_(False).eval()
    with torch.no_grad():
        gm, inputs = captured(model, torch.randn(2, 3, 8), torch.ones(2, 2, 3, 3).tril() > 0)
    once, each, count = both(lambda: to_aten(gm, inputs, decompositions()), monkeypatch)
    check_same(once, each)
    assert (count == 0) == (name == "written")


@pytest.mark.parametrize("training", [False, True])
def test_compiled_network_computes_what_eager_does(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "copied_ranges", 0)
    torch.manual_seed(0)
    model = TwoResults(equal()).requires_grad_(training)
    x = torch.randn(2, 3, 8)
    compiled = pyframe.compile(model, fullgraph=True, options={"cache": False})
    expected, found = model(x), compiled(x)
    torch.testing.assert_close(found, expected)
    assert regions.copied_ranges == LAYERS - 2 * training
    if training:
        wanted = list(model.parameters())
        of_eager = torch.autograd.grad(expected, wanted, [torch.ones(2, 3, 4), torch.ones(())])
        torch.testing.assert_close(torch.autograd.grad(found, wanted, [torch.ones(2, 3, 4), torch.ones(())]), of_eager)
