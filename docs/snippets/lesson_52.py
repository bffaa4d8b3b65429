"""Lesson 52's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("52").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import batches, demonstrations
from policy import act, build_policy

torch.manual_seed(0)
policy = build_policy(seed=0)
batch = next(batches(demonstrations(64, seed=3), batch_size=64, steps=1, seed=3))

print("policy.training   two passes differ by   with no_grad    two calls of act differ by")
for mode in (True, False):
    policy.train(mode)
    feature = [policy(**batch).loss for _ in range(2)]
    with torch.no_grad():
        without = [policy(**batch).loss for _ in range(2)]
    answers = [act(policy, batch)[:, 0, :2] for _ in range(2)]
    millimetres = 1000 * (answers[0] - answers[1]).norm(dim=-1).median()
    differs, still = abs(feature[0] - feature[1]), abs(without[0] - without[1])
    print(f"{mode!s:<15}   {differs:>20.4f}   {still:>12.4f}   {millimetres:>24.1f} mm")
# --8<-- [end:measure]
assert still == 0 < millimetres
sys.path.pop(0)
