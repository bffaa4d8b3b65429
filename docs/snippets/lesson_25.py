"""Lesson 25's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("25").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(32, seed=25), batch_size=32, steps=1, seed=25))


def show(name, inputs, output):
    print(f"  {name:<20} {output.dtype}   in {inputs[0].abs().max():9.2e}   out {output.abs().max():9.2e}")


for name, module in policy.expert.named_modules():
    if not list(module.children()):
        module.register_forward_hook(lambda _, inputs, output, name=name: show(name, inputs, output))

for mode in ("evaluation", "training"):
    print(mode)
    policy.train(mode == "training")
    torch.manual_seed(0)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        loss = policy(**batch).loss
# --8<-- [end:measure]
assert loss.isnan()
sys.path.pop(0)
