import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import debugkit

torch.manual_seed(0)
position = 0.3 * torch.randn(64, 3)
loader = DataLoader(TensorDataset(position, torch.randn(64, 7)), batch_size=16)
model = nn.Sequential(nn.Linear(3, 32), nn.GELU(), nn.Linear(32, 7))


def loss_fn(model, batch):
    position, action = batch
    return F.mse_loss(model(position), action)


report = debugkit.check(
    model, next(iter(loader)), loss_fn, dataloader=loader, select="DK320"
)
print(report)
