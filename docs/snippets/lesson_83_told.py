"""Lesson 83: which of the samplers has been told the epoch, in the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("83").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:told]
from labs.vla.dataset import demonstrations

from policy import build_loader, epoch_of

loader = build_loader(demonstrations(30, seed=83), batch_size=4, rank=0, world_size=2, seed=83)
sampler = epoch_of(loader, epoch=7).batch_sampler
while sampler is not None:
    told = f"epoch {sampler.epoch}" if hasattr(sampler, "epoch") else "-"
    print(f"{type(sampler).__name__:17} has set_epoch: {hasattr(sampler, 'set_epoch')!s:6} holds: {told}")
    sampler = getattr(sampler, "batches", None) or getattr(sampler, "sampler", None)
# --8<-- [end:told]
assert loader.batch_sampler.batches.sampler.epoch == 0
sys.path.pop(0)
