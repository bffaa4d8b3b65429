import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        action = model(batch)
    return (action.float() - 1).square().mean()


model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))
batch = torch.randn(16, 8)
report = debugkit.check(model, batch, loss_fn, select="DK208")
print(report)
