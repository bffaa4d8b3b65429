"""Lesson 55's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("55").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import debugkit
from labs.vla.dataset import batches, demonstrations
from policy import RecordedPolicy

policy = RecordedPolicy.from_base(seed=55)
batch = next(batches(demonstrations(32, seed=55), batch_size=16, steps=1, seed=55))
result = debugkit.overfit_one_batch(policy, batch, steps=60, learning_rate=2e-3)

print(f"{result.verdict}: {result.losses[0]:.2f} → {result.losses[-1]:.2f} in {len(result.losses) - 1} steps")
for suspect in result.suspects:
    print(f"{suspect.name:<24} {'← guilty' if suspect.guilty else 'cleared'}")
# --8<-- [end:measure]
assert not result
sys.path.pop(0)
