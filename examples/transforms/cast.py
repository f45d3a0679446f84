"""A transform that computes matrix products in bfloat16: operands are cast before, results after.

It works on ATen graphs without gradients and on the joint graph of training, so the products of the backward are cast,
too.
"""

from __future__ import annotations

import torch
from torch import fx

import pyframe

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default)


@pyframe.transform(at=("aten", "joint"))
def products_in_bfloat16(gm: fx.GraphModule) -> None:
    graph = gm.graph
    for node in list(graph.nodes):
        if node.target not in PRODUCTS or node.meta["val"].dtype != torch.float32:
            continue
        with graph.inserting_before(node):
            node.args = tuple(
                graph.call_function(aten.to.dtype, (arg, torch.bfloat16)) if isinstance(arg, fx.Node) else arg
                for arg in node.args
            )
        with graph.inserting_after(node):
            wide = graph.call_function(aten.to.dtype, (node, torch.float32))
        node.replace_all_uses_with(wide, delete_user_cb=lambda user, wide=wide: user is not wide)


def main() -> float:
    """The greatest difference from eager in float32, relative to the largest result."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
    x = torch.randn(16, 64)
    fast = pyframe.compile(model, options={"transforms": [products_in_bfloat16]})
    with torch.no_grad():
        expected, found = model(x), fast(x)
    fast(x).sum().backward()
    return float((found - expected).abs().max() / expected.abs().max())


if __name__ == "__main__":
    print(f"relative error of products in bfloat16: {main():.1e}")
