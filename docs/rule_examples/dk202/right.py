import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    moved = model(batch) - model(batch).detach()  # 0 in the first step
    return moved.pow(2).sum(-1).add(1e-12).sqrt().mean()


model = nn.Linear(3, 2)
batch = torch.randn(4, 3)
report = debugkit.check(model, batch, loss_fn, select="DK202")
print(report)
