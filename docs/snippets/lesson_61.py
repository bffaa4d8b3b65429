"""Lesson 61's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("61").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import gc

import torch

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy
from policy import train_epoch


def nodes_behind(tensor):
    """The number of autograd nodes that the tensor keeps alive."""
    waiting, seen = [tensor.grad_fn], {tensor.grad_fn}
    while waiting:
        new = {node for node, _ in waiting.pop().next_functions if node is not None} - seen
        seen |= new
        waiting += new
    return len(seen)


def with_a_graph():
    """Tensors with a graph, except those that existed before."""
    tensors = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
    return [found for found in tensors if found.grad_fn is not None and id(found) not in earlier]


def look(step, _averages):
    if step in (0, 1, 2, 10, 20):
        alive = with_a_graph()
        print(f"after step {step:2d}: {len(alive)} tensors with a graph, {max(map(nodes_behind, alive))} nodes")


earlier = {id(found) for found in gc.get_objects()}
policy = Policy.from_base(seed=61)
stream = batches(demonstrations(84, seed=61), batch_size=4, steps=21, seed=61)
train_epoch(policy, stream, torch.optim.AdamW(policy.parameters(), lr=1e-3), on_step=look)
# --8<-- [end:measure]
assert not with_a_graph()  # the meter was freed with the epoch, and the graphs with the meter
sys.path.pop(0)
