"""A transform that replaces attention written as products and a softmax by `scaled_dot_product_attention`.

It works on captured graphs, with and without gradients.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

import pyframe

MATMULS = (torch.matmul, operator.matmul)
SOFTMAXES = (torch.softmax, F.softmax)


def is_call(node: Any, targets: tuple[Any, ...], method: str) -> bool:
    """Whether a node calls one of these functions or this method, and only one node uses it."""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return False
    return node.target in targets if node.op == "call_function" else node.op == "call_method" and node.target == method


def keys_of(node: Any) -> Any:
    """`k` of `k.transpose(-2, -1)`; None for anything else."""
    transposed = isinstance(node, fx.Node) and node.op == "call_method" and node.target == "transpose"
    return node.args[0] if transposed and set(node.args[1:]) == {-2, -1} else None


@pyframe.transform
def as_one_attention(gm: fx.GraphModule) -> None:
    """softmax(q @ k.transpose(-2, -1) * s, -1) @ v becomes one call."""
    graph = gm.graph
    for node in list(graph.nodes):
        if node.target not in MATMULS or not is_call(node.args[0], SOFTMAXES, "softmax"):
            continue
        softmax, values = node.args
        dim = softmax.args[1] if len(softmax.args) > 1 else softmax.kwargs.get("dim")
        scaled = softmax.args[0]
        if dim != -1 or not is_call(scaled, (operator.mul, operator.truediv), "mul"):
            continue
        product, number = scaled.args
        if not is_call(product, MATMULS, "matmul") or not isinstance(number, int | float):
            continue
        query, keys = product.args[0], keys_of(product.args[1])
        if keys is None:
            continue
        scale = 1 / number if scaled.target is operator.truediv else number
        with graph.inserting_before(node):
            attention = graph.call_function(F.scaled_dot_product_attention, (query, keys, values), {"scale": scale})
        attention.meta.update(node.meta)
        node.replace_all_uses_with(attention)
    graph.eliminate_dead_code()


class Attention(nn.Module):
    """Attention as it is in papers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


def main() -> tuple[float, int]:
    """The greatest difference from eager in results and gradients, and how many graphs were transformed."""
    torch.manual_seed(0)
    model, x = Attention(32, 4), torch.randn(2, 10, 32)
    before = pyframe.counters["transforms"]
    fast = pyframe.compile(model, options={"transforms": [as_one_attention]})
    expected = model(x)
    expected.sum().backward()
    gradient = model.qkv.weight.grad.clone()
    model.zero_grad()
    found = fast(x)
    found.sum().backward()
    error = max(float((found - expected).detach().abs().max()), float((model.qkv.weight.grad - gradient).abs().max()))
    return error, pyframe.counters["transforms"] - before


if __name__ == "__main__":
    print("greatest error with one call for attention: {:.1e}; graphs: {}".format(*main()))
