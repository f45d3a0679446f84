"""Weights in int8 with torchao: quantize, then compile, so that conversion and product are in one graph.

    python examples/recipes/quantization.py      # needs torchao
"""

import torch
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import pyframe

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval().to(device)
x = torch.randn(8, 64, device=device)
with torch.no_grad():
    exact = model(x)
    quantize_(model, Int8WeightOnlyConfig())
    expected = model(x)
    compiled = pyframe.compile(model, fullgraph=True)
    result = compiled(x)

print(f"error of int8 weights {(expected - exact).abs().max() / exact.abs().max():.4f}")
print(f"of compilation {(result - expected).abs().max() / exact.abs().max():.6f}, graphs {pyframe.counters['graphs']}")
torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)
