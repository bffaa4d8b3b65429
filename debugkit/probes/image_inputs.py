"""Looks at images where they enter the network: policies may normalise inside, so the batch itself says little.

A first layer is a 2-D or 3-D convolution over 1, 3 or 4 channels, or a linear layer named like a patch embedding, whose
input no parameter has touched: it needs no gradient, and no earlier first layer is inside the same module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.observations.image_inputs import ImageInput, ImageInputs
from debugkit.probes import Probe, probe
from debugkit.subject import Subject

_CHANNELS = (1, 3, 4)
_PATCHES = re.compile(r"(^|[._])patch(es|ify)?([._]|_?embed|$)|patch_embed", re.IGNORECASE)


@probe(ImageInputs, watch_steps=3)
class ImageInputsProbe(Probe[ImageInputs]):
    """Hooks the candidates; numbers stay on the device until the step ends."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._candidates = [
            (path, module, channels)
            for module, path in subject.module_paths.items()
            if (channels := _image_channels(path, module)) is not None
        ]
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._seen: dict[str, _Measured] = {}
        self._last: tuple[ImageInput, ...] = ()

    def __enter__(self) -> Self:
        for path, module, channels in self._candidates:
            self._handles.append(module.register_forward_pre_hook(self._hook(path, channels)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._seen.clear()

    def end_step(self, _step: int, /) -> None:
        self._last = tuple(measured.read() for measured in self._seen.values())
        self._seen.clear()

    @property
    def observation(self) -> ImageInputs:
        if not self._candidates:
            raise NotExamined("The model has no convolution over image channels and no patch embedding.")
        if not self._last:
            raise NotExamined("No image reached a first convolution or patch embedding in this step.")
        return ImageInputs(self._last)

    def _hook(self, path: str, channels: int) -> Callable[[nn.Module, Any], None]:
        def look(_module: nn.Module, args: Any) -> None:
            image = args[0] if args and isinstance(args[0], torch.Tensor) else None
            if image is None or path in self._seen or image.numel() == 0 or not image.is_floating_point():
                return
            if image.grad_fn is not None or any(_same_tower(path, other) for other in self._seen):
                return  # it comes out of a layer, so it is no image any more
            with torch.no_grad():
                self._seen[path] = _Measured(path, channels, _numbers(image.detach()))

        return look


@dataclass
class _Measured:
    module: str
    channels: int
    numbers: torch.Tensor

    def read(self) -> ImageInput:
        minimum, maximum, mean, std, whole, share, above = self.numbers.tolist()
        return ImageInput(self.module, self.channels, minimum, maximum, mean, std, bool(whole), share, above)


def _numbers(image: torch.Tensor) -> torch.Tensor:
    values = image.float()
    lowest = values.amin()
    at_lowest = values == lowest
    above = torch.where(at_lowest, torch.inf, values).amin()
    above = torch.where(above.isinf(), lowest, above)
    whole = (values == values.round()).all()
    share = at_lowest.float().mean()
    std = values.std(correction=0)
    return torch.stack([lowest, values.amax(), values.mean(), std, whole.float(), share, above])


def _image_channels(path: str, module: nn.Module) -> int | None:
    if isinstance(module, nn.Conv2d | nn.Conv3d):
        whole = module.in_channels if module.groups == 1 else 0
        return whole if whole in _CHANNELS else None
    if isinstance(module, nn.Linear) and _PATCHES.search(path):
        return 3 if module.in_features % 3 == 0 else None
    return None


def _same_tower(path: str, other: str) -> bool:
    """Whether two layers belong to one tower, so that the later one does not see images: one top-level part."""
    return path.partition(".")[0] == other.partition(".")[0] and "." in path and "." in other
