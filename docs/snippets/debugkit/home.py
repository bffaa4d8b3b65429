import torch
from torch import nn

import debugkit

model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
batch = {"state": torch.randn(16, 8), "gripper": torch.randn(16)}


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["gripper"]).pow(2).mean()


report = debugkit.check(model, batch, loss_fn, optimizer)
print(report.errors[0].message)
