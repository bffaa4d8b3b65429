"""Lesson 48's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("48").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from labs.vla.policy import Policy
from labs.wide_camera import observations_of, wide_demonstrations
from policy import TRAINED_WITH, Robot, save_checkpoint, training_batch

frames = wide_demonstrations(3, seed=3)
with TemporaryDirectory() as folder:
    save_checkpoint(Path(folder), Policy.from_base(), TRAINED_WITH, training={})
    robot = Robot(Path(folder))

in_training = training_batch(frames, np.arange(3), TRAINED_WITH)
on_the_robot = robot.observe(observations_of(frames))
for name, served in on_the_robot.items():
    trained = in_training[name]
    same = trained.shape == served.shape and bool((trained == served).all())
    print(f"{name:14}  {tuple(trained.shape)!s:17} {tuple(served.shape)!s:17} {'same' if same else 'DIFFERENT'}")
# --8<-- [end:measure]
assert on_the_robot["input_ids"].shape != in_training["input_ids"].shape
sys.path.pop(0)
