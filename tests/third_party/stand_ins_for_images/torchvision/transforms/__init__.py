"""Transforms of PIL images and tensors, as in torchvision."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


class Compose:
    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    def __call__(self, image: Any) -> Tensor:
        array = torch.from_numpy(np.array(image, dtype=np.float32)) / 255
        return array[None] if array.dim() == 2 else array.permute(2, 0, 1).contiguous()


class Normalize:
    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]

    def __call__(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std


class Resize:
    def __init__(self, size: int | tuple[int, int], interpolation: Any = None) -> None:
        self.size = (size, size) if isinstance(size, int) else size

    def __call__(self, image: Any) -> Any:
        return image.resize(self.size[::-1], Image.Resampling.BILINEAR)


Scale = Resize
"""Its name until torchvision 0.12."""


class CenterCrop:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Any) -> Any:
        left, top = (image.width - self.size) // 2, (image.height - self.size) // 2
        return image.crop((left, top, left + self.size, top + self.size))


class RandomCrop(CenterCrop):
    def __call__(self, image: Any) -> Any:
        left = random.randint(0, image.width - self.size)
        top = random.randint(0, image.height - self.size)
        return image.crop((left, top, left + self.size, top + self.size))


class RandomHorizontalFlip:
    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < self.p else image


class Lambda:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, image: Any) -> Any:
        return self.function(image)
