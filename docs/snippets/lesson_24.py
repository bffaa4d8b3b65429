"""Lesson 24's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("24").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import batches, demonstrations
from policy import build_optimizer, build_policy, train_step

batch = next(batches(demonstrations(32, seed=24), batch_size=32, steps=1, seed=24))
batch["views"] = torch.randn(32, 2, 3, 64, 64, generator=torch.Generator().manual_seed(24))
batch["shows"] = torch.ones(32, 2, 16, dtype=torch.bool)

for missing in ("no camera", "one camera of one frame"):
    if missing != "no camera":
        batch["shows"][5, 1] = False
    policy = build_policy(seed=0)
    optimizer = build_optimizer(policy)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    action = policy.predict(batch)
    loss = train_step(policy, optimizer, batch)
    moved = [name for name, value in policy.named_parameters() if not torch.equal(value, before[name])]
    print(f"{missing} missing")
    print(f"  loss {loss:.3f}, predicted actions finite: {bool(action.isfinite().all())}")
    print(f"  {len(moved)} of {len(before)} parameters moved")
# --8<-- [end:measure]
assert not moved
sys.path.pop(0)
