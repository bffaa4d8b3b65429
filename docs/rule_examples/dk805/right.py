import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import debugkit

torch.manual_seed(0)


class PartOfAShuffle(Sampler):
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        shuffled = torch.randperm(24, generator=torch.Generator().manual_seed(0))
        yield from shuffled[self.rank :: self.world_size].tolist()

    def __len__(self):
        return 12


def loss_fn(model, state):
    return model(state[0]).square().mean()


model = nn.Linear(4, 2)
data = TensorDataset(torch.randn(24, 4))
loader = DataLoader(data, batch_size=2, sampler=PartOfAShuffle(0, 2))
report = debugkit.check(model, loss_fn=loss_fn, dataloader=loader, select="DK805")
print(report)
