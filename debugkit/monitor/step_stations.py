"""The stations of a step, for whoever wants to be told of them."""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer

from debugkit.observations.gradients import GradientNorms


class StepStations:
    """Tells no one; `ProbeStations` tells the probes."""

    def before_backward(self, losses: list[Tensor]) -> None: ...
    def after_backward(self) -> None: ...
    def norms_read(self, optimizer: Optimizer, norms: GradientNorms) -> None: ...
    def before_step(self, optimizer: Optimizer) -> None: ...
    def after_step(self, optimizer: Optimizer) -> None: ...
