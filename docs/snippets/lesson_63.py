"""Lesson 63's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("63").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import contextlib
import gc

import torch

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.vla.dataset import batches, demonstrations
from policy import build_optimizer, build_policy, training_step

MIB = 2**20


class Memory(StorageCounter):
    """A simulated machine with 12 MiB: counts every live storage, and raises when they need more."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = super().__torch_dispatch__(func, types, args, kwargs)
        if self.live > 12 * MIB:
            del output  # a failed allocation leaves nothing behind
            raise torch.OutOfMemoryError("12 MiB are full.")
        return output


policy = build_policy(seed=0)
batch = next(batches(demonstrations(64, seed=63), batch_size=64, steps=1, seed=63))
memory = Memory()
memory.hold([*policy.parameters(), *policy.buffers(), *batch.values()], "parameters")


def before_forward(_module, _args, kwargs):
    print(f"{len(kwargs['state']):3d} frames to come, {memory.live / MIB:4.1f} MiB alive")


policy.register_forward_pre_hook(before_forward, with_kwargs=True)
with memory, contextlib.suppress(torch.OutOfMemoryError):
    training_step(policy, build_optimizer(policy), batch)
print(f"out of memory, and {memory.live / MIB:4.1f} MiB alive")
gc.collect()
print(f"after gc.collect(), {memory.live / MIB:4.1f} MiB alive")
# --8<-- [end:measure]
assert memory.live < 5 * MIB
sys.path.pop(0)
