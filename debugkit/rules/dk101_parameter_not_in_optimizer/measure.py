"""Compares the model's trainable parameters with those that the optimizers hold, and records which got a gradient."""

from __future__ import annotations

import torch

from debugkit.finding import NotExamined
from debugkit.probe import SAMPLED_EVERY, THOROUGH_STEPS, Probe
from debugkit.recorders.master_weights import masters
from debugkit.rules.dk101_parameter_not_in_optimizer import ForgottenParameter, OptimizerCoverage
from debugkit.setup import TrainingSetup


class OptimizerCoverageProbe(Probe[OptimizerCoverage]):
    """Observes backward and the steps of all optimizers, also of those that were not passed in."""

    complete_after = "backward"
    watch_first = THOROUGH_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._reached: set[int] = set()  # id() of parameters
        self._optimizers = list(setup.optimizers)

    def after_backward(self) -> None:
        self._reached |= {id(p) for p in self.setup.model.parameters() if p.grad is not None}

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
        held = {id(parameter) for parameter in tensors} | masters(self.setup.model.parameters(), tensors).keys()
        trainable = {id(p): p for p in self.setup.model.parameters() if p.requires_grad}
        paths = self.setup.parameter_paths
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
