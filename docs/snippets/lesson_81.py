"""Lesson 81's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("81").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from labs.vla.dataset import batches, demonstrations
from policy import MixedPolicy

whole = next(batches(demonstrations(16, seed=8), batch_size=16, steps=1, seed=8))
sight = {
    "16 images": torch.ones(16, dtype=torch.bool),
    "1 image": torch.arange(16) == 0,
    "no image": torch.zeros(16, dtype=torch.bool),
}

for name, has_image in sight.items():
    policy = MixedPolicy.from_base(seed=0)
    batch = {**whole, "pixel_values": whole["pixel_values"][has_image], "has_image": has_image}
    policy(**batch).loss.backward()
    without = [part for part, value in policy.named_parameters() if value.grad is None]
    towers = sorted({part.partition(".")[0] for part in without})
    print(f"{name:<12} {len(without):2d} parameters without a gradient  {', '.join(towers) or '–'}")
# --8<-- [end:measure]
assert towers == ["projector", "vision"]
sys.path.pop(0)
