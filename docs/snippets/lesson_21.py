"""Lesson 21's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("21").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches
from policy import DIMENSIONS, build_policy, wrist_demonstrations

frames = wrist_demonstrations(2000, seed=3)
policy = build_policy(frames, seed=0)
batch = next(batches(frames, batch_size=32, steps=1, seed=3))
normaliser = policy.normaliser

for j, name in enumerate(DIMENSIONS):
    raw, normalised = batch["action"][..., j], normaliser.normalise(batch["action"])[..., j]
    print(
        f"{name:<8} {normaliser.low[j]:5.2f} to {normaliser.high[j]:4.2f}"
        f"   raw {int(raw.isfinite().sum()):3d} of {raw.numel()} finite"
        f"   normalised {int(normalised.isfinite().sum()):3d}"
    )
# --8<-- [end:measure]
assert normaliser.normalise(batch["action"])[..., 2].isnan().all()
sys.path.pop(0)
