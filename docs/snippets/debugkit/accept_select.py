import torch
from torch import nn

import debugkit

model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model[2].parameters())  # the first layer was forgotten
batch = {"state": torch.randn(16, 8), "gripper": torch.randn(16, 1)}


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["gripper"]).pow(2).mean()


report = debugkit.check(model, batch, loss_fn, optimizer, select=["DK1"])
print(*report.by_code)
