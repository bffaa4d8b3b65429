"""Count the first steps in which every gradient was exactly zero; the norms were read for other rules anyway."""

from __future__ import annotations

from torch.optim import Optimizer

from debugkit.gradient_norms import GradientNorms
from debugkit.probe import Probe
from debugkit.rules.dk115_all_gradients_zero import ZeroGradients
from debugkit.setup import TrainingSetup


class ZeroGradientsProbe(Probe[ZeroGradients]):
    """Reads nothing from the device. Stops counting at the first gradient that is not zero."""

    complete_after = "backward"

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._steps = self._zero = self._gradients = 0

    def gradient_norms_read(self, _optimizer: Optimizer, norms: GradientNorms, /) -> None:
        if not norms.norms:
            return
        self._steps += 1
        if self._zero == self._steps - 1 and all(norm == 0.0 for _, norm in norms.norms):
            self._zero, self._gradients = self._steps, len(norms.norms)

    @property
    def observation(self) -> ZeroGradients:
        return ZeroGradients(self._steps, self._zero, self._gradients)
