"""Lesson 45's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("45").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches
from policy import build_policy, windowed_demonstrations

policy = build_policy(seed=0).eval()
batch = next(batches(windowed_demonstrations(64, seed=3), batch_size=64, steps=1, seed=3))
chunk = policy.predict(batch)

names = ("action", "state before", "state present", "state next")
for name in names:
    other = {key: value.clone() for key, value in batch.items()}
    entry = other["action"] if name == "action" else other["state"][:, names.index(name) - 1]
    entry.copy_(entry.roll(1, dims=0))  # every frame gets another frame's
    moved = (policy.predict(other) - chunk)[..., :2].abs().max()
    print(f"another {name:<14} moves the chunk by up to {1000 * moved:5.1f} mm")
# --8<-- [end:measure]
assert moved > 1e-4
sys.path.pop(0)
