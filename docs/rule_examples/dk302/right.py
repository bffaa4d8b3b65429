import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Conv2d(3, 8, 4, stride=4)

    def forward(self, image):
        return {"loss": self.vision(image).square().mean()}


def scaled(image):
    """[0, 1] to [-1, 1]"""
    return 2 * image - 1


model = Policy()
picture = torch.rand(2, 3, 24, 24) ** 1.2
batch = {"image": scaled(picture)}
report = debugkit.check(model, batch, select="DK302")
print(report)
