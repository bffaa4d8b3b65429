import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import debugkit

torch.manual_seed(0)


class Noisy(Dataset):
    def __init__(self):
        self.data = torch.randn(12, 4)
        self.noise = torch.Generator().manual_seed(0)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index] + torch.randn(4, generator=self.noise)


def loss_fn(model, state):
    return model(state).square().mean()


if __name__ == "__main__":
    loader = DataLoader(Noisy(), batch_size=2, num_workers=2)
    report = debugkit.check(
        nn.Linear(4, 2), torch.randn(2, 4), loss_fn, dataloader=loader, select="DK702"
    )
    print(report)
