"""Lesson 91: losses of exactly 0 and of NaN, made by the data alone."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("91").folder))
sys.modules.pop("policy", None)

# --8<-- [start:data]
import torch
from policy import build_module

from labs.vla.dataset import batches, demonstrations

module = build_module(seed=0)
batch = next(batches(demonstrations(16, seed=91), 16, steps=1, seed=91))
padded = {**batch, "action_is_pad": torch.ones_like(batch["action_is_pad"])}
broken = {**batch, "state": batch["state"].clone().index_fill_(0, torch.tensor([3]), float("nan"))}
for name, given in (("as it is", batch), ("all of it padding", padded), ("one state of 16 is NaN", broken)):
    print(f"{name:<24} loss {module.motion_loss(given).item():.3f}")
# --8<-- [end:data]
assert module.motion_loss(padded).item() == 0
assert module.motion_loss(broken).isnan()
sys.path.pop(0)
