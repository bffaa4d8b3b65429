"""Lesson 03's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("03").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from policy import GraspPolicy, grasp_target

policy = GraspPolicy.from_base(seed=0)
batch = next(batches(demonstrations(4, seed=3), batch_size=4, steps=1, seed=3))
observation = {name: value for name, value in batch.items() if not name.startswith("action")}

motion, command = policy.head(policy.encode(**observation))
target = grasp_target(batch["action"], batch["action_is_pad"])
print("command", tuple(command.shape))
print("target ", tuple(target.shape))
print("error  ", tuple((command - target).shape))
# --8<-- [end:measure]
assert (command - target).shape == (4, 4)
sys.path.pop(0)
