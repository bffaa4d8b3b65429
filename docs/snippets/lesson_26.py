"""Lesson 26's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("26").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from policy import build_policy

import debugkit
from labs.vla.dataset import batches, demonstrations

policy = build_policy(seed=0)
batch = next(batches(demonstrations(128, seed=26), batch_size=128, steps=1, seed=26))

for seed in range(3000):
    torch.manual_seed(seed)
    if policy(**batch).loss.isnan():
        break
print(f"seed {seed}: the loss is nan;", end=" ")
print(f"seed {seed + 1}: {policy(**batch).loss.item():.3f}, with the same batch and weights")


def again(policy, batch):
    torch.manual_seed(seed)
    return policy(**batch).loss


origin = debugkit.first_nonfinite(policy, batch, again)
print(f"`{origin.operation}` returned {origin.kind} for finite input in `{origin.code}`")
# --8<-- [end:measure]
assert policy(**batch).loss.isfinite()
sys.path.pop(0)
