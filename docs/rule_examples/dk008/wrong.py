import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.skip = nn.Conv2d(3, 8, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, image, target):
        fine = self.skip(image)
        x = self.up(self.down(image).relu())
        if fine.shape[1] == x.shape[2]:
            x = x + fine
        return {"loss": (self.head(x) - target).square().mean()}


model = UNet()
batch = {"image": torch.randn(2, 3, 16, 16), "target": torch.randn(2, 1, 16, 16)}
report = debugkit.check(model, batch, select="DK008")
print(report)
