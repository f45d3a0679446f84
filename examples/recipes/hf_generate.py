"""`generate` of transformers with a static cache: one captured graph for the prompt, one for all tokens after it.

    python examples/recipes/hf_generate.py       # needs transformers
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import pyframe

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128,
)  # fmt: skip
model = LlamaForCausalLM(config).eval().to(device)
prompt = torch.randint(1, 256, (1, 12), device=device)
settings = dict(
    max_new_tokens=20, do_sample=False, cache_implementation="static", pad_token_id=0, eos_token_id=None,
    disable_compile=True,  # generate does not call torch.compile by itself
)  # fmt: skip

expected = model.generate(prompt, **settings)
model.forward = pyframe.compile(model.forward, mode="reduce-overhead")  # on the CPU this is the default mode
tokens = model.generate(prompt, **settings)
captured = pyframe.counters["graphs"]
assert torch.equal(tokens, expected)

# Another prompt of another length: what is captured serves it, or is captured once for all lengths.
longer = torch.randint(1, 256, (1, 17), device=device)
model.generate(longer, **settings)
after = pyframe.counters["graphs"]
model.generate(torch.randint(1, 256, (1, 23), device=device), **settings)
print("tokens", tokens[0, 12:].tolist())
print(f"graphs {captured}, with a second length {after}, with a third {pyframe.counters['graphs']}")
assert pyframe.counters["graphs"] == after
