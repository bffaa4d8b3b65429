"""The measurements of the guide "The loss does not fall", on a model whose encoder is cut off."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, state):
        return self.head(torch.tanh(self.encoder(state)).detach())


torch.manual_seed(0)
model = Policy()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch = {"state": torch.randn(16, 4), "action": torch.randn(16, 2)}


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["action"]).pow(2).mean()


# --8<-- [start:gradients]
print(debugkit.gradient_table(model, batch, loss_fn))
# --8<-- [end:gradients]
# --8<-- [start:check]
print(debugkit.check(model, batch, loss_fn, optimizer, select=["DK1", "DK5"]))
# --8<-- [end:check]
# --8<-- [start:overfit]
result = debugkit.overfit_one_batch(model, batch, loss_fn, steps=60)
print(result.verdict, f"{result.losses[0]:.2f} → {result.losses[-1]:.2f}")
# --8<-- [end:overfit]
assert "DK105" in debugkit.check(model, batch, loss_fn, optimizer, select="DK105").by_code
