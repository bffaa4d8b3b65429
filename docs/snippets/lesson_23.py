"""Lesson 23's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("23").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from labs.vla.dataset import batches, demonstrations
from labs.vla.training import learning_rate_at
from policy import build_policy

policy = build_policy(seed=0)
optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.95))
logits = []
policy.head.register_forward_hook(lambda _, __, output: logits.append(output.detach()))

for step, batch in enumerate(batches(demonstrations(16, seed=23), batch_size=16, steps=70, seed=23)):
    optimizer.param_groups[0]["lr"] = learning_rate_at(step, steps=70, peak=3e-3)
    loss = policy(**batch).loss
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)  # the norm before it was clipped
    if step % 10 == 0 or not norm.isfinite():
        apart = (logits[-1].amax(-1) - logits[-1].amin(-1)).max()
        print(f"step {step:2d}  loss {loss:8.5f}  gradient norm {norm:8.4f}  best and worst bin {apart:3.0f} apart")
    if not norm.isfinite():
        break
    optimizer.step()
# --8<-- [end:measure]
assert loss.isfinite()
assert norm.isnan()
assert apart > 103
sys.path.pop(0)
