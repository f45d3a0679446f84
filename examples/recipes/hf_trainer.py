"""A model compiled by pyframe, trained by the Trainer of transformers.

    python examples/recipes/hf_trainer.py        # needs transformers, accelerate
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import pyframe


class Counting(torch.utils.data.Dataset):
    """Rows of 32 consecutive numbers."""

    def __len__(self):
        return 64

    def __getitem__(self, row):
        ids = torch.arange(row, row + 32) % 100
        return {"input_ids": ids, "labels": ids}


def train(compiled: bool) -> tuple[list[float], GPT2LMHeadModel]:
    """The loss of each step, and the model."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_layer=2, n_head=2, n_embd=64, n_positions=32)
    config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=6, per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=1, report_to="none",
            disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
        )  # fmt: skip
        trainer = Trainer(pyframe.compile(model) if compiled else model, arguments, train_dataset=Counting())
        trainer.train()
        trainer.save_model(folder)  # the files are those of the model itself
        saved = GPT2LMHeadModel.from_pretrained(folder)
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], saved


eager, _ = train(compiled=False)
losses, saved = train(compiled=True)
print("losses", *(f"{loss:.3f}" for loss in losses))
print(f"graphs {pyframe.counters['graphs']}, breaks {sum(pyframe.counters['graph_breaks'].values())}")
torch.testing.assert_close(torch.tensor(losses), torch.tensor(eager), rtol=1e-3, atol=1e-3)
assert type(saved) is GPT2LMHeadModel and losses[-1] < losses[0]
assert pyframe.counters["graphs"] == 1
