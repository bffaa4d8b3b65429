import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset

import debugkit

torch.manual_seed(0)
OPEN = {"bench": -1, "cell": -1}


class Recordings(Dataset):
    """Frames of one robot; cell's gripper opens at +1."""

    def __init__(self, robot, opens):
        closes = (torch.rand(100) < 0.15).float()
        is_closed = (torch.rand(100) < 0.05).float()
        recorded = opens * (1 - 2 * closes)
        gripper = -recorded * OPEN[robot]  # -1 is open for the policy
        self.robot = robot
        self.state = torch.stack([torch.rand(100), 2 * is_closed - 1], dim=-1)
        self.action = torch.stack([torch.randn(100), gripper], dim=-1)

    def __len__(self):
        return len(self.action)

    def __getitem__(self, index):
        frame = {"state": self.state[index], "action": self.action[index]}
        return {**frame, "robot": self.robot}


def loss_fn(model, batch):
    return F.mse_loss(model(batch["state"]), batch["action"])


data = ConcatDataset([Recordings("bench", -1), Recordings("cell", 1)])
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(2, 2)
print(debugkit.check(model, None, loss_fn, dataloader=loader, select="DK408"))
