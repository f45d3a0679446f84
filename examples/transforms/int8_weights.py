"""A transform that keeps the weights of linear layers as int8 with one scale per row.

It works on captured graphs, where a linear layer is one call. Weights are inputs of the graph, so they are quantised in
each call unless the module holds them already quantised: `quantised` makes such a module of an exported program, whose
weights are constants.
"""

from __future__ import annotations

import torch
from torch import fx, nn
from torch.nn import functional as F

import pyframe


def rows_as_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 values and the scale of each row, with `values * scales` close to `weight`."""
    scales = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return torch.round(weight / scales).to(torch.int8), scales


def int8_linears(gm: fx.GraphModule) -> None:
    """Replace the weight of each linear layer, an attribute of `gm`, by int8 values and scales."""
    graph = gm.graph
    for node in list(graph.nodes):
        weight = node.args[1] if node.target is F.linear else None
        if not isinstance(weight, fx.Node) or weight.op != "get_attr":
            continue
        path, _, name = str(weight.target).rpartition(".")
        owner = gm.get_submodule(path)
        values, scales = rows_as_int8(getattr(owner, name).detach())
        owner.register_buffer(f"{name}_int8", values)
        owner.register_buffer(f"{name}_scales", scales)
        with graph.inserting_before(node):
            found = graph.get_attr(f"{weight.target}_int8")
            found = graph.call_method("to", (found, torch.float32))
            found = graph.call_function(torch.mul, (found, graph.get_attr(f"{weight.target}_scales")))
        node.args = (node.args[0], found, *node.args[2:])
        if not weight.users:
            graph.erase_node(weight)
            delattr(owner, name)
    gm.recompile()


def quantised(model: nn.Module, *args: torch.Tensor) -> fx.GraphModule:
    """`model` as a graph whose linear layers have int8 weights; it returns a tuple."""
    gm = pyframe.export(model)(*args).graph_module
    int8_linears(gm)
    return gm


def main() -> tuple[float, float]:
    """The greatest difference from eager, relative to the largest result, and the size of the weights over that in
    float32."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).eval()
    x = torch.randn(16, 64)
    with torch.no_grad():
        expected = model(x)
        small = quantised(model, x)
        (found,) = pyframe.compile(small)(x)
    before = sum(p.numel() * p.element_size() for p in model.parameters())
    after = sum(t.numel() * t.element_size() for t in small.state_dict().values())
    return float((found - expected).abs().max() / expected.abs().max()), after / before


if __name__ == "__main__":
    error, size = main()
    print(f"relative error of int8 weights: {error:.1e}; size {size:.2f} of float32")
