"""Lesson 94's first measurement, run on the lab as shipped."""

import os
import sys

from labs.grading.catalog import find

os.chdir(find("94").folder)  # a learner runs this in the workspace folder instead
sys.path.insert(0, str(find("94").folder))
sys.modules.pop("train", None)

# --8<-- [start:measure]
from pathlib import Path
from unittest.mock import patch

from hydra import compose, initialize_config_dir
from train import train

from labs.vla.heads import FlowMatchingHead

forward, rows = FlowMatchingHead.forward, []


def counting(head, feature, noisy, time):
    rows.append(len(noisy))
    return forward(head, feature, noisy, time)


with initialize_config_dir(str(Path("conf").resolve()), version_base="1.3"):
    for draws in (4, 16, 64):
        cfg = compose("config", [f"policy.draws={draws}", "train.steps=1"])
        with patch.object(FlowMatchingHead, "forward", counting):
            train(cfg)
        print(
            f"configuration: {cfg.policy.draws:2} draws, {cfg.train.batch_size} frames   head: {rows[-1]} noisy chunks"
        )
# --8<-- [end:measure]
assert rows == [16, 16, 16]
sys.path.pop(0)
sys.modules.pop("train", None)
