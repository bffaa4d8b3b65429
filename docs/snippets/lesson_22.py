"""Lesson 22's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("22").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import warnings

import torch

from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
batch["action"][5] = torch.tensor([0.0, 0.0, -1.0])  # one frame: the operator has not moved yet
batch["action_is_pad"][5] = False

loss = policy(**batch).loss
print(f"loss {loss.item():.3f}, finite: {bool(torch.isfinite(loss))}")
loss.backward()
gradients = [p.grad for p in policy.parameters()]
print(f"{sum(not g.isfinite().all() for g in gradients)} of {len(gradients)} gradients are not finite:", end=" ")
print(f"{sum(int(g.isnan().sum()) for g in gradients):,} NaN, {sum(int(g.isinf().sum()) for g in gradients)} Inf")
print("gradient norm, for clipping:", torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0).item())

with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(action="ignore"):
    try:
        policy(**batch).loss.backward()
    except RuntimeError as error:
        print("anomaly mode:", error)
# --8<-- [end:measure]
assert all(not g.isfinite().all() for g in gradients)
sys.path.pop(0)
