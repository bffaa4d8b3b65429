"""The measurements of the guide "The loss is NaN", on a model that divides by a length of zero."""

import torch
from torch import nn

import debugkit


class Direction(nn.Module):
    def forward(self, x):
        return x / x.pow(2).sum(-1, keepdim=True).sqrt()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), Direction(), nn.Linear(8, 2))
batch = {"state": torch.cat([torch.randn(3, 4), torch.zeros(1, 4)]), "action": torch.zeros(4, 2)}


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["action"]).pow(2).mean()


# --8<-- [start:data]
print({name: bool(value.isfinite().all()) for name, value in batch.items()})
# --8<-- [end:data]
# --8<-- [start:origin]
origin = debugkit.first_nonfinite(model, batch, loss_fn)
print(origin and (origin.kind, origin.operation, origin.module, origin.at))
# --8<-- [end:origin]
assert (origin.kind, origin.operation, origin.module) == ("NaN", "div", "2")
