"""Lesson 63: the ways to a smaller step, what each needs at its peak, and whether the gradient is the same."""

# --8<-- [start:ways]
import contextlib

import torch
from torch.utils.checkpoint import checkpoint

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

batch = next(batches(demonstrations(64, seed=63), batch_size=64, steps=1, seed=63))
batch["action_is_pad"][:] = False  # the same number of steps in each frame, so that all parts weigh the same


def recomputed(function):
    return lambda *given, **named: checkpoint(function, *given, use_reentrant=False, **named)


def each_layer(policy):
    for layer in (*policy.vision.encoder.layers, *policy.language_model.layers):
        layer.forward = recomputed(layer.forward)


def everything(policy):
    policy.encode = recomputed(policy.encode)


def measure(parts=1, prepare=None, around=contextlib.nullcontext):
    policy, memory = Policy.from_base(seed=0), StorageCounter()
    memory.hold([*policy.parameters(), *policy.buffers(), *batch.values()], "parameters")
    if prepare:
        prepare(policy)
    with memory:
        for part in range(parts):
            with around():
                loss = policy(**{name: values.chunk(parts)[part] for name, values in batch.items()}).loss / parts
            loss.backward()
    return memory.peak.bytes / 2**20, torch.cat([p.grad.flatten() for p in policy.parameters()])


def bfloat16():
    return torch.autocast("cpu", torch.bfloat16)


WAYS = {
    "as it is": {},
    "4 micro-batches of 16": {"parts": 4},
    "each layer checkpointed": {"prepare": each_layer},
    "both": {"parts": 4, "prepare": each_layer},
    "one checkpoint around everything": {"prepare": everything},
    "bfloat16 autocast": {"around": bfloat16},
}
_, wanted = measure()
for name, way in WAYS.items():
    peak, found = measure(**way)
    print(f"{name:<32} {peak:5.1f} MiB   gradient off by {float((found - wanted).norm() / wanted.norm()):.0e}")
# --8<-- [end:ways]
assert measure(prepare=everything)[0] > 0.99 * measure()[0]
