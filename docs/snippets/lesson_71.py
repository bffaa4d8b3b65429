"""Lesson 71's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("71").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from policy import build_loader, stream

loader = build_loader(tables=8, seed=0, batch_size=2, workers=2)
arms = torch.cat([batch["state"][:, :2] for batch in stream(loader, epochs=2)]).view(2, 8, 2)  # (epoch, table, x y)

for table in range(8):
    worker = table // 2 % 2
    first, second = (f"({x:.3f}, {y:.3f})" for x, y in arms[:, table].tolist())
    print(f"table {table}, worker {worker}   arm at {first} in epoch 0, {second} in epoch 1")
print(f"{len(arms.flatten(0, 1).unique(dim=0))} different tables of {arms[..., 0].numel()}")
# --8<-- [end:measure]
assert len(arms.flatten(0, 1).unique(dim=0)) == 4
sys.path.pop(0)
