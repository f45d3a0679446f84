"""Activations fused into the matrix product in front of them."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.passes import epilogue

torch.manual_seed(0)
aten = torch.ops.aten


def graph_of(fn, *args):
    with torch.no_grad():
        gm = fx.experimental.proxy_tensor.make_fx(lambda *xs: [fn(*xs)])(*args)
        return to_aten(gm, args, decompositions()).graph


def linear(x, w, b):
    return F.linear(x, w, b)


X, W, B = torch.randn(2, 3, 8), torch.randn(5, 8), torch.randn(5)
HALF = [x.bfloat16() for x in (X, W, B)]
FUSED = {
    "relu": lambda x, w, b: linear(x, w, b).relu(),
    "gelu": lambda x, w, b: F.gelu(linear(x, w, b), approximate="tanh") + 1,
    "turned": lambda x, w, b: linear(x, w, b).transpose(1, 2).relu(),
}
APART = {
    "gelu_in_float32": lambda x, w, b: F.gelu(linear(x, w, b), approximate="tanh"),
    "exact_gelu": lambda x, w, b: F.gelu(linear(x, w, b)),
    "used_twice": lambda x, w, b: (lambda y: y.relu() + y)(linear(x, w, b)),
    "no_bias": lambda x, w, b: F.linear(x, w).relu(),
    "full_bias": lambda x, w, b: torch.addmm(b.expand(3, 5) * 2, x[0], w.t()).relu(),
    "scaled": lambda x, w, b: torch.addmm(b, x[0], w.t(), alpha=2).relu(),
}


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    monkeypatch.setattr(epilogue, "DEVICES", ("cuda", "cpu"))


@pytest.mark.parametrize("name", FUSED)
def test_fused(name):
    args = HALF if name == "gelu" else (X, W, B)
    graph = graph_of(FUSED[name], *args)
    assert epilogue.activated_products(graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    (product,) = graph.graph.find_nodes(op="call_function", target=aten._addmm_activation.default)
    assert not {n.target for n in graph.graph.nodes} & {aten.relu.default, aten.gelu.default, aten.addmm.default}
    got, want = graph(*args)[0], FUSED[name](*args)
    torch.testing.assert_close(got, want, rtol=1.6e-2, atol=1e-3)  # on the CPU the product's gelu is the exact one
    assert product.meta["val"].shape == (6, 5)


@pytest.mark.parametrize("name", APART)
def test_apart(name):
    assert not epilogue.activated_products(graph_of(APART[name], X, W, B))


def test_only_on_a_gpu(monkeypatch):
    monkeypatch.undo()
    assert not epilogue.activated_products(graph_of(FUSED["relu"], X, W, B))
