import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (model(batch.to(model[0].weight.dtype)) - 1).float().square().mean()


model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
batch = torch.randn(16, 8)
report = debugkit.check(model, batch, loss_fn, optimizer, select="DK204")
print(report)
