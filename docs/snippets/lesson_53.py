"""Lesson 53's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("53").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import batches, demonstrations
from policy import accumulate, build_policy, split

batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))


def gradient(window):
    policy = build_policy(seed=3)
    accumulate(policy, window)
    return torch.cat([p.grad.flatten() for p in policy.parameters()])


whole = gradient([batch])
for parts in (2, 4, 8):
    window = split(batch, parts)
    found = gradient(window)
    error = (found - whole).norm() / whole.norm()
    cosine = torch.cosine_similarity(found, whole, dim=0)
    frames = [len(micro_batch["state"]) for micro_batch in window]
    print(f"{parts} micro-batches of {frames} frames: relative error {error:.2g}, cosine {cosine:.3f}")
# --8<-- [end:measure]
assert error > 0.3
sys.path.pop(0)
