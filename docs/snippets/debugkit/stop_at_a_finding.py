import torch
from torch import nn

import debugkit

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
before = model.weight.detach().clone()
state = torch.zeros(4, 8)

try:
    with debugkit.watch(model, optimizer, on_finding="raise"):
        distance = (model(state) - model(state)).pow(2).sum(dim=1).sqrt()  # 0, whose root has no slope
        distance.mean().backward()
        optimizer.step()
except debugkit.DebugkitError as error:
    print(error.report.errors[0].message)
print("weights unchanged:", torch.equal(model.weight, before))
