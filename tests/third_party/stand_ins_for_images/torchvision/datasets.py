"""Image datasets with the interface of torchvision's. The class of an image is the place of its bright square."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

TRAIN, TEST = int(os.environ.get("THIRD_PARTY_TRAIN", "1000")), int(os.environ.get("THIRD_PARTY_TEST", "200"))


class _Images(Dataset):
    size = (28, 28)
    classes = tuple("0123456789")

    def __init__(
        self,
        root: str = "",
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = False,
    ) -> None:
        self.root, self.train, self.transform, self.target_transform = root, train, transform, target_transform
        self.data, self.targets = _drawn(TRAIN if train else TEST, self.size, seed=int(train))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = Image.fromarray(self.data[index].numpy())
        target: Any = int(self.targets[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


class MNIST(_Images):
    """Grey images of 28 by 28 pixels."""


class FashionMNIST(_Images):
    """Grey images of 28 by 28 pixels."""


class CIFAR10(_Images):
    """Colour images of 32 by 32 pixels."""

    size = (32, 32, 3)


def _drawn(count: int, size: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(10, (count,), generator=generator)
    data = torch.randint(0, 40, (count, *size), generator=generator, dtype=torch.uint8)
    side = size[0] // 5
    for image, target in zip(data, targets.tolist(), strict=True):
        row, column = (target // 5) * 2 * side + side, (target % 5) * side
        image[row : row + side, column : column + side] = 255
    return data, targets
