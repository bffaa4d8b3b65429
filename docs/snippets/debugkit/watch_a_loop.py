import torch
from torch import nn

import debugkit

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(8)]

with debugkit.watch(model, optimizer) as run:
    for state, action in batches:
        optimizer.zero_grad()
        loss = (model(state) - action).pow(2).mean()
        loss.backward()
        optimizer.step()

print(run.steps, "steps:", "ok" if run.report.ok else run.report)
