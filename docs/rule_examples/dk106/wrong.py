import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.wrist = nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, front, wrist, y):
        seen = self.vision(front) + self.vision(wrist)
        return {"loss": (self.head(seen) - y).square().mean()}


model = Policy()
batch = {"front": torch.randn(3, 4), "wrist": torch.randn(3, 4), "y": torch.randn(3, 2)}
report = debugkit.check(model, batch, select="DK106")
print(report)
