"""Lightning: OneCycleLR over all batches, stepped for each batch.

fault interval_missing: DK503
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(0)


class LitMLP(L.LightningModule):
    def __init__(self, max_lr=0.05):
        super().__init__()
        self.max_lr = max_lr
        self.net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 6))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, max_lr=self.max_lr, total_steps=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}  #! interval_missing: return [opt], [sched]


def train():
    x = torch.randn(1200, 24)
    y = (x @ torch.randn(24, 6)).argmax(1)
    train = DataLoader(TensorDataset(x[:1000], y[:1000]), batch_size=20, shuffle=True)
    val = DataLoader(TensorDataset(x[1000:], y[1000:]), batch_size=100)
    model = LitMLP()
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, train, val)
    print({k: round(float(v), 3) for k, v in trainer.callback_metrics.items()},
          "final lr", trainer.optimizers[0].param_groups[0]["lr"])


WATCH = ()
