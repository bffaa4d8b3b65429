"""Lesson 72's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("72").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from policy import build_policy

from labs.vla.dataset import batches, demonstrations

*before, following = batches(demonstrations(64, seed=72), batch_size=8, steps=8, seed=72)
torch.manual_seed(72)  # of the dropout
trained, restored = build_policy(seed=0).train(), build_policy(seed=0).train()
for batch in before:
    trained(**batch)  # no optimizer: all that can change is what the policy itself remembers
restored.load_state_dict(trained.state_dict())

for name, policy in (("trained", trained), ("restored", restored)):
    numbers = {key: value for key, value in vars(policy).items() if isinstance(value, float)}
    torch.manual_seed(0)
    print(f"{name:<8}  next loss {policy(**following).loss:.6f}   saved {len(policy.state_dict())} tensors   {numbers}")
# --8<-- [end:measure]
assert numbers == {"gripper_weight": 1.0}
sys.path.pop(0)
