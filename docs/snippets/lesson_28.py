"""Lesson 28's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("28").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy
from policy import frame_weights, in_half_precision, weighted_loss

batch = next(batches(demonstrations(32, seed=28), batch_size=16, steps=1, seed=28))
weight = frame_weights(torch.ones(16))
smallest = torch.finfo(torch.float16).tiny  # 6.1e-05: below it, digits are lost


def size_of_gradients(policy, batch):
    weighted_loss(policy, batch, weight).backward()
    return torch.cat([parameter.grad.float().abs().flatten() for parameter in policy.parameters()])


for size in (
    size_of_gradients(Policy.from_base(seed=28), batch),
    size_of_gradients(Policy.from_base(seed=28).half(), in_half_precision(batch)),
):
    few_digits = ((size > 0) & (size < smallest)).float().mean()
    print(f"largest {size.max():.1e}   median {size.median():.1e}   ", end="")
    print(f"subnormal {few_digits:.0%}   zero {(size == 0).float().mean():.0%}")
# --8<-- [end:measure]
assert size.max() == 0
sys.path.pop(0)
