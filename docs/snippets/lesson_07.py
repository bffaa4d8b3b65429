"""Lesson 07's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("07").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from policy import patchify

for channels, height, width in ((3, 64, 64), (3, 64, 96), (1, 64, 64)):
    image = torch.zeros(1, channels, height, width)
    before = patchify(image, 16)
    image[:, :, 40, 20] = 1  # one pixel, in all channels
    changed = (patchify(image, 16) != before).any(dim=2)[0].nonzero()[:, 0].tolist()
    patch = 40 // 16 * (width // 16) + 20 // 16
    shapes = f"image {tuple(image.shape)}, patches {tuple(before.shape)}"
    print(f"{shapes}: the pixel is in patch {patch}, rows {changed} change")
# --8<-- [end:measure]
assert changed == [patch]
sys.path.pop(0)
