"""Reads the first batches of the training loader and compares the sizes of the samples."""

from __future__ import annotations

import math

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.program_lines import batches_made_at
from debugkit.loader_samples import batches_of
from debugkit.rules.dk320_sample_scale import APART, SampleScales, SampleSizes
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in

_USUAL = 0.9
_FEWEST_VALUES = 3
_MASKS = ("mask", "bias", "pad")


@torch.no_grad()
def read_the_samples(setup: TrainingSetup) -> SampleScales:
    """No forward pass. A size that is not finite is left out: DK313 reports those."""
    loader = setup.loaders.get("train")
    if loader is None:
        raise NotExamined("No training loader was given: pass dataloader=.")
    sizes: dict[str, list[tuple[float, int, int]]] = {}
    with batches_of(loader) as batches:
        for number, batch in enumerate(batches):
            rows = batch_size(batch)
            for path, tensor in tensors_in(batch):
                if not tensor.is_floating_point() or tensor.is_meta or tensor.shape[:1] != (rows,):
                    continue
                if tensor[0].numel() < _FEWEST_VALUES or any(word in path.lower() for word in _MASKS):
                    continue
                here = tensor.detach().double().flatten(1).square().mean(dim=1).sqrt().tolist()
                own = sizes.setdefault(path, [])
                own += [(size, number, row) for row, size in enumerate(here) if math.isfinite(size)]
    return SampleScales(tuple(_compared(path, own) for path, own in sizes.items() if own), batches_made_at(loader))


def _compared(path: str, sizes: list[tuple[float, int, int]]) -> SampleSizes:
    ordered = sorted(size for size, _, _ in sizes)
    usual = ordered[min(int(_USUAL * len(ordered)), len(ordered) - 1)]
    large = sorted((one for one in sizes if one[0] >= APART * usual > 0), reverse=True)
    return SampleSizes(path, len(sizes), usual, ordered[-1], tuple((batch, row) for _, batch, row in large))
