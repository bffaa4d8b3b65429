"""Lesson 48's second measurement, how the two inputs differ, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("48").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from labs.vla.language import detokenize
from labs.vla.policy import Policy
from labs.wide_camera import observations_of, wide_demonstrations
from policy import ABOUT, TRAINED_WITH, Robot, save_checkpoint, training_batch

frames = wide_demonstrations(1, seed=3)
with TemporaryDirectory() as folder:
    save_checkpoint(Path(folder), Policy.from_base(), TRAINED_WITH, training={"seed": 0})
    robot = Robot(Path(folder))
    print((Path(folder) / ABOUT).read_text())

inputs = {
    "in training": training_batch(frames, np.arange(1), TRAINED_WITH),
    "on the robot": robot.observe(observations_of(frames)),
}
for path, batch in inputs.items():
    blocks = (batch["pixel_values"][0].std(dim=0) > 0.5).nonzero()  # where the pixels are not grey
    extent = (blocks.amax(dim=0) - blocks.amin(dim=0) + 1).tolist()
    print(f"\n{path}: {detokenize(batch['input_ids'])[0]!r}")
    print(f"the coloured pixels extend over {extent[1]} columns and {extent[0]} rows")
print(f"\n{robot.processor}")
# --8<-- [end:measure]
assert robot.processor.crop == 1.0
sys.path.pop(0)
