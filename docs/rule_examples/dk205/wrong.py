import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batches = [(torch.randn(16, 3), torch.randn(16, 2)) for _ in range(40)]
batches[30][1].mul_(1000)  # one recording is in millimetres

with debugkit.watch(model, optimizer, select="DK205") as run:
    for state, action in batches:
        optimizer.zero_grad()
        (model(state) - action).square().mean().backward()
        optimizer.step()
print(run.report)
