import torch
from torch import nn

import debugkit

torch.manual_seed(0)

tower = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
tower.requires_grad_(False)
model = nn.Sequential(tower, nn.Linear(4, 2)).train()


def loss_fn(model, batch):
    return model(batch).square().mean()


optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(6, 4)
report = debugkit.check(model, batch, loss_fn, optimizer, select="DK112")
print(report)
