"""Where the loss gives the model's output a gradient: at padded positions it must give none.

Needs no labels and no names of losses, so that it holds for any loss that is computed from the output, inside the model
or in the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import BESIDE_TEXT, SHORT_PAD_NAMES, entry, target
from debugkit.interventions.padding import (
    PaddingMask,
    ends_in_one_value,
    padding_by_ids,
    padding_by_length,
    padding_mask,
    padding_that_the_mask_leaves_out,
)
from debugkit.interventions.passes import output_of_pass
from debugkit.recorders.output_gradients import OutputGradients
from debugkit.rules.dk309_padded_targets_counted import PaddedGradients
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors

_SMALL = 1e-3
"""Of the gradient at a typical content position: what a recurrent layer may carry from one position to the next."""


def gradients_in_the_padding(setup: TrainingSetup) -> PaddedGradients:
    """Read the gradients that the program's own loss gave to the output, or compute them in one pass in eval mode.

    One more pass shows whether the output has the padding's positions: it becomes shorter with them.
    """
    masks = [mask for mask in _masks(setup) if not bool(mask.valid.all())]
    if not masks:
        raise NotExamined("No padding was found in the batch: no mask, no lengths, and no ids that end in padding.")
    norms = setup.output_gradients if setup.output_gradients is not None else _computed(setup)
    found = [
        (mask, _seen(mask, path, each.cpu(), valid.cpu()))
        for mask in masks
        for path, each in norms.items()
        for valid in (mask.valid, mask.valid[:, :-1])  # ids whose last one is a target only
        if each.shape == valid.shape and not bool(valid.all())
    ]
    if not found:
        raise NotExamined("No output of the model with one row for each position received a gradient.")
    for mask, one in sorted(found, key=lambda pair: -pair[1].reached):
        by_actions = _has_the_actions_shape(setup, mask, norms[one.output])
        if not one.reached or by_actions or _shortens(setup, mask, one.output, norms):
            return one
    names = " or ".join(dict.fromkeys(mask.path for mask, _ in found))
    raise NotExamined(f"Whether the model's output has the positions of {names} is not known.")


def _has_the_actions_shape(setup: TrainingSetup, mask: PaddingMask, norms: Tensor) -> bool:
    """Whether a mask of action steps is beside actions (B, H, A)."""
    if mask.path.rpartition(".")[2] not in SHORT_PAD_NAMES:
        return False
    found = target(setup)
    return found is not None and found[1].ndim == 3 and found[1].shape[:2] == norms.shape


def _shortens(setup: TrainingSetup, mask: PaddingMask, output: str, norms: Mapping[str, Tensor]) -> bool:
    """Whether the output loses its last position if the sequence of the mask does."""
    length = mask.valid.shape[1] - 1

    def cut(path: str, tensor: Tensor) -> Tensor:
        if path == mask.path and tensor.ndim == 1:
            return tensor.clamp(max=length)
        is_part = path == mask.path or ends_in_one_value(tensor, mask.valid) or _goes_along(path, tensor, mask)
        return tensor[:, :-1] if is_part else tensor

    with output_of_pass(setup) as outputs:
        try:
            setup.loss(map_tensors(setup.fresh_batch(), cut))
        except Exception:  # the model has a fixed width, or its loss a target of the whole length
            if output not in outputs:
                return False
    return output in outputs and outputs[output].shape[1] == norms[output].shape[1] - 1


def _goes_along(path: str, tensor: Tensor, mask: PaddingMask) -> bool:
    return tensor.shape == mask.valid.shape and path.rpartition(".")[2] in BESIDE_TEXT


def _masks(setup: TrainingSetup) -> Iterator[PaddingMask]:
    """The padding of each sequence of the batch that is known beyond doubt."""
    is_pad = entry(setup, SHORT_PAD_NAMES)
    if is_pad is not None and is_pad[1].dtype is torch.bool and is_pad[1].ndim == 2:
        yield PaddingMask(is_pad[0], ~is_pad[1], named=True)
    found = padding_that_the_mask_leaves_out(setup) or padding_mask(setup)
    if found is not None and found.says != "nothing":
        yield found
    if found is None:
        yield from padding_by_length(setup)
    yield from padding_by_ids(setup)


def _computed(setup: TrainingSetup) -> dict[str, Tensor]:
    if not setup.knows_loss:
        raise NotExamined("The script took no backward pass through the call.")
    gradients = OutputGradients()
    with output_of_pass(setup, gradients=True) as outputs:
        loss = setup.loss()
    kept = {path: tensor for path, tensor in outputs.items() if tensor.requires_grad and tensor.ndim == 3}
    if kept and loss.requires_grad:
        received = torch.autograd.grad(loss, list(kept.values()), allow_unused=True)
        for path, gradient in zip(kept, received, strict=True):
            if gradient is not None:
                gradients.add(path, gradient)
    return gradients.norms


def _seen(mask: PaddingMask, path: str, norms: Tensor, valid: Tensor) -> PaddedGradients:
    learnt = norms[valid & (norms > 0)]
    reached = norms > _SMALL * learnt.median() if len(learnt) else torch.zeros_like(valid)
    return PaddedGradients(
        mask=mask.path,
        output=path,
        padded=int((~valid).sum()),
        reached=int((reached & ~valid).sum()),
        content=int(valid.sum()),
        content_reached=int((reached & valid).sum()),
    )
