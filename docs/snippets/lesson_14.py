"""Lesson 14's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("14").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from policy import build_optimizer, build_policy, train_step

policy = build_policy(seed=0)
optimizer = build_optimizer(policy)
for number, group in enumerate(optimizer.param_groups):
    print(f"group {number}: {len(group['params']):2d} parameters, lr {group['lr']:g}, decay {group['weight_decay']:g}")

batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
train_step(policy, optimizer, batch)
first = {name: parameter.grad.norm() for name, parameter in policy.named_parameters()}
for _ in range(19):
    train_step(policy, optimizer, batch)

held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
print("\npart             in a group   gradient norm in step 1   in step 20")
for part, module in policy.model.named_children():
    own = [(f"model.{part}.{name}", parameter) for name, parameter in module.named_parameters()]
    if own:
        count = sum(id(parameter) in held for _, parameter in own)
        before = sum(first[name] ** 2 for name, _ in own) ** 0.5
        after = sum(parameter.grad.norm() ** 2 for _, parameter in own) ** 0.5
        print(f"{part:<15} {count:>5} of {len(own):2d}   {before:>23.3f}   {after:>10.3f}")
# --8<-- [end:measure]
assert not held & {id(parameter) for parameter in policy.model.vision.parameters()}
sys.path.pop(0)
