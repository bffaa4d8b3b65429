import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters())
cache = {}

with debugkit.watch(model, optimizer, select="DK602") as run:
    for step in range(48):
        cache = {step: torch.randn(512, 32)}
        optimizer.zero_grad()
        (model(cache[step]) - 1).square().mean().backward()
        optimizer.step()
print(run.report)
