"""The measurements of the guide "Two runs differ": a loss that reads a clock, a data set that holds a generator."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import debugkit


class Frames(Dataset):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return {"state": torch.randn(4, generator=self.generator)}


def loss_fn(model, batch):
    return model(batch["state"]).pow(2).mean() * (1 + time.time() % 1)


# --8<-- [start:seed]
print(debugkit.seed_everything(0))
# --8<-- [end:seed]
model, batch = nn.Linear(4, 2), {"state": torch.randn(8, 4)}
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(Frames(), batch_size=4, num_workers=2)
# --8<-- [start:step]
print(debugkit.check(model, batch, loss_fn, optimizer, select=["DK701", "DK704"]))
# --8<-- [end:step]
# --8<-- [start:loader]
report = debugkit.check(model, batch, loss_fn, dataloader=loader, select=["DK702", "DK703"])
print(report)
# --8<-- [end:loader]
assert set(report.by_code) == {"DK702"}
