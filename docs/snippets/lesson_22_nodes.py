"""Lesson 22: every backward node of the loss, watched by a hook."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("22").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

import torch

from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
batch["action"][5] = torch.tensor([0.0, 0.0, -1.0])
batch["action_is_pad"][5] = False


# --8<-- [start:nodes]
def kind(tensors):
    together = torch.cat([t.flatten() for t in tensors if t is not None] or [torch.zeros(1)])
    return "NaN" if together.isnan().any() else "Inf" if together.isinf().any() else "finite"


def watch(node, seen):
    if node is None or node in seen:
        return
    seen.add(node)
    node.register_hook(lambda made, given: print(f"{node.name():<16} given {kind(given):<7} made {kind(made)}"))
    for follower, _ in node.next_functions:
        watch(follower, seen)


loss = policy(**batch).loss
watch(loss.grad_fn, set())
# --8<-- [end:nodes]
import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()) as printed:
    loss.backward()
lines = printed.getvalue().splitlines()
print("\n".join(lines[:10]))
assert sum("given finite" in line and "made Inf" in line for line in lines) == 1
sys.path.pop(0)
