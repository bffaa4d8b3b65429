import torch
from torch import nn
from torch.nn import functional as F

import debugkit

torch.manual_seed(0)
layers = [nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)]
model = nn.Sequential(*layers, nn.GELU(), nn.Linear(32, 7))
model.requires_grad_(False)
model[4].requires_grad_(True)
batch = (torch.randn(16, 6), torch.randn(16, 7))


def loss_fn(model, batch):
    state, action = batch
    return F.mse_loss(model(state), action)


report = debugkit.check(model, batch, loss_fn, select="DK117")
print(report)
