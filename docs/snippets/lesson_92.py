"""Lesson 92's measurement, run on the lab as shipped."""

import sys
import warnings

from labs.grading.catalog import find

sys.path.insert(0, str(find("92").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("policy", None)
warnings.simplefilter("ignore")

# --8<-- [start:measure]
import logging
from unittest.mock import patch

import lightning
import torch
import torch.distributed as dist
from labs.vla.dataset import batches, demonstrations
from policy import build_module
from torch.utils.data import DataLoader

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
frames = next(batches(demonstrations(16, seed=92), batch_size=16, steps=1, seed=92))
quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
trainer = lightning.Trainer(accelerator="cpu", devices=1, strategy="ddp", **quiet)

for share, robots in {"process 0": 3, "process 1": 2}.items():
    loader = DataLoader([{**frames, "robot": torch.arange(16) % robots}], batch_size=None)
    with patch.object(dist, "barrier") as barrier, patch.object(dist, "all_reduce") as all_reduce:
        trainer.validate(build_module(0), loader, verbose=False)  # alone, a process has nothing to send
    print(f"the recordings of {share} show {robots} robots:")
    print("   ", ", ".join(trainer.callback_metrics))
# --8<-- [end:measure]
assert len(trainer.callback_metrics) == robots + 1
dist.destroy_process_group()
sys.path.pop(0)
