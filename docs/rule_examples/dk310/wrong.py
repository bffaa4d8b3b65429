import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import debugkit

torch.manual_seed(0)

x = torch.randn(200, 6)
labels = (x[:, 0] > 0).long()[torch.randperm(200)]
loader = DataLoader(TensorDataset(x, labels), batch_size=16)
model = nn.Linear(6, 2)


def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


report = debugkit.check(model, loss_fn=loss_fn, dataloader=loader, select="DK310")
print(report)
