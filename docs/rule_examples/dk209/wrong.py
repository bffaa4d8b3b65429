import torch
from torch import nn

import debugkit

torch.manual_seed(0)
SCALE = 1.0


def loss_fn(model, batch):
    loss = (model(batch).float() - 0.01).square().mean() * 1e-6
    return loss * SCALE


model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)).half()
batch = torch.randn(16, 8).half() * 0.01
report = debugkit.check(model, batch, loss_fn, select="DK209")
print(report)
