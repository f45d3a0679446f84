"""Biases of matrix products become part of the kernels behind them, and only there."""

import pytest
import torch
import torch.nn.functional as F

import inductor
from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.passes.bias import biases_apart

torch.manual_seed(0)
X, W, B = torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)


def targets(fn, *args):
    gm = to_aten(torch.fx.symbolic_trace(fn), args, decompositions()).graph
    biases_apart(gm)
    gm.graph.lint()
    return [str(n.target).removesuffix(".default") for n in gm.graph.nodes if "mm" in str(n.target)]


@pytest.mark.parametrize("fn, product", [
    (lambda x, w, b: F.gelu(F.linear(x, w, b)), "aten.mm"),
    (lambda x, w, b: F.linear(x, w, b).view(2, 3, 5).transpose(0, 1).softmax(-1) + 1, "aten.mm"),
    (lambda x, w, b: F.linear(x, w, b), "aten.addmm"),  # a result: the addition would be a pass of its own
    (lambda x, w, b: (F.linear(x, w, b).relu(), F.linear(x, w, b)), None),
    (lambda x, w, b: F.linear(x, w, b) @ w, "aten.addmm"),  # read by an operator
    (lambda x, w, b: F.gelu(torch.addmm(b, x, w.t(), beta=2)), "aten.addmm"),
    (lambda x, w, b: F.gelu(F.linear(x.bfloat16(), w.bfloat16(), b.bfloat16())), "aten.addmm"),  # rounded once
])
def test_where(fn, product):
    found = targets(fn, X, W, B)
    assert found[0] == product if product else sorted(found) == ["aten.addmm", "aten.mm"]
    gm = torch.fx.symbolic_trace(fn)
    with torch.no_grad():
        got = inductor.compile_fx(gm, [X, W, B], options={"strict": True})(X, W, B)
        torch.testing.assert_close(got, fn(X, W, B))
