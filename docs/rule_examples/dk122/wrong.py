import torch
from torch import nn

import debugkit

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
batch = {
    "observation": torch.randn(64, 4),
    "action": torch.randint(0, 3, (64,)),
    "advantage": torch.randn(64),
}


def loss_fn(model, batch):
    moves = torch.distributions.Categorical(logits=model(batch["observation"]))
    gain = (moves.log_prob(batch["action"]) * batch["advantage"]).mean()
    entropy = moves.entropy().mean()
    return -gain - 1e4 * entropy


print(
    debugkit.check(policy, batch, loss_fn=loss_fn, optimizer=optimizer, select="DK122")
)
