"""Lesson 17's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("17").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from torch.nn.utils import parameters_to_vector

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy
from policy import build_optimizer, build_scaler, training_step

batch = next(batches(demonstrations(32, seed=17), batch_size=16, steps=1, seed=17))
print("     scale   reported norm   length of the step")
for exponent in (0, 4, 8, 12, 16):
    policy = Policy.from_base(seed=17)
    start = parameters_to_vector(policy.parameters()).detach()
    step = training_step(policy, batch, build_optimizer(policy), build_scaler(policy, scale=2.0**exponent))
    moved = (parameters_to_vector(policy.parameters()).detach() - start).norm()
    print(f"{step.scale:10.0f}   {step.gradient_norm:13.2e}   {moved:18.1e}")
# --8<-- [end:measure]
assert step.gradient_norm > 1e4
assert moved < 1e-5
sys.path.pop(0)
