"""Lesson 92's measurement, run on the lab as shipped."""

import logging
import sys
import warnings

import lightning
import torch.distributed

from labs.grading.catalog import find

sys.path.insert(0, str(find("92").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
originals = {name: getattr(torch.distributed, name) for name in ("barrier", "all_reduce")}

# --8<-- [start:measure]
import lightning
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from labs.vla.dataset import batches, demonstrations
from policy import build_module

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # a group of one never waits
calls = []
for name in ("barrier", "all_reduce"):

    def recorded(*args, name=name, call=getattr(dist, name), **options):
        calls.append(name)
        return call(*args, **options)

    setattr(dist, name, recorded)

frames = next(batches(demonstrations(16, seed=92), batch_size=16, steps=1, seed=92))
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, strategy="ddp", logger=False, enable_progress_bar=False, enable_checkpointing=False
)
for share, robots in {"process 0": 3, "process 1": 2}.items():
    batch = {**frames, "robot": torch.arange(16) % robots}
    calls.clear()
    trainer.validate(build_module(0), DataLoader([batch], batch_size=None), verbose=False)
    print(f"the share of {share} has {robots} robots:")
    print("   ", ", ".join(trainer.callback_metrics))
    # --8<-- [end:measure]
    assert len(trainer.callback_metrics) == robots + 1
for name, original in originals.items():
    setattr(torch.distributed, name, original)
dist.destroy_process_group()
sys.path.pop(0)
