"""Lesson 35's first measurement: what the policy writes, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("35").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from policy import build_policy, text_batch, write

from labs.vla.dataset import demonstrations
from labs.vla.training import overfit

frames = demonstrations(16, seed=35)
policy, batch = build_policy(seed=35), text_batch(frames)
losses = overfit(policy, batch, steps=80, learning_rate=2e-3, seed=35)

print(f"loss {losses[-1]:.3f}, tokens per answer: {policy.generate(batch).shape[1]}")
for chunk, said in list(zip(torch.from_numpy(frames.action), policy.say(batch), strict=True))[:6]:
    print(f"demonstrated {write(chunk[0])!r:12} written {said!r}")
# --8<-- [end:measure]
assert policy.generate(batch).shape[1] == 16
sys.path.pop(0)
