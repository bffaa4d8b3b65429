import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import debugkit

torch.manual_seed(0)

data = TensorDataset(torch.randn(20, 6))
train = DataLoader(Subset(data, range(16)), batch_size=4)
validation = DataLoader(Subset(data, range(14, 20)), batch_size=4)
model = nn.Linear(6, 2)


def loss_fn(model, batch):
    return model(batch[0]).square().mean()


loaders = {"train": train, "validation": validation}
report = debugkit.check(model, loss_fn=loss_fn, dataloader=loaders, select="DK311")
print(report)
