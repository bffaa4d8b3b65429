"""A training loop without zero_grad, watched."""

import torch
from torch import nn

import debugkit

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batches = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(8)]

# --8<-- [start:watch]
with debugkit.watch(model, optimizer) as run:
    for state, action in batches:
        loss = (model(state) - action).pow(2).mean()
        loss.backward()
        optimizer.step()

for finding in run.report.findings:
    print(finding.code, finding.location.step, finding.message)
# --8<-- [end:watch]

assert "DK501" in run.report.by_code
