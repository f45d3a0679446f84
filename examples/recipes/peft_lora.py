"""Training of LoRA adapters with PEFT: the model is compiled after the adapters are in it.

    python examples/recipes/peft_lora.py         # needs peft, transformers
"""

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

import pyframe

config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4,
)  # fmt: skip
ids = torch.randint(256, (4, 32), generator=torch.Generator().manual_seed(0))


def train(compiled: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The loss of each step, and the adapters."""
    torch.manual_seed(0)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(LlamaForCausalLM(config), lora)
    step = pyframe.compile(model) if compiled else model
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = step(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, get_peft_model_state_dict(model)


losses, adapters = train(compiled=True)
expected_losses, expected = train(compiled=False)
print("losses", *(f"{loss:.4f}" for loss in losses), f"graphs {pyframe.counters['graphs']}")
torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected_losses), rtol=1e-3, atol=1e-3)
torch.testing.assert_close(adapters, expected, rtol=1e-2, atol=1e-2)
assert losses[-1] < losses[0] and pyframe.counters["graphs"] == 1
