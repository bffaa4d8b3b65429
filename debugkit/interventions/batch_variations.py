"""More batches of the same kind: from the loader if there is one, otherwise made from the one batch."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import is_index
from debugkit.loader_samples import batches_of
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, clone_tensors, map_tensors

_NOISE = 0.3
"""In standard deviations: different data, but still similar to the training data."""


def batch_variations(setup: TrainingSetup, count: int) -> list[Any]:
    """The setup's batch and `count - 1` others."""
    batches = [setup.fresh_batch()]
    if (loader := setup.loaders.get("train")) is not None:
        with contextlib.suppress(NotExamined), batches_of(loader, most=count) as found:
            batches += [clone_tensors(batch) for batch in found if type(batch) is type(setup.batch)][1:]
    size = batch_size(setup.batch)
    for number in range(len(batches), count):
        batches.append(_varied(setup, size, number))
    return batches[:count]


def of_another_sample(tensor: torch.Tensor) -> torch.Tensor:
    """The values of another sample, so that ids stay in range; real numbers are also moved by a standard deviation."""
    moved = tensor.roll(1, dims=0)
    if tensor.dtype is torch.bool or is_index(tensor):
        return moved
    spread = tensor.detach().float().std(correction=0).nan_to_num(0.0)
    return moved + (spread + 0.1).to(tensor)


def _varied(setup: TrainingSetup, size: int | None, number: int) -> Any:
    """The batch with integers and masks exchanged between samples, and with noise on the other tensors."""
    generator = torch.Generator().manual_seed(number)

    def change(_: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.roll(number, dims=0) if tensor.shape[:1] == (size,) else tensor
        if tensor.numel() < 2 or bool(((tensor == 0) | (tensor == 1)).all()):
            return tensor  # a mask
        noise = torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
        return tensor.detach() + _NOISE * tensor.detach().std().nan_to_num(0.0) * noise

    return map_tensors(setup.fresh_batch(), change)
