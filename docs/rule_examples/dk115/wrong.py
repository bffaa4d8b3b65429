import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with debugkit.watch(model, optimizer, select="DK115") as run:
    for _ in range(10):
        state = torch.randn(16, 3)
        grasped = (state[:, 0] > 0).long()
        optimizer.zero_grad()
        F.cross_entropy(model(state), grasped * 0).backward()
        optimizer.step()
print(run.report)
