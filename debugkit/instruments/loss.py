"""The losses of one forward: one scalar as a rule, or the several that a loss_fn returns (a GAN's two)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from debugkit.finding import NotExamined
from debugkit.structure import tensors_in
from debugkit.subject import Subject, hugging_face_loss


def losses_of(subject: Subject, batch: Any = None) -> list[Tensor]:
    """The scalar losses of `batch`, a fresh copy of the subject's own by default. Raises NotExamined without one."""
    batch = subject.fresh_batch() if batch is None else batch
    returned: Any = (subject.loss_fn or hugging_face_loss)(subject.model, batch)
    losses = [tensor for _, tensor in tensors_in(returned) if tensor.numel() == 1 and tensor.is_floating_point()]
    if not losses:
        got = f"a tensor of shape {tuple(returned.shape)}" if isinstance(returned, Tensor) else type(returned).__name__
        raise NotExamined(f"The loss must be a scalar tensor, but is {got}.")
    return losses
