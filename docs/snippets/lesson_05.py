"""Lesson 05's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("05").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(8, seed=3), batch_size=8, steps=1, seed=3))
parts = ["detail", "down.0", "down.1", "across.0", "middle", "up.0", "up.1"]
shapes, gradients = {}, {}

for name in parts:
    module = policy.pyramid.get_submodule(name)
    module.register_forward_hook(lambda _, __, output, name=name: shapes.update({name: tuple(output.shape)}))
    module.register_full_backward_hook(lambda _, __, grads, name=name: gradients.update({name: grads[0]}))

policy(**batch).loss.backward()
for name in parts:
    gradient = gradients.get(name)
    back = "nothing" if gradient is None else f"{tuple(gradient.shape)}, norm {gradient.norm():.4f}"
    print(f"{name:<9} gave {shapes[name]!s:<14} got back {back}")
# --8<-- [end:measure]
assert "detail" not in gradients
sys.path.pop(0)
