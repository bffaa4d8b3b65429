"""Lesson 04's second device, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("04").folder))
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import debugkit
from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(4, seed=3), batch_size=4, steps=1, seed=3))
seen = debugkit.simulate_device(policy, batch)
print("second device:", seen.device)
for stray in seen.strays:
    print(f"left behind: {stray.attribute}, which stops the {stray.phase} at {stray.operation}")
# --8<-- [end:measure]
assert [stray.attribute for stray in seen.strays] == ["places.table"]
sys.path.pop(0)
