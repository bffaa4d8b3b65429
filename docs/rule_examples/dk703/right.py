import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import debugkit

torch.manual_seed(0)


class Shuffled(Sampler):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self):
        yield from torch.randperm(12, generator=self.generator).tolist()

    def __len__(self):
        return 12


def loss_fn(model, state):
    return model(state[0]).square().mean()


model = nn.Linear(4, 2)
data = TensorDataset(torch.randn(12, 4))
loader = DataLoader(data, batch_size=2, sampler=Shuffled())
report = debugkit.check(model, loss_fn=loss_fn, dataloader=loader, select="DK703")
print(report)
