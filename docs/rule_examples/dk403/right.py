import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import debugkit

torch.manual_seed(0)


class Frames(Dataset):
    def __init__(self):
        goal = torch.randn(3, 80, 2).cumsum(1)
        self.state = goal.flatten(0, 1)
        self.goal = goal.roll(-1, dims=1).flatten(0, 1)

    def __len__(self):
        return len(self.goal)

    def __getitem__(self, index):
        return {
            "observation.state": self.state[index],
            "action": self.goal[index],
            "episode_index": torch.tensor(index // 80),
        }


loader = DataLoader(Frames(), batch_size=4)
model = nn.Linear(2, 2)


def loss_fn(model, batch):
    return (model(batch["observation.state"]) - batch["action"]).abs().mean()


report = debugkit.check(model, loss_fn=loss_fn, dataloader=loader, select="DK403")
print(report)
