"""Lesson 62's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("62").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from labs.vla.dataset import batches, demonstrations
from policy import build_policy, validate

held_out = list(batches(demonstrations(64, seed=3), batch_size=16, steps=4, seed=3))


def leaves(loss):
    """The nodes, and the weights among them, that a backward pass from here would reach."""
    todo, seen = [loss.grad_fn] if loss.grad_fn else [], set()
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [after for after, _ in node.next_functions if after]
    return len(seen), sum(hasattr(node, "variable") for node in seen)


policy = build_policy(seed=0)
for name, switch in (("as shipped", torch.enable_grad), ("no_grad", torch.no_grad)):
    with switch():
        result = validate(policy, held_out)
    nodes, weights = leaves(result.loss)
    print(f"{name:<11} loss {result.loss:.4f}   nodes behind it {nodes:>5}   weights it can reach {weights:>3}")
# --8<-- [end:measure]
assert nodes == 0
sys.path.pop(0)
