"""Lesson 24: where the first NaN is, in a step whose loss is finite."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("24").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

import torch
from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(32, seed=24), batch_size=32, steps=1, seed=24))
batch["views"] = torch.randn(32, 2, 3, 64, 64, generator=torch.Generator().manual_seed(24))
batch["shows"] = torch.ones(32, 2, 16, dtype=torch.bool)
batch["shows"][5, 1] = False


# --8<-- [start:hooks]
def finite(value):
    return "finite" if value.isfinite().all() else "NaN"


for name, module in policy.named_modules():
    if name.startswith("reader"):
        module.register_forward_hook(
            lambda _, inputs, output, name=name: print(f"{name:<13} {finite(inputs[0]):>6} -> {finite(output)}")
        )
loss = policy(**batch).loss
print(f"loss          {loss:.3f}")
loss.backward()
for name, parameter in policy.named_parameters():
    if name.startswith("reader"):
        print(f"{name:<20} gradient {finite(parameter.grad)}")
# --8<-- [end:hooks]
assert loss.isfinite()
sys.path.pop(0)
