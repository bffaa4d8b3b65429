"""Lesson 41's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("41").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import demonstrations
from policy import build_policy

normaliser = build_policy(demonstrations(2000, seed=41), seed=0).normaliser
for dx in (-0.10, -0.05, 0.0, 0.05, 0.10):
    action = torch.tensor([dx, 0.0, -1.0])
    there = normaliser.normalise(action)
    back = normaliser.unnormalise(there)
    print(f"dx {100 * dx:+6.1f} cm  ->  {there[0]:+5.2f}  ->  {100 * back[0]:+6.1f} cm")
# --8<-- [end:measure]
assert back[0] == 0.1
assert (normaliser.unnormalise(normaliser.normalise(torch.zeros(3))) - torch.zeros(3)).abs().max() > 0.09
sys.path.pop(0)
