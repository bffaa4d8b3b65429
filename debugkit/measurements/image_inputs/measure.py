"""Measures images where they enter the network, because policies may normalise inside the model.

A first layer is a 2-D or 3-D convolution over 1, 3 or 4 channels, or a linear layer with the name of a patch embedding,
whose input does not depend on a parameter: it needs no gradient, and no earlier first layer is inside the same module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.measurements.image_inputs import ImageInput, ImageInputs
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup

_CHANNELS = (1, 3, 4)
_FEWEST = 8
"""Fewer equal values are no bar: the lowest of all real numbers is usually there once."""
_PATCHES = re.compile(r"(^|[._])patch(es|ify)?([._]|_?embed|$)|patch_embed", re.IGNORECASE)


class ImageInputsProbe(Probe[ImageInputs]):
    """Hooks the candidate layers. The numbers stay on the device until the step ends."""

    watch_steps = 3

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._channels = {
            path: channels
            for path, module in setup.named_modules
            if (channels := _image_channels(path, module)) is not None
        }
        candidates = ((path, module) for path, module in setup.named_modules if path in self._channels)
        self._calls = ModuleCalls(candidates, before=self._measure)
        self._seen: dict[str, _Measured] = {}
        self._last: tuple[ImageInput, ...] = ()

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()
        self._seen.clear()

    def end_step(self, _step: int, /) -> None:
        self._last = tuple(measured.read() for measured in self._seen.values())
        self._seen.clear()

    @property
    def observation(self) -> ImageInputs:
        if not self._channels:
            raise NotExamined("The model has no convolution over image channels and no patch embedding.")
        if not self._last:
            raise NotExamined("No image reached a first convolution or patch embedding in this step.")
        return ImageInputs(self._last)

    def _measure(self, path: str, _module: nn.Module, args: Any, _kwargs: Any) -> None:
        image = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if image is None or path in self._seen or image.numel() == 0 or not image.is_floating_point():
            return
        if image.grad_fn is not None or any(_same_tower(path, other) for other in self._seen):
            return  # it is the output of a layer, so it is not an image any more
        with torch.no_grad():
            self._seen[path] = _Measured(path, self._channels[path], _numbers(image.detach()))


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
    share = torch.where(at_lowest.sum() >= _FEWEST, at_lowest.float().mean(), 0.0)
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
    """Whether two layers are inside the same top-level module, so that the later one does not receive images."""
    return path.partition(".")[0] == other.partition(".")[0] and "." in path and "." in other
