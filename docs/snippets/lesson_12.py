"""Lesson 12's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("12").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
policy(**batch).loss.backward()

for name, part in policy.named_children():
    parameters = list(part.parameters())
    reached = sum(parameter.grad is not None for parameter in parameters)
    if parameters:
        print(f"{name:<15} {reached:2d} of {len(parameters):2d} parameters have a gradient")
# --8<-- [end:measure]
assert all(parameter.grad is None for parameter in policy.vision.parameters())
sys.path.pop(0)
