import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 7)
)
for layer in model[::2]:
    nn.init.normal_(layer.weight)
batch = (torch.randn(16, 32), torch.randn(16, 7))


def loss_fn(model, batch):
    state, action = batch
    return F.mse_loss(model(state), action)


report = debugkit.check(model, batch, loss_fn, select="DK120")
print(report)
