"""Image files as OpenCV writes and reads them, for labs that read data from files: the same names and the same orders.

A PNG file holds red, green, blue, and every viewer shows it so. OpenCV's images in memory are in the order blue, green,
red: `imencode` and `imdecode` convert between the two. OpenCV itself is not needed; Pillow writes and reads the files.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def imencode(image: NDArray[np.uint8]) -> bytes:
    """A PNG file of an image (H, W, 3) whose channels are blue, green, red, as `cv2.imencode(".png", image)`."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image[..., ::-1])).save(file, "PNG", compress_level=1)
    return file.getvalue()


def imdecode(file: bytes) -> NDArray[np.uint8]:
    """The image (H, W, 3) in a file, with the channels blue, green, red, as `cv2.imdecode(file, 1)`."""
    with Image.open(io.BytesIO(file)) as image:
        return np.array(image.convert("RGB"))[..., ::-1].copy()
