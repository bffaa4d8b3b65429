"""Lesson 63: halve until it runs, then search upward."""

# --8<-- [start:search]
import debugkit
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy


def make_batch(size):
    return next(batches(demonstrations(size, seed=63), size, steps=1, seed=63))


found = debugkit.find_batch_size(make_batch, Policy.from_base(seed=0), budget_bytes=12 * 2**20, start=64)
print(found)
# --8<-- [end:search]
assert 16 <= found.batch_size < 32
