import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)

with debugkit.watch(model, optimizer, select="DK207") as run:
    for _ in range(24):
        state = torch.randn(16, 3)
        optimizer.zero_grad()
        (model(state) - state[:, :2]).square().mean().backward()
        optimizer.step()
print(run.report)
