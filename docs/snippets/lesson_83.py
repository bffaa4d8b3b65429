"""Lesson 83's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("83").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import demonstrations

from policy import build_loader, epoch_of

frames = demonstrations(30, seed=83)
loaders = [build_loader(frames, batch_size=4, rank=rank, world_size=2, seed=83) for rank in (0, 1)]
for epoch in range(3):
    print(f"epoch {epoch}")
    for rank, loader in enumerate(loaders):
        batches = list(epoch_of(loader, epoch).batch_sampler)
        print(f"  process {rank}: {len(batches)} batches, the first is {sorted(batches[0])}")
# --8<-- [end:measure]
assert len(batches) == 3
sys.path.pop(0)
