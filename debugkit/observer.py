"""The interface of all observers of a training step, in a watched loop and in the single step of check()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from debugkit.gradient_norms import GradientNorms


class Observer:
    """The events of a step, in the order in which they occur. The methods do nothing: override those you need.

    With gradient accumulation the first three events repeat. LBFGS and some other optimizers run forward and backward
    inside `optimizer.step(closure)`. Then `before_optimizer_step` follows the first call of the closure, when the
    parameters still have the values for which the gradients were computed.
    """

    def before_scale(self, losses: Sequence[Tensor], /) -> None:
        """A GradScaler is about to scale these losses; `before_backward` then receives the scaled ones."""

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        """The graph is complete; `losses` are the roots that backward starts from."""

    def after_backward(self) -> None:
        """Gradients are in `.grad`."""

    def optimizer_step_begins(self, optimizer: Optimizer, /) -> None:
        """`optimizer.step()` was called. Its closure, if any, has not run yet."""

    def gradient_norms_read(self, optimizer: Optimizer, norms: GradientNorms, /) -> None:
        """`watch()` has read these norms. Called just before `before_optimizer_step`, so that probes can reuse them."""

    def before_optimizer_step(self, optimizer: Optimizer, /) -> None:
        """`optimizer.step()` is about to change the parameters."""

    def after_optimizer_step(self, optimizer: Optimizer, /) -> None:
        """`optimizer.step()` has run."""

    def step_skipped(self) -> None:
        """A GradScaler has skipped the step because of an overflow."""
