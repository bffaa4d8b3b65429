import torch
from torch import nn

import debugkit

torch.manual_seed(0)
SIZE = 4096


def loss_fn(model, batch):
    return model(batch).square().mean()


model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 4))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(SIZE, 64)
declare = debugkit.Declare(memory_budget=12 * 2**20)
report = debugkit.check(
    model, batch, loss_fn, optimizer, declare=declare, select="DK604"
)
print(report)
