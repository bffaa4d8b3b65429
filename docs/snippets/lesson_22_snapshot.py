"""Lesson 22: the step that fails is kept, and run again."""

import os
import sys
import tempfile
from pathlib import Path

from labs.grading.catalog import find

sys.path.insert(0, str(find("22").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

here, kept = Path.cwd(), tempfile.mkdtemp()
os.chdir(kept)

# --8<-- [start:snapshot]
import torch

import debugkit
from debugkit.replay import replay
from labs.vla.dataset import batches, demonstrations
from policy import build_optimizer, build_policy, train_step

stream = list(batches(demonstrations(96, seed=3), batch_size=32, steps=3, seed=3))
stream[0]["action"][5] = torch.tensor([0.0, 0.0, -1.0])  # the operator held still, and in no padded step
stream[0]["action_is_pad"][5] = False

policy = build_policy(seed=0)
optimizer = build_optimizer(policy)
with debugkit.snapshot_on_failure(policy, optimizer, folder="kept") as run:
    try:
        for batch in stream:
            train_step(policy, optimizer, batch)
    except FloatingPointError as error:
        print(error, "And every weight is NaN already.")

for path in run.snapshots:
    print("kept:", path.name, "with", ", ".join(sorted(file.name for file in path.iterdir())))

[finding] = replay(run.snapshots[0], build="policy:build_policy").findings
print("run again:", finding.evidence["operation"], "makes", finding.evidence["kind"], "at", finding.evidence["code"])
# --8<-- [end:snapshot]
assert finding.code == "DK202"
os.chdir(here)
sys.path.pop(0)
