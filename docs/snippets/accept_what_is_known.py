"""Choosing rules, ignoring one with a reason, and a baseline for a project that already has findings."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import debugkit

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model[1].parameters())  # the first layer was forgotten
batch = {"state": torch.randn(16, 8), "gripper": torch.randn(16, 1)}
folder = Path(tempfile.mkdtemp())


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["gripper"]).pow(2).mean()


# --8<-- [start:select]
gradients_only = debugkit.check(model, batch, loss_fn, optimizer, select=["DK1"])
# --8<-- [end:select]
assert "DK101" in gradients_only.by_code

# --8<-- [start:ignore]
report = debugkit.check(
    model, batch, loss_fn, optimizer, ignore={"DK101": "the first layer is trained by another script"}
)
# --8<-- [end:ignore]
assert "DK101" not in report.by_code
assert any("another script" in entry.why for entry in report.not_examined)

# --8<-- [start:baseline]
debugkit.check(model, batch, loss_fn, optimizer).save_json(folder / "debugkit-baseline.json")  # once
report = debugkit.check(model, batch, loss_fn, optimizer, baseline=folder / "debugkit-baseline.json")  # from then on
report.raise_for_errors()  # only what is new
# --8<-- [end:baseline]
assert report.known
