import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import debugkit

torch.manual_seed(0)


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


labels = torch.arange(400).div(100, rounding_mode="floor")  # as read from four folders
order = torch.randperm(400)  # or DataLoader(…, shuffle=True)
dataset = TensorDataset(torch.randn(400, 8)[order], labels[order])
loader = DataLoader(dataset, batch_size=16)
report = debugkit.check(
    nn.Linear(8, 4), loss_fn=loss_fn, dataloader=loader, select="DK318"
)
print(report)
