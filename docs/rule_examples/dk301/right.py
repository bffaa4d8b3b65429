import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Conv2d(3, 8, 8, stride=8)

    def forward(self, pixel_values):
        return {"loss": self.vision(pixel_values).square().mean()}


model = Policy()
camera = torch.randint(0, 256, (2, 3, 16, 16))
batch = {"pixel_values": camera.float() / 127.5 - 1}
report = debugkit.check(model, batch, select="DK301")
print(report)
