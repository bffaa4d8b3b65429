import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0

with debugkit.watch(model, optimizer, select="DK601") as run:
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(torch.randn(4, 3)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        total += loss
print(run.report)
