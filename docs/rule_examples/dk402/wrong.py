import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def normalize(self, action):
        return (action - self.mean) / self.std

    def forward(self, state, action):
        target = self.normalize(action).nan_to_num()
        return {"loss": (self.head(state) - target).abs().mean()}


action = torch.randn(32, 3)
action[:, 1] = 0.5  # a joint that never moves
model = Policy(action.mean(0), action.std(0))
batch = {"state": torch.randn(32, 4), "action": action}
report = debugkit.check(model, batch, select="DK402")
print(report)
