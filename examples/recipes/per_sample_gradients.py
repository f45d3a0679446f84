"""The gradient of each sample with torch.func: `vmap` of `grad` is captured and compiled as one graph.

    python examples/recipes/per_sample_gradients.py
"""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import pyframe

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
parameters = dict(model.named_parameters())


def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(functional_call(model, parameters, (x[None],)), label[None])


def clipped(parameters: dict[str, torch.Tensor], x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The mean of the gradients of all samples, each with a norm of at most 1, as in private training."""
    gradients = vmap(grad(loss), (None, 0, 0))(parameters, x, labels)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    scale = (1 / norms).clamp(max=1)
    return {name: torch.einsum("b,b...->...", scale, g) / len(x) for name, g in gradients.items()}


x, labels = torch.randn(64, 16), torch.randint(4, (64,))
compiled = pyframe.compile(clipped, fullgraph=True)
result, expected = compiled(parameters, x, labels), clipped(parameters, x, labels)
print(f"norm of the mean {result['0.weight'].norm():.4f}, graphs {pyframe.counters['graphs']}")
torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
