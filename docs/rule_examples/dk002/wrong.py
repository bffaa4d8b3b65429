import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    prediction = model(batch["state"])
    error = prediction - batch["gripper"]
    return (error**2).mean()


model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
batch = {"state": torch.randn(5, 3), "gripper": torch.randn(5)}
report = debugkit.check(model, batch, loss_fn, select="DK002")
print(report)
