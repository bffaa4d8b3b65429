import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    """A chunk of four actions from a state."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 4 * 3)

    def forward(self, state, action, action_is_pad):
        error = (self.head(state).unflatten(-1, (4, 3)) - action).abs()
        valid = ~action_is_pad.unsqueeze(-1)
        return {"loss": (error * valid).mean()}


model = Policy()
is_pad = torch.zeros(6, 4, dtype=torch.bool)
is_pad[1, 2:] = is_pad[2, 1:] = True
batch = {
    "state": torch.randn(6, 5),
    "action": torch.randn(6, 4, 3),
    "action_is_pad": is_pad,
}
report = debugkit.check(model, batch, select="DK309")
print(report)
