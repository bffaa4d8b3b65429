"""Lesson 51's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("51").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import batches, demonstrations
from policy import build_policy, train

batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
for phase, head_steps in (("head", 5), ("whole", 0)):
    policy = build_policy(seed=0)
    changes_nothing = torch.optim.SGD(policy.parameters(), lr=0.0)
    log = train(policy, changes_nothing, [batch] * 5, head_steps)
    losses = "  ".join(f"{line.loss:.4f}" for line in log)
    norms = "  ".join(f"{line.gradient_norm:.4f}" for line in log)
    print(f"{phase:<5}  loss  {losses}\n       norm  {norms}")
# --8<-- [end:measure]
assert log[4].gradient_norm > 4.9 * log[0].gradient_norm
sys.path.pop(0)
