"""The norm of every gradient after the backward pass of one observed step; watch() reads its own at each `step()`."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.observations.gradients import GradientNorms
from debugkit.probes import Probe, probe
from debugkit.subject import Subject


@probe(GradientNorms, complete_after="backward")
class GradientNormsProbe(Probe[GradientNorms]):
    """One number a parameter that has a gradient, read when the step ends."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._norms: dict[str, torch.Tensor] = {}
        self._last: GradientNorms | None = None

    def after_backward(self) -> None:
        with torch.no_grad():
            for name, parameter in self.subject.model.named_parameters():
                if parameter.grad is not None:
                    dense = parameter.grad.coalesce().values() if parameter.grad.is_sparse else parameter.grad
                    self._norms[name] = torch.linalg.vector_norm(dense)

    def end_step(self, step: int) -> None:
        norms = tuple((name, float(norm)) for name, norm in self._norms.items())
        self._last = GradientNorms(step, 0, norms)
        self._norms = {}

    @property
    def observation(self) -> GradientNorms:
        if self._last is None:
            raise NotExamined("The step did not come as far as its gradients.")
        return self._last
