import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 7))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with debugkit.watch(model, optimizer, select="DK119") as run:
    for _ in range(3):
        state, action = torch.randn(16, 6), torch.randn(16, 7)
        loss = F.mse_loss(model(state), action)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(run.report)
