"""A training loop with accelerate: the compiled model goes through `prepare` as the model itself would.

    python examples/recipes/accelerate_loop.py   # needs accelerate
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pyframe

torch.manual_seed(0)
inputs = torch.randn(256, 32)
targets = inputs[:, :8].sin()


def train(compiled: bool) -> tuple[float, dict[str, torch.Tensor]]:
    """The last loss, and the parameters."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if compiled:
        model = pyframe.compile(model)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return loss.item(), accelerator.get_state_dict(model)


loss, parameters = train(compiled=True)
expected_loss, expected = train(compiled=False)
print(f"loss {loss:.4f}, eager {expected_loss:.4f}, graphs {pyframe.counters['graphs']}")
torch.testing.assert_close(parameters, expected, rtol=1e-3, atol=1e-3)
assert pyframe.counters["graphs"] == 1
