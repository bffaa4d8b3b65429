import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self, vision_width=48, text_width=32, action_dim=7):
        super().__init__()
        self.vision = nn.Linear(64, vision_width)
        self.projector = nn.Linear(32, text_width)
        self.head = nn.Linear(text_width, action_dim)

    def forward(self, patches, action):
        embeddings = self.projector(self.vision(patches))
        return {"loss": (self.head(embeddings.mean(1)) - action).square().mean()}


model = Policy()
batch = {"patches": torch.randn(2, 4, 64), "action": torch.randn(2, 7)}
report = debugkit.check(model, batch, select="DK001")
print(report)
