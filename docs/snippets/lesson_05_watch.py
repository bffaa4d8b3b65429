"""Lesson 05's declared shapes, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("05").folder))
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import debugkit
from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(8, seed=3), batch_size=8, steps=1, seed=3))
declared = {"pyramid.detail": "B 64 h w", "pyramid.up.1": "B 64 h w", "pyramid.up.0": "B 64 h w"}
with debugkit.watch_shapes(policy, declared, on_violation="record") as shapes:
    policy(**batch)
for violation in shapes.observation.violations:
    print(violation)
# --8<-- [end:measure]
assert len(shapes.observation.violations) == 1
sys.path.pop(0)
