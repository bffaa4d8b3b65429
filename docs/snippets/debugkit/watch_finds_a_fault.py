import torch
from torch import nn

import debugkit

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

with debugkit.watch(model, optimizer) as run:
    for _ in range(8):
        loss = (model(torch.randn(16, 8)) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()  # zero_grad() was forgotten

for finding in run.report.findings:
    print(finding.code, "in step", finding.location.step)
    print(finding.message)
