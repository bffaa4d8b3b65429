import torch
from torch import nn

import debugkit

torch.manual_seed(0)

model = nn.Linear(8, 4, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=3.4)
with debugkit.watch(model, optimizer, select="DK206") as run:
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(512, 8)).square().mean().backward()
        optimizer.step()
print(run.report)
