import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())

with debugkit.watch(model, optimizer, select="DK504") as run:
    for _ in range(5):
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
print(run.report)
