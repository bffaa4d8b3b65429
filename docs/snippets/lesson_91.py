"""Lesson 91's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("91").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from policy import build_module

module = build_module(seed=0).to("meta")  # a device without memory: every machine has it
kinds = {
    "parameters": [*module.parameters()],
    "buffers": [*module.buffers()],
    "plain attributes": [value for value in vars(module).values() if isinstance(value, torch.Tensor)],
}
for kind, tensors in kinds.items():
    followed = sum(tensor.is_meta for tensor in tensors)
    print(f"{kind:<17} {followed:2d} of {len(tensors):2d} followed")
# --8<-- [end:measure]
assert not module.waves.is_meta
sys.path.pop(0)
