import torch
from torch import nn

import debugkit

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters())
batch = {"state": torch.randn(16, 8), "gripper": torch.randn(16)}


def loss_fn(model, batch):
    prediction = model(batch["state"])  # (16, 1)
    return (prediction - batch["gripper"]).pow(2).mean()  # (16, 1) - (16,) is (16, 16)


report = debugkit.check(model, batch, loss_fn, optimizer)
print(report)
