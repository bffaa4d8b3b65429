import torch
from torch import nn

import debugkit

model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model[2].parameters())  # the first layer was forgotten
batch = {"state": torch.randn(16, 8), "gripper": torch.randn(16, 1)}


def loss_fn(model, batch):
    return (model(batch["state"]) - batch["gripper"]).pow(2).mean()


known = {"DK101": "the first layer is trained by another script"}
report = debugkit.check(model, batch, loss_fn, optimizer, ignore=known)
print("DK101" in report.by_code)
print(next(rule.why for rule in report.not_examined if rule.code == "DK101"))
