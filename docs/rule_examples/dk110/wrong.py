import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.vision, self.head = nn.Linear(16, 32), head

    def forward(self, x, action):
        return {"loss": (self.head(self.vision(x)) - action).square().mean()}


layers = [layer for _ in range(10) for layer in (nn.Linear(32, 32), nn.ReLU())]
for layer in layers[::2]:
    nn.init.normal_(layer.weight, std=1.0)
head = nn.Sequential(*layers, nn.Linear(32, 4))
batch = {"x": torch.randn(32, 16), "action": torch.randn(32, 4)}
model = Policy(head)
report = debugkit.check(model, batch, select="DK110")
print(report)
