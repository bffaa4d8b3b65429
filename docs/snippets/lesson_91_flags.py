"""Lesson 91: what the debugging flags of Lightning's Trainer run, counted on the lab as shipped."""

import logging
import sys
import warnings

from labs.grading.catalog import find

sys.path.insert(0, str(find("91").folder))
sys.modules.pop("policy", None)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")  # Lightning's advice about workers

# --8<-- [start:flags]
import lightning
import torch
from policy import build_module
from torch.utils.data import DataLoader

from labs.vla.dataset import batches, demonstrations


class Count(lightning.Callback):
    def __init__(self):
        self.training, self.validation, self.first_states = 0, 0, set()

    def on_train_batch_start(self, _trainer, _module, batch, _index):
        self.training += 1
        self.first_states.add(batch["state"][0].tolist()[0])

    def on_validation_batch_start(self, *_):
        self.validation += 1


frames = demonstrations(160, seed=91)
loader = DataLoader(list(batches(frames, 16, steps=10, seed=91)), batch_size=None, shuffle=True)
for flags in (
    {},
    {"fast_dev_run": True},
    {"limit_train_batches": 3, "limit_val_batches": 2},
    {"overfit_batches": 1},
):
    torch.manual_seed(0)  # for the loader's shuffling
    count = Count()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, callbacks=[count], num_sanity_val_steps=0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **flags,
    )  # fmt: skip
    trainer.fit(build_module(seed=0), loader, loader)
    shown = ", ".join(f"{name}={value}" for name, value in flags.items()) or "no flag"
    seen = f"{count.training:2d} training, {len(count.first_states):2d} distinct"
    print(f"{shown:<42} {seen}; {count.validation:2d} validation")
# --8<-- [end:flags]
assert count.training == 2
assert len(count.first_states) == 1
sys.path.pop(0)
