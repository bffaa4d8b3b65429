import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))

with debugkit.watch(model, optimizer, select="DK503") as run:
    for micro in range(32):
        (model(torch.randn(4, 3)).square().mean() / 8).backward()
        if micro % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
print(run.report)
