import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Conv2d(3, 8, 4, stride=4)
        self.state = nn.Linear(3, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, pixel_values, state, action):
        image = self.vision(pixel_values).mean((2, 3))
        hidden = self.state(state)
        prediction = self.head(hidden)
        return {"loss": (prediction - action).square().mean(), "action": prediction}


model = Policy()
batch = {
    "pixel_values": torch.randn(4, 3, 8, 8),
    "state": torch.randn(4, 3),
    "action": torch.randn(4, 2),
}
report = debugkit.check(model, batch, select="DK306")
print(report)
