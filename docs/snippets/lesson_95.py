"""Lesson 95's measurement, run on the lab as shipped."""

import os
import sys
import tempfile
from pathlib import Path

from labs.grading.catalog import find

sys.path.insert(0, str(find("95").folder))  # a learner runs this in the workspace folder instead
sys.modules.pop("train", None)
desk = Path(tempfile.mkdtemp()).resolve()
for name in ("start", "elsewhere"):
    (desk / name).mkdir()
os.chdir(desk)

# --8<-- [start:measure]
from contextlib import chdir
from pathlib import Path

from omegaconf import OmegaConf
from train import outputs

cfg = OmegaConf.create({"output": {"checkpoints": "checkpoints", "logs": "logs"}})
for run in (Path("start/runs/1").resolve(), Path("start/runs/2").resolve()):
    for here in ("start", "elsewhere"):
        with chdir(here):
            kept = outputs(cfg, run).checkpoints.resolve()
        print(f"run {run.name}, resolved in {here:<9}  {kept.relative_to(Path.cwd())}")
# --8<-- [end:measure]
assert kept == desk / "elsewhere" / "checkpoints"
sys.path.pop(0)
sys.modules.pop("train", None)
