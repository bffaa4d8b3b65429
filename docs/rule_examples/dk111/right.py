import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.act = nn.Linear(6, 16), nn.ReLU()
        self.head = nn.Linear(16, 2)

    def forward(self, x, action):
        hidden = self.act(self.vision(x))
        return {"loss": (self.head(hidden) - action).square().mean()}


model = Policy()
nn.init.constant_(model.vision.bias, 0.0)
batch = {"x": torch.randn(16, 6), "action": torch.randn(16, 2)}
report = debugkit.check(model, batch, select="DK111")
print(report)
