import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import debugkit

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with debugkit.watch(model, optimizer, select="DK803") as run:
    for _ in range(3):
        optimizer.zero_grad()
        model.module(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
print(run.report)
dist.destroy_process_group()
