"""Lesson 36's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("36").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import numpy as np

from labs.two_cameras import as_delivered
from labs.vla.dataset import collate, demonstrations
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD
from policy import Recording, grab, observe, preview, record, training_frames

shown = demonstrations(1, seed=36)
table = np.full_like(shown.image, (220, 40, 40))  # red everywhere
delivered = as_delivered(table)
files = record(grab(delivered))
recording = Recording(files, shown.state, shown.instruction, shown.action, shown.action_is_pad)
paths = {
    "learns from": collate(training_frames(recording), [0]),
    "on the robot": observe(delivered, shown.state, shown.instruction),
}
print("              left camera     right camera")
for name, batch in paths.items():
    rgb = (255 * (batch["pixel_values"][0] * PIXEL_STD + PIXEL_MEAN)).round().int()  # (3, 64, 64)
    print(f"{name:12}  {rgb[:, 32, 16].tolist()!s:14}  {rgb[:, 32, 48].tolist()}")
image = preview(files, 0)
print(f"{'preview':12}  {image[32, 16].tolist()!s:14}  {image[32, 48].tolist()}")
# --8<-- [end:measure]
assert image[32, 16].tolist() == rgb[:, 32, 16].tolist()  # the preview and the robot agree
sys.path.pop(0)
