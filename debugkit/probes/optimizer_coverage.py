"""Compares the model's trainable parameters with what the optimizers hold, and sees who received a gradient."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.master_weights import masters
from debugkit.observations.optimizer_coverage import ForgottenParameter, OptimizerCoverage
from debugkit.probes import SAMPLED_EVERY, Probe, probe
from debugkit.subject import Subject


@probe(OptimizerCoverage, complete_after="backward", watch_every=SAMPLED_EVERY)
class OptimizerCoverageProbe(Probe[OptimizerCoverage]):
    """Listens to backward and to every optimizer that steps, those that were not passed in included."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._reached: set[int] = set()  # id() of parameters
        self._optimizers = list(subject.optimizers)

    def after_backward(self) -> None:
        self._reached |= {id(p) for p in self.subject.model.parameters() if p.grad is not None}

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        if not any(optimizer is known for known in self._optimizers):
            self._optimizers.append(optimizer)

    @property
    def observation(self) -> OptimizerCoverage:
        if not self._optimizers:
            raise NotExamined("No optimizer was given: pass optimizer=.")
        groups = [
            (f"{type(optimizer).__name__} group {index}", group["params"])
            for optimizer in self._optimizers
            for index, group in enumerate(optimizer.param_groups)
        ]
        tensors = [parameter for _, parameters in groups for parameter in parameters]
        held = {id(parameter) for parameter in tensors} | masters(self.subject.model.parameters(), tensors).keys()
        trainable = {id(p): p for p in self.subject.model.parameters() if p.requires_grad}
        paths = self.subject.parameter_paths
        return OptimizerCoverage(
            optimizers=len(self._optimizers),
            trainable=len(trainable),
            forgotten=tuple(
                ForgottenParameter(paths[key], parameter.numel(), key in self._reached)
                for key, parameter in trainable.items()
                if key not in held
            ),
            empty_groups=tuple(name for name, parameters in groups if not parameters),
        )
