import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_model, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision_model(x)).square().mean()}


model = Policy()
for name, parameter in model.named_parameters():
    if "vision_model" in name:
        parameter.requires_grad_(False)
declare = debugkit.Declare(trainable=("head.*",))
batch = {"x": torch.randn(5, 3)}
report = debugkit.check(model, batch, declare=declare, select="DK113")
print(report)
