"""Credit of several horizons: one trunk, one head for each forecast horizon of a company's payments (Lightning).

fault heads_in_a_list: DK101 at here
"""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HORIZONS = (1, 3, 6, 12)


def companies(n, seed):
    g = torch.Generator().manual_seed(seed)
    history = torch.cumsum(torch.randn(n, 24, generator=g) * 0.3, 1) + torch.randn(n, 1, generator=g)
    static = torch.randn(n, 6, generator=g)
    trend = history[:, -1] - history[:, -6]
    y = []
    for h in HORIZONS:
        risk = 0.4 * h ** 0.5 * trend + static[:, 0] - 0.5 * static[:, 1] * static[:, 2] + 0.2 * history[:, -1]
        y.append((risk + 0.5 * torch.randn(n, generator=g) > 0).float())
    return history / 1.5, static, torch.stack(y, 1)


class Horizons(L.LightningModule):
    def __init__(self, hidden=64):
        super().__init__()
        self.series = nn.GRU(1, 32, batch_first=True)
        self.static = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
        self.trunk = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = nn.ModuleList([nn.Sequential(nn.Linear(hidden, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in HORIZONS])  #! heads_in_a_list: self.heads = [nn.Sequential(nn.Linear(hidden, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in HORIZONS]

    def forward(self, history, static):
        _, h = self.series(history.unsqueeze(-1))
        z = self.trunk(torch.cat([h[-1], self.static(static)], -1))
        return torch.cat([head(z) for head in self.heads], -1)

    def shared_step(self, batch, name):
        history, static, y = batch
        logits = self(history, static)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        self.log(f"{name}_loss", loss)
        self.log(f"{name}_acc", ((logits > 0) == y.bool()).float().mean())
        return loss

    def training_step(self, batch, batch_idx):
        return self.shared_step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.shared_step(batch, "val")

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=3e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)}


class Print(L.Callback):
    def on_validation_epoch_end(self, trainer, module):
        print({k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    L.seed_everything(12, verbose=False)
    train = DataLoader(TensorDataset(*companies(1280, 0)), batch_size=40, shuffle=True)
    valid = DataLoader(TensorDataset(*companies(320, 1)), batch_size=80)
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[Print()],
                        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0)
    trainer.fit(Horizons(), train, valid)


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
