"""Lesson 34's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("34").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from labs.vla.dataset import demonstrations
from policy import BINS, build_policy

frames = demonstrations(2000, seed=3)
tokeniser = build_policy(frames, seed=0).head.tokeniser
real = torch.from_numpy(frames.action)[~torch.from_numpy(frames.action_is_pad)]  # (M, A)

error = tokeniser.decode(tokeniser.encode(real)) - real
every = torch.arange(BINS)[:, None].repeat(1, 3)
again = tokeniser.encode(tokeniser.decode(every))
for j, (name, unit, factor) in enumerate((("dx", "mm", 1000), ("dy", "mm", 1000), ("gripper", "", 1))):
    worst, mean = error[:, j].abs().max() * factor, error[:, j].mean() * factor
    survive = int((again == every)[:, j].sum())
    print(f"{name:<8} mean error {mean:+.3f} {unit:<2}  largest {worst:.3f} {unit:<2}  {survive}/{BINS} tokens survive")
# --8<-- [end:measure]
assert error[:, :2].mean() < -0.002
sys.path.pop(0)
