"""A LightningModule whose network is compiled: the Trainer, its hooks and its checkpoints need no change.

    python examples/recipes/lightning_fit.py     # needs lightning
"""

import logging
import tempfile
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pyframe

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # about workers and loggers


class Regression(lightning.LightningModule):
    def __init__(self, compiled: bool):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
        if compiled:
            self.network = pyframe.compile(self.network)

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.network(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(compiled: bool) -> Regression:
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(128, 16)
    model = Regression(compiled)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="auto", devices=1, default_root_dir=folder, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, DataLoader(TensorDataset(x, x[:, :4].cos()), batch_size=32))
        trainer.save_checkpoint(f"{folder}/model.ckpt")
        # A checkpoint of the compiled module is one of the plain module, and the reverse.
        state = torch.load(f"{folder}/model.ckpt", weights_only=False)["state_dict"]
    plain = Regression(compiled=False)
    plain.load_state_dict(state)
    return plain


compiled, eager = fit(compiled=True), fit(compiled=False)
print(f"graphs {pyframe.counters['graphs']}, breaks {sum(pyframe.counters['graph_breaks'].values())}")
torch.testing.assert_close(compiled.state_dict(), eager.state_dict(), rtol=1e-3, atol=1e-3)
assert pyframe.counters["graphs"] == 1
