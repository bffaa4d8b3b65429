import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_tower = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision_tower(x)).square().mean()}


pretrained, model = Policy().vision_tower, Policy()
saved = {f"vision_tower.{name}": p for name, p in pretrained.state_dict().items()}
model.load_state_dict(saved, strict=False)
declare = debugkit.Declare(checkpoint=saved, fresh=("head.*",))
batch = {"x": torch.randn(5, 3)}
report = debugkit.check(model, batch, declare=declare, select="DK114")
print(report)
