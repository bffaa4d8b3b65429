import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    """As in ACT: an encoder of the action gives the latent in training."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 4), nn.Linear(4 + 5, 3)

    def act(self, state, action=None):
        latent = torch.zeros(len(state), 4) if action is None else self.encoder(action)
        return self.decoder(torch.cat([latent, state], dim=-1))

    def forward(self, state, action):
        return {"loss": (self.act(state, action) - action).square().mean()}

    def predict(self, batch):
        return self.act(**batch)


model = Policy()
batch = {"state": torch.randn(4, 5), "action": torch.randn(4, 3)}
report = debugkit.check(model, batch, select="DK404")
print(report)
