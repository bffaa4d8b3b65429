"""Lesson 96's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("96").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import tempfile
from pathlib import Path

from policy import build_model, build_trainer, collate, mixture

samples, model, folder = mixture(48, seed=96), build_model(seed=0), Path(tempfile.mkdtemp())
trainer = build_trainer(model, samples, samples, steps=1, folder=folder, seed=0, batch_size=16)
loader = trainer.get_train_dataloader()
eight = [samples[index] for index in range(8)]  # demonstrations

print("sample       ", *eight[0])
for name, make in (("collate      ", collate), ("the loader's ", loader.collate_fn)):
    batch = make(eight)
    print(
        f"{name} {int(batch['is_step'].sum())} steps of the expert, largest action {float(batch['chunk'].abs().max())}"
    )
# --8<-- [end:measure]
assert not batch["is_step"].any()
sys.path.pop(0)
sys.modules.pop("policy", None)
