"""Lesson 33's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("33").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import demonstrations, observation_batch
from policy import build_policy


def logits(policy, frames, width):
    """The logits of the first token, with the instruction padded to `width` tokens."""
    batch = observation_batch(frames.image, frames.state, frames.instruction, length=width)
    return policy(**batch, action=torch.from_numpy(frames.action)).logits[0, 0].detach()


policy, frames = build_policy(0).eval(), demonstrations(1, seed=6)
alone = logits(policy, frames, width=1 + len(frames.instruction[0].split()))
print(f"<bos> {frames.instruction[0]}")
for width in (4, 5, 8, 16, 48):
    moved = (logits(policy, frames, width) - alone).norm() / alone.norm()
    print(f"padded to {width:2d} tokens: the logits differ by {moved:.1%}")
# --8<-- [end:measure]
assert moved > 0.1
sys.path.pop(0)
