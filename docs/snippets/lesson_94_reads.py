"""Lesson 94's second measurement: which keys the starter reads."""

import os
import sys

from labs.grading.catalog import find

os.chdir(find("94").folder)  # a learner runs this in the workspace folder instead
sys.path.insert(0, str(find("94").folder))
sys.modules.pop("train", None)

# --8<-- [start:measure]
from pathlib import Path

from hydra import compose, initialize_config_dir
from train import train

from debugkit.integrations.hydra import check_config, track_reads

with initialize_config_dir(str(Path("conf").resolve()), version_base="1.3"):
    cfg = track_reads(compose("config", ["policy.draws=4", "train.steps=2"]))
train(cfg)
print(check_config(cfg))
# --8<-- [end:measure]
assert {finding.code for finding in check_config(cfg).findings} == {"DK902"}
sys.path.pop(0)
sys.modules.pop("train", None)
