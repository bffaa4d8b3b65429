"""Lesson 31's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("31").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import numpy as np

from labs.strip_cameras import seen_by
from labs.vla.dataset import demonstrations
from policy import prepare_image

table = demonstrations(1, seed=31).image
for camera in ("square", "landscape", "portrait"):
    image = seen_by(camera, table)[0]  # (H, W, 3), uint8
    pixels = prepare_image(image)
    height, width, _ = image.shape
    print(f"{height:3} × {width:3}  from {pixels.min():5.2f} to {pixels.max():5.2f}, mean {pixels.mean():5.2f}")
lost = prepare_image(None)
print(f"no image   from {lost.min():5.2f} to {lost.max():5.2f}, mean {lost.mean():5.2f}")

white = np.full((56, 128, 3), 255, np.uint8)
print("a white image, from top to bottom:", prepare_image(white)[0, ::6, 32].tolist())
# --8<-- [end:measure]
assert prepare_image(white).min() == -3
sys.path.pop(0)
