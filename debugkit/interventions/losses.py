"""The losses of one forward: usually one scalar, or several if `loss_fn` returns several (as for a GAN)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from debugkit.finding import NotExamined
from debugkit.setup import TrainingSetup, hugging_face_loss
from debugkit.structure import tensors_in


def losses_of(setup: TrainingSetup, batch: Any = None) -> list[Tensor]:
    """The scalar losses of `batch`, by default a fresh copy of the setup's batch. Raises NotExamined without a loss."""
    batch = setup.fresh_batch() if batch is None else batch
    returned: Any = (setup.loss_fn or hugging_face_loss)(setup.model, batch)
    losses = [tensor for _, tensor in tensors_in(returned) if tensor.numel() == 1 and tensor.is_floating_point()]
    if not losses:
        got = f"a tensor of shape {tuple(returned.shape)}" if isinstance(returned, Tensor) else type(returned).__name__
        raise NotExamined(f"The loss must be a scalar tensor, but is {got}.")
    return losses
