"""Further batches of the same kind: from the loader where there is one, else made from the one batch."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.loader_samples import batches_of
from debugkit.structure import batch_size, clone_tensors, map_tensors
from debugkit.subject import Subject

_NOISE = 0.3
"""Of the standard deviation: other data, and still of the kind the model knows."""


def batch_variations(subject: Subject, count: int) -> list[Any]:
    """The subject's batch and `count - 1` others."""
    batches = [subject.fresh_batch()]
    if (loader := subject.loaders.get("train")) is not None:
        with contextlib.suppress(NotExamined), batches_of(loader, most=count) as found:
            batches += [clone_tensors(batch) for batch in found if type(batch) is type(subject.batch)][1:]
    size = batch_size(subject.batch)
    for number in range(len(batches), count):
        batches.append(_varied(subject, size, number))
    return batches[:count]


def _varied(subject: Subject, size: int | None, number: int) -> Any:
    """Whole numbers and masks exchanged among the samples together, noise on the rest."""
    generator = torch.Generator().manual_seed(number)

    def change(_: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.roll(number, dims=0) if tensor.shape[:1] == (size,) else tensor
        if tensor.numel() < 2 or bool(((tensor == 0) | (tensor == 1)).all()):
            return tensor  # a mask
        noise = torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
        return tensor.detach() + _NOISE * tensor.detach().std().nan_to_num(0.0) * noise

    return map_tensors(subject.fresh_batch(), change)
