"""What `debugkit check build.py:build` examines."""

# --8<-- [start:build]
import torch
from torch import nn


def build():
    model = nn.Linear(8, 1)
    batch = {"state": torch.randn(16, 8), "gripper": torch.randn(16)}
    return {"model": model, "batch": batch, "loss_fn": loss, "optimizer": torch.optim.AdamW(model.parameters())}


def loss(model, batch):
    return (model(batch["state"]) - batch["gripper"]).pow(2).mean()


# --8<-- [end:build]
assert set(build()) == {"model", "batch", "loss_fn", "optimizer"}
